"""Meaning of skopeo's words."""

import hashlib
import json
from pathlib import Path

import pytest

from k8spilot.common.errors import ImageError, ImageNotHere, ImageNotNow, RegistryUnreachable
from k8spilot.model.image import Image
from k8spilot.model.image_policy import ImagePolicy
from k8spilot.model.reference import Reference
from k8spilot.payload.binding.image_lookup import ImageLookup
from k8spilot.registry.skopeo import Registry

REFERENCE = Reference.parse("registry.test/a:1")
DEFINITE = [
    "reading manifest 1 in registry.test/a: manifest unknown: manifest unknown",
    "reading manifest 1 in registry.test/a: name unknown: repository name not known to registry",
    'choosing image instance: no image found in manifest list for architecture amd64, variant \\"\\", OS linux',
]
TRANSIENT = [
    'pinging container registry registry.test: Get \\"https://a.test/v2/\\": dial tcp 192.0.2.1:443: i/o timeout',
    "pinging container registry registry.test: dial tcp: connect: connection refused",
    "received unexpected HTTP status: 503 Service Unavailable",
    "toomanyrequests: You have reached your pull rate limit",
    "tls: failed to verify certificate: x509: certificate has expired or is not yet valid",
]
OF_THE_SITE = {
    "reading manifest 1 in docker.io/library/a: errors:\\ndenied: requested access is denied": "repository",
    "unable to retrieve auth token: invalid username/password: unauthorized: authentication required": "repository",
    "pinging container registry registry.test: dial tcp: lookup registry.test: no such host": "registry",
    "pinging container registry registry.test: Get https://registry.test/v2/: tls: failed to verify certificate: "
    "x509: certificate signed by unknown authority": "registry",
    "external blob: Get https://evil.example/x: dial tcp: lookup evil.example: no such host": "image",
}
"""Words, and the part of the image's name that they are about."""


def registry(folder: Path, script: str, credentials: Path | None = None) -> Registry:
    """Return a registry that asks a script in place of skopeo; the script's arguments are kept."""
    program = folder / "skopeo"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {folder}/asked\n{script}\n')
    program.chmod(0o755)
    return Registry(credentials, str(program))


def failing(folder: Path, words: str) -> Registry:
    log = folder / "log"
    log.write_text(f'time="2026-01-01T00:00:00Z" level=fatal msg="Error parsing image name: {words}"\n')
    return registry(folder, f"cat {log} >&2; exit 1")


def answering(folder: Path, text: str) -> Registry:
    (folder / "answer").write_text(text)
    return registry(folder, f"cat {folder}/answer")


