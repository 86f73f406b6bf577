"""The site's rules for images in START, beside those that the engine applies (model/image_policy.py)."""

from pathlib import Path
from typing import Any

import pytest

from k8spilot.common.errors import ImageError, ImageNotAllowed
from k8spilot.model.image_policy import ImagePolicy
from k8spilot.model.reference import Reference
from k8spilot.settings.parsers import repositories
from tests.unit.condor_reads import accepts, settings

DIGEST = "@sha256:" + "0" * 64
RULES: dict[str, dict[str, Any]] = {
    "none": {},
    "official": {"allowed_images": repositories("docker.io/library")},
    "hub": {"allowed_images": repositories("docker.io, [::1]:5000")},
    "group": {"allowed_images": repositories("registry.example:5000/group/*, a.b/c-d_e, localhost/x")},
    "digest": {"require_digest": True},
    "both": {"allowed_images": repositories("registry.example"), "require_digest": True},
}
IMAGES = [
    "busybox",
    "busybox:1",
    f"busybox{DIGEST}",
    f"busybox:1{DIGEST}",
    "busybox@md5:" + "0" * 32,
    "library/busybox",
    "someone/busybox",
    "docker.io/busybox",
    "docker.io/library/busybox",
    "index.docker.io/library/busybox:1",
    "index.docker.io/busybox",
    "docker.io.evil.example/library/busybox",
    "evil.example/docker.io/library/busybox",
    "Docker.io/library/busybox",
    "registry.example/a",
    f"registry.example/a:t{DIGEST}",
    "registry.example:5000/group",
    "registry.example:5000/group/a/b:t",
    "registry.example:5000/group2/a",
    "registry.example:5001/group/a",
    "registryxexample:5000/group/a",
    "registry.example.evil.example/group",
    "a.b/c-d_e",
    "a.b/c-d_e/f",
    "a.b/c-d_ex",
    "[::1]:5000/a",
    "localhost/x/y",
    "localhost:5000/x",
    "127.0.0.1:5000/a",
    "169.254.169.254/latest",
    "metadata.google.internal/a",
    "kubernetes.default.svc/a",
    "kubernetes.default.example:5000/a",
    "10.0.0.1:5000/a",
]
UNUSUAL = ["127.1/a", "0x7f.1:80/a", "[::ffff:a9fe:a9fe]/a", "100.100.100.200/a"]
"""Spellings of closed hosts that only the engine knows."""


def admits(image: str, rules: dict[str, Any]) -> bool:
    """Whether the engine admits it."""
    known = settings(**rules)
    try:
        ImagePolicy(known.allowed_images, known.require_digest).admit(Reference.parse(image))
    except ImageNotAllowed:
        return False
    return True


def job(image: str) -> dict[str, Any]:
    return {"WantContainer": True, "WantDockerImage": True, "ContainerImage": f"docker://{image}"}


@pytest.mark.slow
@pytest.mark.parametrize("rules", RULES)
def test_start_takes_the_jobs_whose_images_the_engine_admits(tmp_path: Path, rules: str) -> None:
    start = {image: accepts(tmp_path, job(image), **RULES[rules]) for image in IMAGES}
    assert start == {image: admits(image, RULES[rules]) for image in IMAGES}
    assert set(start.values()) == {True, False}


@pytest.mark.parametrize("image", UNUSUAL)
def test_the_engine_knows_closed_hosts_in_every_spelling(tmp_path: Path, image: str) -> None:
    assert not admits(image, {})
    assert accepts(tmp_path, job(image))
    assert not accepts(tmp_path, job(image), allowed_images=("registry.example",))


@pytest.mark.parametrize("form", ["DockerImage", "SingularityImage", "ContainerImage"])
def test_however_a_job_names_its_image_the_same_rules_hold(tmp_path: Path, form: str) -> None:
    rules: dict[str, Any] = {"allowed_images": ("registry.example",)}
    for image, taken in (("registry.example/a", True), ("busybox", False)):
        forms: dict[str, dict[str, Any]] = {
            "DockerImage": {"WantDocker": True, "DockerImage": image},
            "SingularityImage": {"SingularityImage": f"docker://{image}"},
            "ContainerImage": job(image),
        }
        assert accepts(tmp_path, forms[form], **rules) is taken


def test_a_job_without_an_image_is_taken_by_the_rules_for_the_default_image(tmp_path: Path) -> None:
    assert accepts(tmp_path, {}, allowed_images=("registry.example",), default_image="docker://registry.example/a")
    assert not accepts(tmp_path, {}, allowed_images=("registry.example",), default_image="docker://busybox")


def test_an_operator_who_wants_refused_jobs_held_takes_them(tmp_path: Path) -> None:
    for rules in RULES.values():
        assert accepts(tmp_path, job("evil.example/a"), refused_images="hold", **rules)


def test_jobs_whose_image_is_a_file_are_still_taken_to_be_held(tmp_path: Path) -> None:
    for rules in RULES.values():
        assert accepts(tmp_path, {"SingularityImage": "/images/a.sif"}, **rules)
        assert not accepts(tmp_path, {"SingularityImage": "/images/a.sif"}, unmapped_images="leave", **rules)


@pytest.mark.parametrize("value", ["undefined", "error", "5", '"a b"', '"]["', '"a\\nb"', '""', "TARGET.x"])
def test_no_expression_of_a_job_gets_past_the_rules(tmp_path: Path, value: str) -> None:
    import classad2  # noqa: PLC0415

    named = {"WantDocker": True, "DockerImage": classad2.ExprTree(value)}
    assert not accepts(tmp_path, named, allowed_images=("registry.example",))


def test_an_invalid_name_is_held_where_every_image_is_allowed(tmp_path: Path) -> None:
    assert accepts(tmp_path, job("a b"))
    with pytest.raises(ImageError):
        Reference.parse("a b")
