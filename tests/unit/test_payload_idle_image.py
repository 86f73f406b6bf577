"""The image of the payload container between jobs: it has a new name each time."""

from typing import Any

import pytest

from k8spilot.common.errors import ClusterError
from k8spilot.payload.binding.idle_image import IdleImage

DIGEST = "sha256:" + "d" * 64


def _pod(image: str, image_id: str) -> dict[str, Any]:
    return {
        "spec": {"containers": [{"name": "pilot", "image": image}]},
        "status": {"containerStatuses": [{"name": "pilot", "image": image, "imageID": image_id}]},
    }


def test_the_idle_image_is_the_pilots_own_under_a_name_that_is_new_each_time() -> None:
    pod = _pod("registry.example/k8spilot:1", f"registry.example/k8spilot@{DIGEST}")
    image = IdleImage(lambda: pod)
    first, second = image(), image()
    assert first != second
    assert all(one.startswith("registry.example/k8spilot:1-") and one.endswith(f"@{DIGEST}") for one in (first, second))


@pytest.mark.parametrize("image_id", [DIGEST, "k8spilot:1", ""])
def test_an_image_that_no_registry_knows_has_no_digest_to_be_asked_for(image_id: str) -> None:
    """An id without a repository is that of the configuration, by which nothing can be pulled."""
    assert IdleImage(lambda: _pod("k8spilot:1", image_id))() == "k8spilot:1"


def test_an_image_that_the_node_has_lost_keeps_its_digest() -> None:
    """The kubelet tells the configuration's id then. Without a digest no name of it would be new."""
    pods = [_pod("registry.example/k8spilot:1", f"registry.example/k8spilot@{DIGEST}")]
    image = IdleImage(lambda: pods[-1])
    before = image()
    pods.append(_pod("registry.example/k8spilot:1", "sha256:" + "c" * 64))
    assert image() != before
    assert image().endswith(f"@{DIGEST}")


def test_a_pod_without_a_pilot_container_is_none_of_ours() -> None:
    with pytest.raises(ClusterError, match="no container pilot"):
        IdleImage(lambda: {"spec": {"containers": []}})()
