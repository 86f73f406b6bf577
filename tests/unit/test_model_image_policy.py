"""Images that an operator lets jobs have."""

from pathlib import Path

import pytest

from k8spilot.common.errors import ImageError, ImageNotAllowed, SettingsError
from k8spilot.model.image import Image
from k8spilot.model.image_policy import ImagePolicy
from k8spilot.model.reference import Reference
from k8spilot.preflight.finding import faults_of
from k8spilot.preflight.settings import policy_findings
from k8spilot.settings import Settings

DIGEST = "sha256:" + "0" * 64
ENOUGH = {"POD_NAME": "pilot", "POD_NAMESPACE": "pilots", "K8SPILOT_SERVICES": "engine"}


def settings(allowed: str, **more: str) -> Settings:
    return Settings.of({**ENOUGH, "K8SPILOT_ALLOWED_IMAGES": allowed, **more})


def admits(policy: ImagePolicy, image: str) -> bool:
    try:
        policy.admit(Reference.parse(image))
    except ImageNotAllowed:
        return False
    return True


@pytest.mark.parametrize(
    ("allowed", "image", "is_allowed"),
    [
        ("", "evil.example/x", True),
        ("docker.io/library", "busybox", True),
        ("docker.io/library", "index.docker.io/library/busybox:1", True),
        ("docker.io/library", "someone/busybox", False),
        ("docker.io", "someone/busybox", True),
        ("registry.example", "registry.example/a/b", True),
        ("registry.example", "registry.example:5000/a", False),
        ("registry.example", "registry.example.evil.example/a", False),
        ("registry.example", "evil.example/registry.example/a", False),
        ("registry.example", "Registry.example/a", False),  # whether that is the same one, a resolver decides
        ("registry.example/group", "registry.example/group", True),
        ("registry.example/group", "registry.example/group/a/b:t", True),
        ("registry.example/group", "registry.example/group2/a", False),
        ("registry.example/group/*", "registry.example/group/a", True),
        ("registry.example/**", "registry.example/a", True),
        ("registry.example/", "registry.example/a", True),
        ("docker://registry.example/a", "registry.example/a", True),
        ("a.example,\n  b.example:5000 ", "b.example:5000/x", True),
        ("[::1]:5000", "[::1]:5000/a", True),
        ("localhost/a", "localhost/a", True),
    ],
)
def test_an_image_is_allowed_by_its_registry_or_repository(allowed: str, image: str, is_allowed: bool) -> None:
    assert admits(ImagePolicy(settings(allowed).allowed_images), image) is is_allowed


@pytest.mark.parametrize(
    "text", ["busybox", "library/busybox", "*", "registry.example/A", "registry.example/a:1", "a..b/*/c"]
)
def test_what_cannot_be_allowed_is_no_setting(text: str) -> None:
    with pytest.raises(SettingsError, match=r"K8SPILOT_ALLOWED_IMAGES.*registry's name"):
        settings(text)


@pytest.mark.parametrize(
    ("image", "is_allowed"),
    [("a:1", False), (f"a@{DIGEST}", True), (f"a:1@{DIGEST}", True), ("a@md5:" + "0" * 32, False)],
)
def test_a_digest_can_be_required(image: str, is_allowed: bool) -> None:
    assert (
        admits(ImagePolicy(needs_digest=settings("", K8SPILOT_REQUIRE_DIGEST="true").require_digest), image)
        is is_allowed
    )


def test_refusals_say_what_is_allowed() -> None:
    with pytest.raises(
        ImageNotAllowed, match=r"docker\.io/library/a:latest is not allowed here: .* of b\.example, c\.example$"
    ):
        ImagePolicy(["b.example", "c.example"]).admit(Reference.parse("a"))
    with pytest.raises(ImageNotAllowed, match=r"by their digest, docker\.io/library/a@sha256:"):
        ImagePolicy(needs_digest=True).admit(Reference.parse("a:1"))


@pytest.mark.parametrize("volume", ["/k8spilot", "/k8spilot/bin/", "/x/../k8spilot", "//k8spilot", "k8spilot/bin"])
def test_an_image_may_not_put_volumes_over_the_pilots(volume: str) -> None:
    image = Image(Reference.parse("a"), DIGEST, volumes=(volume,))
    with pytest.raises(ImageError, match="declares a volume at"):
        ImagePolicy(reserved=[Path("/k8spilot")]).admit_volumes(image)


def test_volumes_can_be_refused() -> None:
    policy = ImagePolicy(allows_volumes=settings("", K8SPILOT_ALLOW_IMAGE_VOLUMES="false").allow_image_volumes)
    with pytest.raises(ImageNotAllowed, match="declares a volume at /data"):
        policy.admit_volumes(Image(Reference.parse("a"), DIGEST, volumes=("/data",)))
    policy.admit_volumes(Image(Reference.parse("a"), DIGEST))
    ImagePolicy().admit_volumes(Image(Reference.parse("a"), DIGEST, volumes=("/data",)))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            {"K8SPILOT_DEFAULT_IMAGE": "docker://busybox"},
            "K8SPILOT_DEFAULT_IMAGE: image docker.io/library/busybox:latest is",
        ),
        ({"K8SPILOT_IMAGE_MAP": r"^/x/(.*) => docker://docker.io/\1"}, "K8SPILOT_IMAGE_MAP has docker://docker.io/"),
        ({"K8SPILOT_DEFAULT_IMAGE": "ok.example/a:1", "K8SPILOT_REQUIRE_DIGEST": "true"}, "by their digest"),
        ({"K8SPILOT_DEFAULT_IMAGE": "ok.example/a:1"}, ""),
        ({"K8SPILOT_DEFAULT_IMAGE": 'ifThenElse(TARGET.A, "docker://a.example/x", undefined)'}, ""),  # known with a job
        ({"K8SPILOT_IMAGE_MAP": r"^/x/(.*) => docker://ok.example/\1;^/y/(.*) => docker://\1/z"}, ""),
    ],
)
def test_the_operators_own_images_are_checked(more: dict[str, str], words: str) -> None:
    faults = faults_of(policy_findings(settings("ok.example", **more)))
    assert [one for one in faults if words in one] if words else faults == []
