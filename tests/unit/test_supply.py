"""Contents of the image: locked, listed, and the same when it is built again."""

import os
import re
import sys
import tomllib
from pathlib import Path

import pytest

from k8spilot.cli.main import PAYLOAD_INIT
from k8spilot.condor.programs import DOCKER_CLIENT, ENGINE_GET, STARTER
from k8spilot.payload.scrub.from_pilot import TIDY_OF_ROOT
from k8spilot.supervisor.plan import PROGRAM
from lab.settings import DEBIAN_SUITE
from lab.supply import compared, debian, python

CHECKOUT = Path(__file__).parents[2]
STATUS = """Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.42-5

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1
"""


def _locked(name: str) -> dict[str, str]:
    """Name -> its block in a file of requirements."""
    blocks = re.split(r"\n(?=\S)", (CHECKOUT / name).read_text())
    return {block.partition("==")[0]: block for block in blocks if "==" in block}


def _wanted(requirements: list[str]) -> set[str]:
    return {re.split(r"[><=~!\[; ]", one)[0].lower() for one in requirements}


def test_all_that_the_image_installs_from_python_is_locked_with_hashes() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    needed, extras = project["project"]["dependencies"], project["project"]["optional-dependencies"]
    for name, wanted in (
        ("requirements.txt", [*needed, *extras["pilot"]]),
        ("requirements-provisioner.txt", [*needed, *extras["provisioner"]]),
        ("requirements-build.txt", project["build-system"]["requires"]),
    ):
        locked = _locked(name)
        assert _wanted(wanted) <= locked.keys()
        for block in locked.values():
            assert re.match(r"[a-z0-9._-]+==\S+ \\\n", block)
            assert "--hash=sha256:" in block


def test_the_version_of_python_is_the_same_wherever_it_is_named() -> None:
    named = re.search(r"^PYTHON_VERSION := (\S+)$", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)
    assert named is not None
    version = named[1]
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={version}"
    assert f"Programming Language :: Python :: {version}" in project["classifiers"]
    assert f"{sys.version_info.major}.{sys.version_info.minor}" == version
    release = re.search(r"^release=(\S+)", (CHECKOUT / "tools/image-python.sh").read_text(), re.MULTILINE)
    assert release is not None
    assert f"\nARG BASE=debian:{release[1]}-slim\n" in (CHECKOUT / "Dockerfile").read_text()
    assert release[1] == DEBIAN_SUITE


def test_the_image_is_built_of_what_is_locked() -> None:
    text = re.sub(r"\\\n", " ", (CHECKOUT / "Dockerfile").read_text())
    installs = [line for line in re.split(r"&&|\n", text) if re.search(r"\bpip\b.* install ", line)]
    assert installs
    for line in installs:
        assert "--require-hashes" in line or ("--no-index" in line and "--no-deps" in line), line


@pytest.mark.parametrize("program", [PROGRAM, ENGINE_GET, DOCKER_CLIENT, STARTER, TIDY_OF_ROOT, PAYLOAD_INIT], ids=str)
def test_the_image_has_each_program_at_its_path(program: Path) -> None:
    (line,) = (
        one for one in (CHECKOUT / "Dockerfile").read_text().splitlines() if "--target-directory /installed/opt" in one
    )
    words = line.split()
    assert words[words.index("--target-directory") + 1].removeprefix("/installed") == str(program.parent)
    assert f"/{program.name}" in words


def test_an_sbom_has_what_dpkg_and_pip_have_installed(tmp_path: Path) -> None:
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").write_text(STATUS)
    folder = tmp_path / "opt/k8spilot/lib/python3.14/site-packages/typing_extensions-4.16.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.4\nName: typing_extensions\nVersion: 4.16.0\n\nText: a\n")
    assert [str(one.purl) for one in (*debian(tmp_path), *python(tmp_path))] == [
        "pkg:deb/debian/libc6@2.42-5?arch=amd64&distro=forky",
        "pkg:pypi/typing-extensions@4.16.0",
    ]


def test_two_trees_are_compared_in_all_that_an_image_has(tmp_path: Path) -> None:
    for name in ("one", "other"):
        tree = tmp_path / name
        tree.mkdir()
        for file in ("same", "content", "mode", "time"):
            (tree / file).write_text("a")
        (tree / "link").symlink_to(name)
        for path in tree.iterdir():
            os.utime(path, (0, 0), follow_symlinks=False)
    (tmp_path / "other/content").write_text("b")
    os.utime(tmp_path / "other/content", (0, 0))
    (tmp_path / "other/mode").chmod(0o600)
    os.utime(tmp_path / "other/time", (0, 9))
    (tmp_path / "other/more").mkdir()
    assert compared(tmp_path / "one", tmp_path / "other") == {
        "content": ["content"],
        "link": ["target"],
        "mode": ["mode"],
        "more": ["is in one alone"],
        "time": ["time"],
    }