def digest_of(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def manifest_of(configuration: str) -> str:
    return json.dumps({"schemaVersion": 2, "config": {"digest": digest_of(configuration)}})


def configured(folder: Path, configuration: str, manifest: str = "", index: str = "") -> Registry:
    """Return a registry that answers `index`, if any, by its tag, and else `manifest`, and the configuration."""
    manifest = manifest or manifest_of(configuration)
    for name, text in (("configuration", configuration), ("manifest", manifest), ("index", index or manifest)):
        (folder / name).write_text(text)
    return registry(
        folder,
        f"cd {folder}; case $* in *--config*) cat configuration;; *:1) cat index;; *) cat manifest;; esac",
    )


async def image_of(folder: Path, configuration: str) -> Image:
    asked = configured(folder, configuration)
    return await asked.image(REFERENCE, await asked.digest(REFERENCE))


@pytest.mark.parametrize("words", DEFINITE)
async def test_that_there_is_no_such_image_is_told_in_skopeos_words(tmp_path: Path, words: str) -> None:
    with pytest.raises(ImageError) as refused:
        await failing(tmp_path, words).digest(REFERENCE)
    told = str(refused.value)
    assert told.startswith("image registry.test/a:1 is not available: Error parsing image name: ")
    assert "level=fatal" not in told
    assert "\n" not in told


@pytest.mark.parametrize("words", OF_THE_SITE)
async def test_that_this_site_has_no_access_is_not_told_as_the_images_fault(tmp_path: Path, words: str) -> None:
    with pytest.raises(ImageNotHere, match=r"^this site has no access to image registry\.test/a:1: ") as refused:
        await failing(tmp_path, words).digest(REFERENCE)
    assert refused.value.scope == OF_THE_SITE[words]


@pytest.mark.parametrize("words", TRANSIENT)
async def test_that_the_registry_does_not_answer_says_nothing_of_the_image(tmp_path: Path, words: str) -> None:
    with pytest.raises(RegistryUnreachable, match="did not answer"):
        await failing(tmp_path, words).digest(REFERENCE)


async def test_other_words_are_told_as_they_are_but_not_endlessly(tmp_path: Path) -> None:
    with pytest.raises(RegistryUnreachable) as error:
        await registry(tmp_path, "yes panic | head -c 100000 >&2; exit 2").digest(REFERENCE)
    assert "panic panic" in str(error.value)
    assert len(str(error.value)) < 600


async def test_the_digest_is_that_of_the_bytes_of_the_manifest(tmp_path: Path) -> None:
    text = manifest_of("{}") + "\n\n"
    assert await answering(tmp_path, text).digest(REFERENCE) == digest_of(text)
    assert (tmp_path / "asked").read_text() == "inspect --raw docker://registry.test/a:1\n"


async def test_another_manifest_than_the_one_asked_for_is_corrupt(tmp_path: Path) -> None:
    reference = Reference.parse("registry.test/a@sha256:" + "0" * 64)
    with pytest.raises(ImageError, match="corrupt"):
        await answering(tmp_path, "{}").digest(reference)


async def test_the_configuration_becomes_an_image_and_is_asked_for_once(tmp_path: Path) -> None:
    config = {
        "architecture": "x86_64",
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": []},
        "created": "2026-01-01T00:00:00Z",
        "config": {"Entrypoint": ["/e"], "Cmd": ["c"], "Env": ["A=1"], "WorkingDir": "/w", "User": "1000"},
    }
    asked = configured(tmp_path, json.dumps(config))
    digest = await asked.digest(REFERENCE)
    images = [await asked.image(REFERENCE, digest) for _ in range(2)]
    assert images[0] == images[1]
    image = images[0]
    assert (image.architecture, image.entrypoint, image.command) == ("amd64", ("/e",), ("c",))
    assert (image.environment, image.directory, image.user) == (("A=1",), "/w", "1000")
    assert (tmp_path / "asked").read_text().splitlines() == [
        "inspect --raw docker://registry.test/a:1",
        f"inspect --config --raw docker://registry.test/a@{digest}",
    ]


@pytest.mark.parametrize("more", [{}, {"config": None}])
async def test_an_image_may_say_little(tmp_path: Path, more: dict[str, None]) -> None:
    text = {"architecture": "amd64", "rootfs": {"type": "layers"}, **more}
    image = await image_of(tmp_path, json.dumps(text))
    assert (image.entrypoint, image.command, image.directory) == ((), (), "")


async def test_a_configuration_that_is_not_json_is_corrupt(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="not JSON"):
        await image_of(tmp_path, "<html>")


@pytest.mark.parametrize("text", ["{}", '{"name": "a chart", "version": "1"}', '{"architecture": "amd64"}'])
async def test_an_artifact_that_is_no_image_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ImageError, match="another artifact"):
        await image_of(tmp_path, text)


@pytest.mark.parametrize(
    ("platform", "words"),
    [
        ({"architecture": "arm64"}, "it is for linux/arm64, and the node runs linux/amd64"),
        ({"architecture": "AArch64", "os": "linux"}, "it is for linux/arm64, and"),
        ({"architecture": "amd64", "os": "windows"}, "it is for windows/amd64, and"),
        ({"architecture": "unknown", "os": "unknown"}, "an attestation or another artifact"),
    ],
)
async def test_a_single_image_for_another_machine_is_refused_as_an_index_is(
    tmp_path: Path, platform: dict[str, str], words: str
) -> None:
    with pytest.raises(ImageError, match=words):
        await image_of(tmp_path, json.dumps({**platform, "rootfs": {"type": "layers", "diff_ids": []}}))


async def test_credentials_are_passed_on(tmp_path: Path) -> None:
    secret = tmp_path / "auth.json"
    (tmp_path / "answer").write_text(manifest_of("{}"))
    await registry(tmp_path, f"cat {tmp_path}/answer", secret).digest(REFERENCE)
    assert f"--authfile {secret}" in (tmp_path / "asked").read_text()


MANIFEST = "application/vnd.oci.image.manifest.v1+json"
AMD64 = {"architecture": "amd64", "os": "linux"}
CONFIGURATION = json.dumps({**AMD64, "rootfs": {}})
OWN = digest_of(manifest_of(CONFIGURATION))


