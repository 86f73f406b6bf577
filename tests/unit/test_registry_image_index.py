"""Choice of this machine's image in an index, and whether every client makes the same choice."""

from typing import Any

import pytest

from k8spilot.registry.image_index import Choice, choose, configuration_of

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


def named(name: str) -> str:
    return f"sha256:{name.encode().hex():0>64}"


def entry(digest: str, architecture: str | None = "amd64", system: str | None = "linux", **more: Any) -> dict[str, Any]:
    found = {"architecture": architecture, "os": system, **{name.replace("_", "."): more[name] for name in more}}
    return {
        "mediaType": MANIFEST,
        "digest": named(digest),
        "platform": {name: value for name, value in found.items() if value is not None},
    }


OTHERS = [entry("x", "s390x"), entry("y", "arm64", variant="v8"), entry("z", "amd64", "windows")]
ATTESTATION = entry("attestation", "unknown", "unknown")

SURE: dict[str, list[Any]] = {
    "the only one": [entry("own")],
    "among others": [*OTHERS, entry("own"), ATTESTATION],
    "no variant": [entry("own", variant="")],
}
UNSURE: dict[str, list[Any]] = {
    "twice": [entry("own"), entry("other")],
    "a variant that is none": [entry("other", variant="v1"), entry("own")],
    "a variant alone": [entry("own", variant="v3")],
    "features": [entry("own", os_features=["x"])],
    "a version": [entry("own", os_version="1")],
    "the kernel's word": [entry("other", "x86_64"), entry("own")],
    "the word of others": [entry("own", "x86-64")],
    "capitals": [entry("other", system="Linux"), entry("own")],
    "more capitals": [entry("other", "AMD64"), entry("own")],
    "no platform": [{"digest": named("other")}, entry("own")],
    "half a platform": [entry("other", None), entry("own")],
    "the other half": [entry("other", system=None), entry("own")],
    "no kind": [{**entry("own"), "mediaType": ""}],
    "an index": [{**entry("own"), "mediaType": INDEX}],
    "an index before it": [{**entry("other"), "mediaType": INDEX}, entry("own")],
}


@pytest.mark.parametrize("case", SURE)
def test_an_index_that_everybody_reads_alike_is_bound_as_a_whole(case: str) -> None:
    assert choose({"manifests": SURE[case]}, "amd64") == Choice(named("own"), is_sure=True)


@pytest.mark.parametrize("case", UNSURE)
def test_where_somebody_may_read_it_differently_the_image_itself_is_bound(case: str) -> None:
    assert choose({"manifests": UNSURE[case]}, "amd64") == Choice(named("own"), is_sure=False)


def test_the_common_variant_of_arm_is_as_good_as_none() -> None:
    assert choose({"manifests": [entry("own", "arm64", variant="v8"), entry("x")]}, "arm64") == Choice(
        named("own"), True
    )
    assert choose({"manifests": [entry("own", "arm64", variant="v9"), entry("x")]}, "arm64") == Choice(
        named("own"), False
    )


@pytest.mark.parametrize(
    "manifest",
    [{}, {"manifests": None}, {"config": {}}],
)
def test_what_is_no_index_has_no_choice(manifest: Any) -> None:
    assert choose(manifest, "amd64") is None


ENTRIES: list[Any] = [5, [5], [], [{}], [*OTHERS, ATTESTATION], [{**entry("own"), "digest": "sha256:own"}]]
WRONG: list[Any] = [None, 5, [], *({"manifests": entries} for entries in ENTRIES)]


@pytest.mark.parametrize("manifest", WRONG)
def test_what_has_another_shape_is_refused(manifest: Any) -> None:
    with pytest.raises(ValueError, match=r"form|list|digest|other platforms"):
        choose(manifest, "amd64")


@pytest.mark.parametrize(
    "name", ["io.kubernetes.cri-o.annotations.checkpoint.name", "org.criu.checkpoint.container.name"]
)
def test_a_checkpoint_from_which_a_runtime_would_restore_processes_is_refused(name: str) -> None:
    manifest = {"mediaType": MANIFEST, "config": {"digest": named("own")}}
    assert configuration_of({**manifest, "annotations": {"org.opencontainers.image.title": name}}) == named("own")
    with pytest.raises(ValueError, match="it is a checkpoint of a container"):
        configuration_of({**manifest, "annotations": {name: ""}})
    for kind in (manifest, {"manifests": [entry("own")]}):
        choose(kind, "amd64")
        with pytest.raises(ValueError, match="it is a checkpoint of a container"):
            choose({**kind, "annotations": {name: ""}}, "amd64")
        with pytest.raises(ValueError, match="some parsers interpret its field 'Annotations'"):
            choose({**kind, "Annotations": {name: ""}}, "amd64")


def test_annotations_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="form"):
        configuration_of({"config": {"digest": named("own")}, "annotations": 5})
