"""Image references, by the grammar of Docker's."""

import pytest

from k8spilot.common.errors import ImageError
from k8spilot.model.reference import Reference

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "repository", "tag", "digest"),
    [
        ("busybox", "docker.io/library/busybox", "latest", None),
        ("busybox:1.36", "docker.io/library/busybox", "1.36", None),
        ("library/busybox", "docker.io/library/busybox", "latest", None),
        ("docker.io/library/busybox:x", "docker.io/library/busybox", "x", None),
        ("10.0.0.1:5000/a/b_c/d--e.f:T_1-2", "10.0.0.1:5000/a/b_c/d--e.f", "T_1-2", None),
        ("localhost/a", "localhost/a", "latest", None),
        ("[::1]:5000/a:x", "[::1]:5000/a", "x", None),
        (f"busybox@{DIGEST}", "docker.io/library/busybox", None, DIGEST),
        ("index.docker.io/a/b", "docker.io/a/b", "latest", None),
        (f"r.example:443/a:x@{DIGEST}", "r.example:443/a", "x", DIGEST),
        ("Host.Example/a", "Host.Example/a", "latest", None),
        ("a/b:" + "t" * 128, "docker.io/a/b", "t" * 128, None),
    ],
)
def test_a_reference_is_read(text: str, repository: str, tag: str | None, digest: str | None) -> None:
    assert Reference.parse(text) == Reference(repository, tag, digest)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", ":", "a:", "a@", "a b", "a/", "/a", "a//b", "Upper", "a/Upper", "-a", "a-", "a..b", "a___b", "a:-x"),
        *("a:" + "t" * 129, "x" * 256, "a@sha256:short", f"a@{DIGEST}x!", "a:x:y", "http://a/b", "a:x\n", "ä", "../a"),
        *("a;b", "a$(id)", "a'b", "--authfile=/etc/passwd", "a/-b"),
    ],
)
def test_what_is_no_reference_is_refused_with_how_to_write_one(text: str) -> None:
    with pytest.raises(ImageError, match=r"is not a valid image reference; write it as \[registry/\]repository"):
        Reference.parse(text)


@pytest.mark.parametrize("text", ["docker.io/library/busybox:latest", f"r.io/a/b@{DIGEST}", f"r:5000/a:x@{DIGEST}"])
def test_a_reference_is_written_as_it_was_read(text: str) -> None:
    assert str(Reference.parse(text)) == text


def test_the_registry_is_asked_by_digest_where_there_is_one() -> None:
    assert Reference.parse("r:1/a:x").source == "r:1/a:x"
    assert Reference.parse(f"r:1/a:x@{DIGEST}").source == f"r:1/a@{DIGEST}"


def test_what_the_docker_cli_writes_in_two_ways_is_one_source() -> None:
    assert Reference.parse("busybox").source == Reference.parse("docker.io/library/busybox:latest").source
    assert Reference.parse(f"a/b:x@{DIGEST}").source == Reference.parse(f"docker.io/a/b@{DIGEST}").source


@pytest.mark.parametrize("text", ["a", "a:" + "t" * 128, f"r:5000/a@{DIGEST}"])
def test_a_fresh_reference_is_valid_names_the_digest_and_is_unique(text: str) -> None:
    reference = Reference.parse(text)
    fresh = [Reference.parse(reference.fresh(DIGEST, unique)) for unique in ("0123456789ab", "ba9876543210")]
    assert fresh[0] != fresh[1]
    assert {one.digest for one in fresh} == {DIGEST}
    assert {one.repository for one in fresh} == {reference.repository}