def index_of(*entries: tuple[str, object]) -> str:
    """An index of images with these digests and platforms."""
    told = [{"mediaType": MANIFEST, "digest": digest, "platform": platform} for digest, platform in entries]
    return json.dumps({"schemaVersion": 2, "manifests": told})


async def test_an_index_that_all_clients_read_alike_is_bound_and_the_own_images_configuration_counts(
    tmp_path: Path,
) -> None:
    index = index_of((OWN, AMD64), ("", {"architecture": "s390x", "os": "linux"}), ("", {"architecture": "unknown"}))
    asked = configured(tmp_path, CONFIGURATION, index=index)
    assert await asked.digest(REFERENCE) == digest_of(index)
    found = await asked.image(REFERENCE, digest_of(index))
    assert (found.manifest, found.identifier) == (OWN, digest_of(CONFIGURATION))


async def test_of_an_index_that_clients_may_read_differently_one_image_is_bound(tmp_path: Path) -> None:
    asked = configured(tmp_path, CONFIGURATION, index=index_of((OWN, AMD64), ("sha256:" + "2" * 64, AMD64)))
    assert await asked.digest(REFERENCE) == OWN
    assert (await asked.image(REFERENCE, OWN)).manifest == OWN


async def test_an_index_for_other_machines_is_told_as_such(tmp_path: Path) -> None:
    index = index_of((OWN, {"architecture": "386", "os": "linux"}))
    with pytest.raises(ImageError, match="none for linux/amd64"):
        await configured(tmp_path, CONFIGURATION, index=index).digest(REFERENCE)


async def test_an_index_in_an_index_is_refused(tmp_path: Path) -> None:
    inner = index_of((OWN, AMD64))
    asked = configured(tmp_path, CONFIGURATION, inner, index_of((digest_of(inner), AMD64)))
    with pytest.raises(ImageError, match="index of indexes"):
        await asked.image(REFERENCE, await asked.digest(REFERENCE))


async def test_the_configuration_of_an_index_that_clients_may_read_differently_is_not_to_be_had(tmp_path: Path) -> None:
    inner = json.dumps({"manifests": [{"digest": OWN}]})
    (tmp_path / "own").write_text(manifest_of(CONFIGURATION))
    asked = registry(tmp_path, f"case $* in *{OWN}) cat {tmp_path}/own;; *) echo -n '{inner}';; esac")
    with pytest.raises(ImageError, match=r"resolve sha256:.* differently"):
        await asked.image(REFERENCE, digest_of(inner))


async def test_another_configuration_than_the_manifest_names_is_refused(tmp_path: Path) -> None:
    """Skopeo asks for the manifest once more, and takes what some documents say of themselves for their digest."""
    asked = configured(tmp_path, CONFIGURATION, manifest_of("{}"))
    with pytest.raises(ImageError, match="for the configuration"):
        await asked.image(REFERENCE, await asked.digest(REFERENCE))


@pytest.mark.parametrize("name", ["signatures", "fsLayers", "FSLAYERS", "history"])
async def test_dockers_old_manifests_are_told_as_such(tmp_path: Path, name: str) -> None:
    manifest = json.dumps({**json.loads(manifest_of(CONFIGURATION)), name: []})
    with pytest.raises(ImageError, match="old schema 1"):
        await configured(tmp_path, CONFIGURATION, manifest).digest(REFERENCE)


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
async def test_an_image_is_the_one_that_its_digest_names_whatever_the_algorithm(tmp_path: Path, algorithm: str) -> None:
    manifest = manifest_of(CONFIGURATION)
    named = hashlib.new(algorithm, manifest.encode()).hexdigest()
    asked = configured(tmp_path, CONFIGURATION)
    assert await asked.digest(Reference.parse(f"registry.test/a@{algorithm}:{named}")) == digest_of(manifest)
    with pytest.raises(ImageError, match="corrupt"):
        await asked.digest(Reference.parse(f"registry.test/a@{algorithm}:{'0' * len(named)}"))
    with pytest.raises(ImageError, match="digest of md5"):
        await asked.digest(Reference.parse("registry.test/a@md5:" + "0" * 32))


