"""The emulated machine's parts that need no machine: images picked out of a registry, and the factor of time limits."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab import patience
from lab.vm import registry_files


class Storage:
    """A registry's storage with images of one layer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._root = folder / registry_files.ROOT

    def blob(self, content: bytes) -> str:
        """Store a blob; return its digest."""
        name = hashlib.sha256(content).hexdigest()
        self._write(f"blobs/sha256/{name[:2]}/{name}/data", content)
        return f"sha256:{name}"

    def image(self, name: str, tag: str, layer: bytes) -> None:
        """Store an image as a registry does, behind an index."""
        config, data = self.blob(b"config of " + layer), self.blob(layer)
        for one in (config, data):
            self._write(f"repositories/{name}/_layers/sha256/{one[7:]}/link", one.encode())
        manifest = self.blob(json.dumps({"config": {"digest": config}, "layers": [{"digest": data}]}).encode())
        index = self.blob(json.dumps({"manifests": [{"digest": manifest}]}).encode())
        for one in (manifest, index):
            self._write(f"repositories/{name}/_manifests/revisions/sha256/{one[7:]}/link", one.encode())
        self._write(f"repositories/{name}/_manifests/tags/{tag}/current/link", index.encode())
        self._write(f"repositories/{name}/_manifests/tags/{tag}/index/sha256/{index[7:]}/link", index.encode())

    def _write(self, path: str, content: bytes) -> None:
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    def files(self) -> set[Path]:
        """Return all files of the storage."""
        return {path.relative_to(self.folder) for path in self.folder.rglob("*") if path.is_file()}


def test_the_files_of_an_image_are_all_that_it_needs_and_nothing_of_another(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    storage.image("team/tool", "one", b"layer")
    needed = storage.files()
    storage.image("team/tool", "two", b"other layer")
    storage.image("base", "latest", b"base")
    assert set(registry_files.of_image(tmp_path, "team/tool", "one")) == needed
    assert registry_files.names(tmp_path) == ["base", "team/tool"]
    assert registry_files.tags(tmp_path, "team/tool") == ["one", "two"]
    assert {path.name for path in registry_files.are_tags(needed)} == {"link"}
    assert len(registry_files.are_tags(needed)) == 2


def test_an_image_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    assert not list(registry_files.of_image(tmp_path, "base", "latest"))
    assert not registry_files.tags(tmp_path, "base")


def _limit(factor: str) -> subprocess.CompletedProcess[str]:
    script = "from lab import node, patience; print(node.PATIENCE_S, patience.scaled(2))"
    environment = {**os.environ, patience.VARIABLE: factor}
    return subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_one_factor_scales_limits() -> None:
    usual, slow = (_limit(factor).stdout.split() for factor in ("", "8"))
    assert [float(word) for word in slow] == [8 * float(word) for word in usual]


@pytest.mark.slow
@pytest.mark.parametrize("factor", ["0.5", "-1", "inf", "nan", "fast"])
def test_a_factor_that_makes_no_sense_is_refused(factor: str) -> None:
    refused = _limit(factor)
    assert (refused.returncode, refused.stdout, len(refused.stderr.splitlines())) == (1, "", 1)
    assert patience.VARIABLE in refused.stderr
