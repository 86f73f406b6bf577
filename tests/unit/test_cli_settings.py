"""`k8spilot settings`, `version` and `manifests`."""

import io
import json
import re
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

import k8spilot
from k8spilot.cli import manifests
from k8spilot.cli.main import app
from k8spilot.settings import variables
from k8spilot.settings.reference import in_force
from lab.settings import CHECKOUT

ENVIRONMENT = {"NUM_CPUS": "x", "MEMORY": "", "PAYLOAD_MEMORY_MB": "512", "TOKEN": "s3cret", "glidein_site": "Site"}


def found(environment: dict[str, str]) -> dict[str, tuple[str, str]]:
    return {one.name: (one.value, one.source) for one in in_force(environment)}


def test_every_setting_has_its_value_and_where_it_comes_from() -> None:
    values = found({**ENVIRONMENT, "K8SPILOT_IMAGE_MAP": "^/a$ => docker://b", "K8SPILOT_SCRATCH_FOLDERS": "/x,/y"})
    assert values.keys() == variables().keys()
    assert values["GLIDEIN_Site"] == ("Site", "environment, as glidein_site")
    assert values["MEMORY"] == ("512", "PAYLOAD_MEMORY_MB")
    assert values["K8SPILOT_VACATE_SECONDS"] == ("60", "default")
    assert values["K8SPILOT_IMAGE_MAP"] == ("^/a$ => docker://b", "environment")
    assert values["K8SPILOT_SCRATCH_FOLDERS"] == ("/x,/y", "environment")
    assert values["POOL"] == ("", "default")


def test_a_secret_is_not_shown_and_an_invalid_value_is_told() -> None:
    result = CliRunner().invoke(app, ["settings"], env=ENVIRONMENT)
    assert result.exit_code == 0
    assert "s3cret" not in result.stdout
    assert re.search(r"^TOKEN=\(secret, not shown\)$", result.stdout, re.MULTILINE)
    assert re.search(r"^NUM_CPUS=x\n.*\n    INVALID: it must be an integer", result.stdout, re.MULTILINE)


def test_machines_get_json_with_what_is_ignored() -> None:
    result = CliRunner().invoke(app, ["settings", "--json"], env={**ENVIRONMENT, "CVMFSEXEC_REPOS": "a"})
    answer = json.loads(result.stdout)
    assert {"name", "value", "default", "source", "meaning", "fault"} == answer["settings"][0].keys()
    assert [words for words in answer["ignored"] if words.startswith("CVMFSEXEC_REPOS")]


def test_some_settings_can_be_chosen() -> None:
    result = CliRunner().invoke(app, ["settings", "pool", "USE_CCB"])
    assert re.findall(r"^(\w+)", result.stdout, re.MULTILINE) == ["POOL", "USE_CCB"]
    wrong = CliRunner().invoke(app, ["settings", "K8SPILOT_VACATE"])
    assert "did you mean K8SPILOT_VACATE_SECONDS" in str(wrong.exception)


def test_the_settings_of_a_manifest_are_shown_before_there_is_a_pod(tmp_path: Path) -> None:
    text = (CHECKOUT / "manifests/pilot-pod.yaml").read_text()
    data = "---\nkind: ConfigMap\nmetadata: {name: k8spilot-pilot}\ndata: {GLIDEIN_Site: There}\n"
    (tmp_path / "all.yaml").write_text(f"{text}\n{data}")
    result = CliRunner().invoke(app, ["settings", "GLIDEIN_Site", "MEMORY", "--manifest", str(tmp_path / "all.yaml")])
    assert "GLIDEIN_Site=There\n    from: manifest" in result.stdout
    assert "MEMORY=1024\n    from: PAYLOAD_MEMORY_MB" in result.stdout


def test_version_is_a_command_too() -> None:
    assert CliRunner().invoke(app, ["version"]).stdout == f"k8spilot {k8spilot.__version__}\n"


def test_the_manifests_come_with_the_program_and_an_overlay_needs_no_checkout(tmp_path: Path) -> None:
    archive = io.BytesIO()
    manifests.write(archive)
    again = io.BytesIO()
    manifests.write(again)
    assert archive.getvalue() == again.getvalue()
    archive.seek(0)
    with tarfile.open(fileobj=archive) as members:
        members.extractall(tmp_path, filter="data")
    for folder in manifests.FOLDERS:
        files = {one.relative_to(CHECKOUT): one.read_bytes() for one in (CHECKOUT / folder).rglob("*.yaml")}
        assert files
        assert [name for name, text in files.items() if (tmp_path / "k8spilot" / name).read_bytes() != text] == []


def test_one_version_is_named_everywhere() -> None:
    version = k8spilot.__version__.removesuffix(".dev0")
    files = [*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/**/*.md"), *CHECKOUT.glob("overlays/*/kustomization.yaml")]
    tags = {
        (str(path.relative_to(CHECKOUT)), tag)
        for path in files
        for tag in re.findall(r"k8spilot:(\d[\w.]*\w)|newTag: \"?([\w.]+)", path.read_text())
    }
    assert len(tags) >= 4
    assert {name: tag for name, found in tags if (tag := "".join(found)) != version} == {}
    assert f"what {version} will be" in (CHECKOUT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("folder", ["manifests", "components", "overlays"])
def test_the_image_has_the_manifests(folder: str) -> None:
    assert f"COPY {folder} {folder}" in (CHECKOUT / "Dockerfile").read_text()
    assert f"!{folder}\n" in (CHECKOUT / ".dockerignore").read_text()