@pytest.mark.parametrize(
    "manifest",
    [
        "[]",
        "nothing",
        '{"manifests": 5}',
        '{"manifests": [5]}',
        '{"manifests": [{"digest": 1}]}',
        '{"manifests": [{"digest": "sha256:\\u0000"}]}',
        '{"config": {}}',
        '{"config": {"digest": "sha256:1"}}',
        '{"Config": {"digest": "sha256:1"}}',
        '{"schemaVersion": 2}',
        '{"manifests": [{"platform": "x"}]}',
        '{"Manifests": [{"digest": "sha256:1"}]}',
        '{"manifests": [], "manifests": []}',
        '{"manifests": [{"Digest": "sha256:1"}]}',
        '{"manifests": [{"digest": "sha256:1", "Platform": {}}]}',
        '{"manifests": [{"digest": "sha256:1", "platform": {"Variant": ""}}]}',
        '{"annotations": {"x": "\\ud800"}}',
        "{" + " " * 300_000 + "}",
    ],
)
async def test_a_manifest_that_readers_take_differently_is_refused(tmp_path: Path, manifest: str) -> None:
    with pytest.raises(ImageError, match=r"manifest of image registry\.test/a:1 is invalid: "):
        await answering(tmp_path, manifest).digest(REFERENCE)


@pytest.mark.parametrize(
    "configuration",
    [
        '"config": {"volumes": {"/k8spilot/evil": {}}}',
        '"Config": {"Entrypoint": ["/evil"]}',
        '"config": {"Volumes": {"/k8spilot/evil": {}}}, "config": {}',
        '"config": {"Volumes": {"/k8spilot/evil": {}}, "Volumes": {}}',
        '"config": {"Volume\\u017f": {"/k8spilot/evil": {}}}',
        '"config": {"wor\\u212aingDir": "/evil"}',
        '"config": {"Labels": {"a": "1", "a": "2"}}',
    ],
)
async def test_a_configuration_that_readers_take_differently_is_refused(tmp_path: Path, configuration: str) -> None:
    text = f'{{"architecture": "amd64", "os": "linux", "rootfs": {{}}, {configuration}}}'
    with pytest.raises(ImageError, match=r"some parsers|twice"):
        await image_of(tmp_path, text)


async def test_labels_may_be_named_alike(tmp_path: Path) -> None:
    labels = {"Label": "1", "label": "2", "volumes": "3", "Config": "4"}
    text = {"architecture": "amd64", "os": "linux", "rootfs": {}, "config": {"Labels": labels, "Cmd": ["c"]}}
    assert (await image_of(tmp_path, json.dumps(text))).command == ("c",)


@pytest.mark.parametrize("config", ["5", '{"Entrypoint": 5}', '["a"]'])
async def test_a_configuration_of_another_shape_is_refused(tmp_path: Path, config: str) -> None:
    text = f'{{"architecture": "amd64", "rootfs": {{}}, "config": {config}}}'
    with pytest.raises(ImageError, match=r"corrupt|form"):
        await image_of(tmp_path, text)


async def test_a_client_that_cannot_be_started_says_nothing_about_the_image() -> None:
    with pytest.raises(RegistryUnreachable, match="cannot be started"):
        await Registry(program="/nonexistent").digest(Reference.parse("a"))


@pytest.mark.parametrize(
    "config",
    [
        '{"Entrypoint": "sh"}',
        '{"Cmd": [1]}',
        '{"Env": {"A": "b"}}',
        '{"Volumes": [["/a"]]}',
        '{"Env": ["A=\\ud800"]}',
        '{"Cmd": ' + "[" * 20_000 + "]" * 20_000 + "}",
    ],
)
async def test_a_configuration_of_another_shape_is_a_fault_of_the_image(tmp_path: Path, config: str) -> None:
    document = f'{{"architecture": "amd64", "os": "linux", "rootfs": {{}}, "config": {config}}}'
    with pytest.raises(ImageError, match="corrupt"):
        await answering(tmp_path, document).image(REFERENCE, "sha256:" + "0" * 64)


class Answering(Registry):
    """Has the manifest, but not the document that it names."""

    async def digest(self, reference: Reference) -> str:
        return f"sha256:{'0' * 64}"

    async def image(self, reference: Reference, digest: str) -> Image:
        raise RegistryUnreachable("Get https://evil.example/x: dial tcp 10.0.0.1:443: connect: connection refused")


async def test_a_manifest_that_names_another_host_does_not_close_the_slot_for_its_registry() -> None:
    with pytest.raises(ImageNotNow) as error:
        await ImageLookup(Answering(), ImagePolicy(), 0.1).find(REFERENCE)
    assert error.value.scope == "image"
