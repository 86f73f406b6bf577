"""A pilot whose own image was loaded on the node by hand, so that no reference to it is ever new."""

import pytest

from k8spilot.preflight.cluster import image_warnings

DIGEST = "sha256:" + "d" * 64


@pytest.mark.parametrize(
    ("image", "image_id", "is_told"),
    [
        ("k8spilot:1", DIGEST, True),
        ("k8spilot:1", f"registry.example/k8spilot@{DIGEST}", False),
        (f"registry.example/k8spilot@{DIGEST}", "sha256:" + "c" * 64, False),
        ("k8spilot:1", "", False),
    ],
    ids=["loaded by hand", "pulled", "named by its digest", "not known yet"],
)
def test_a_pilot_whose_image_has_no_digest_is_warned_of_the_kubelets_back_off(
    image: str, image_id: str, is_told: bool
) -> None:
    pod = {
        "spec": {"containers": [{"name": "pilot", "image": image}]},
        "status": {"containerStatuses": [{"name": "pilot", "image": image, "imageID": image_id}]},
    }
    assert [image in words and "back-off" in words for words in image_warnings(pod)] == [True] * is_told
