"""What skopeo's words mean."""

import hashlib
import json
from pathlib import Path

import pytest

from k8spilot.errors import ImageError, RegistryUnreachable
from k8spilot.model.reference import Reference
from k8spilot.registry import Registry

REFERENCE = Reference.parse("registry.test/a:1")
DEFINITE = [
    "reading manifest 1 in registry.test/a: manifest unknown: manifest unknown",
    "reading manifest 1 in registry.test/a: name unknown: repository name not known to registry",
    "reading manifest 1 in docker.io/library/a: errors:\\ndenied: requested access to the resource is denied",
    "unable to retrieve auth token: invalid username/password: unauthorized: authentication required",
    'choosing image instance: no image found in manifest list for architecture amd64, variant \\"\\", OS linux',
]
TRANSIENT = [
    'pinging container registry registry.test: Get \\"https://a.test/v2/\\": dial tcp 192.0.2.1:443: i/o timeout',
    "pinging container registry registry.test: dial tcp: connect: connection refused",
    "received unexpected HTTP status: 503 Service Unavailable",
    "toomanyrequests: You have reached your pull rate limit",
    "tls: failed to verify certificate: x509: certificate signed by unknown authority",
]


def registry(folder: Path, script: str, credentials: Path | None = None) -> Registry:
    """One that asks a script in place of skopeo; the script's arguments are kept."""
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


@pytest.mark.parametrize("words", DEFINITE)
async def test_that_there_is_no_such_image_is_told_in_skopeos_words(tmp_path: Path, words: str) -> None:
    with pytest.raises(ImageError) as refused:
        await failing(tmp_path, words).digest(REFERENCE)
    told = str(refused.value)
    assert told.startswith("image registry.test/a:1 cannot be had: Error parsing image name: ")
    assert "level=fatal" not in told
    assert "\n" not in told


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
    text = '{"schemaVersion": 2}\n\n'
    assert await answering(tmp_path, text).digest(REFERENCE) == f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    assert (tmp_path / "asked").read_text() == "inspect --raw docker://registry.test/a:1\n"


async def test_another_manifest_than_the_one_asked_for_is_corrupt(tmp_path: Path) -> None:
    reference = Reference.parse("registry.test/a@sha256:" + "0" * 64)
    with pytest.raises(ImageError, match="corrupt"):
        await answering(tmp_path, "{}").digest(reference)


async def test_the_configuration_becomes_an_image_and_is_asked_for_once(tmp_path: Path) -> None:
    config = {
        "architecture": "arm64",
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": []},
        "created": "2026-01-01T00:00:00Z",
        "config": {"Entrypoint": ["/e"], "Cmd": ["c"], "Env": ["A=1"], "WorkingDir": "/w", "User": "1000"},
    }
    asked = answering(tmp_path, json.dumps(config))
    images = [await asked.image(REFERENCE, "sha256:1") for _ in range(2)]
    assert images[0] == images[1]
    image = images[0]
    assert (image.architecture, image.entrypoint, image.command) == ("arm64", ("/e",), ("c",))
    assert (image.environment, image.directory, image.user) == (("A=1",), "/w", "1000")
    assert (tmp_path / "asked").read_text() == "inspect --config --raw docker://registry.test/a@sha256:1\n"


@pytest.mark.parametrize("more", [{}, {"config": None}])
async def test_an_image_may_say_little(tmp_path: Path, more: dict[str, None]) -> None:
    text = {"architecture": "amd64", "rootfs": {"type": "layers"}, **more}
    image = await answering(tmp_path, json.dumps(text)).image(REFERENCE, "sha256:1")
    assert (image.entrypoint, image.command, image.directory) == ((), (), "")


async def test_a_configuration_that_is_not_json_is_corrupt(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="not JSON"):
        await answering(tmp_path, "<html>").image(REFERENCE, "sha256:1")


@pytest.mark.parametrize("text", ["{}", "[]", '{"name": "a chart", "version": "1"}', '{"architecture": "amd64"}'])
async def test_an_artifact_that_is_no_image_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ImageError, match="some other artifact"):
        await answering(tmp_path, text).image(REFERENCE, "sha256:1")


async def test_credentials_are_passed_on(tmp_path: Path) -> None:
    secret = tmp_path / "auth.json"
    await registry(tmp_path, "echo {}", secret).digest(REFERENCE)
    assert f"--authfile {secret}" in (tmp_path / "asked").read_text()


async def test_of_an_index_the_manifests_for_this_platform_are_known(tmp_path: Path) -> None:
    platforms = [("amd64", "1"), ("s390x", "2"), ("amd64", "3")]
    entries = [
        {"digest": f"sha256:{mark}", "platform": {"architecture": one, "os": "linux"}} for one, mark in platforms
    ]
    index = json.dumps({"schemaVersion": 2, "manifests": [*entries, {"digest": "sha256:4"}]})
    configuration = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": {}})
    (tmp_path / "index").write_text(index)
    (tmp_path / "configuration").write_text(configuration)
    asked = registry(tmp_path, f'[ "$2" = --config ] && exec cat {tmp_path}/configuration; cat {tmp_path}/index')
    digest = await asked.digest(REFERENCE)
    assert (await asked.image(REFERENCE, digest)).manifests == ("sha256:1", "sha256:3")


@pytest.mark.parametrize("manifest", ["[]", "nothing", '{"manifests": [{"digest": "sha256:1"}]}'])
async def test_what_is_no_index_has_no_other_manifests(tmp_path: Path, manifest: str) -> None:
    assert (await answering(tmp_path, manifest).digest(REFERENCE)).startswith("sha256:")


@pytest.mark.parametrize(
    "text", ['{"manifests": 5}', '{"manifests": [5, {"platform": "x"}, {"digest": 1}]}', "[]", "x"]
)
async def test_a_manifest_of_any_shape_has_a_digest(tmp_path: Path, text: str) -> None:
    assert (await answering(tmp_path, text).digest(REFERENCE)).startswith("sha256:")


@pytest.mark.parametrize("config", ["5", '{"Entrypoint": 5}', '["a"]'])
async def test_a_configuration_of_another_shape_is_corrupt(tmp_path: Path, config: str) -> None:
    text = f'{{"architecture": "amd64", "rootfs": {{}}, "config": {config}}}'
    with pytest.raises(ImageError, match="corrupt"):
        await answering(tmp_path, text).image(REFERENCE, "sha256:1")


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
