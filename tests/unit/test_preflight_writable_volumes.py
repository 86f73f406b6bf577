"""The folders that the pilot container writes to."""

import os
import stat
from pathlib import Path

import pytest

from k8spilot.common.errors import PreflightError
from k8spilot.preflight.writable_volumes import FOLDERS, make_fresh, read_only, shut_termination_log


def _container(root: Path, *mounted: str) -> Path:
    """A root with the four folders, some of them volumes of an earlier container; its mountinfo."""
    for path in FOLDERS:
        folder = root / path.relative_to("/")
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)
    table = root / "mountinfo"
    table.write_text("".join(f"30 20 0:1 / {root}{point} rw - ext4 /dev/x rw\n" for point in mounted))
    return table


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sets modes")
def test_volumes_are_as_in_a_new_container(tmp_path: Path) -> None:
    table = _container(tmp_path, "/run", "/run/secrets/token", "/var/lib/condor", "/var/lib/condor/execute")
    outside = tmp_path / "outside"
    outside.write_text("kept")
    for name in (
        "run/k8spilot/condor",
        "run/secrets/token",
        "run/secrets/left",
        "var/lib/condor/execute/job",
        "tmp/mine",
    ):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "run/link").symlink_to(outside)
    (tmp_path / "run/secrets/token/ca.crt").write_text("kept")
    make_fresh(tmp_path, table)
    assert {str(path.relative_to(tmp_path)) for path in (tmp_path / "run").rglob("*")} == {
        "run/secrets",
        "run/secrets/token",
        "run/secrets/token/ca.crt",
    }
    assert (tmp_path / "var/lib/condor/execute/job").is_dir()
    assert (tmp_path / "tmp/mine").is_dir()  # no volume, so it is as the image has it
    assert outside.read_text() == "kept"
    assert {path: _mode(tmp_path / path.relative_to("/")) for path in FOLDERS} == FOLDERS


def test_a_folder_that_cannot_be_emptied_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = _container(tmp_path, "/run")
    (tmp_path / "run/left").write_text("")

    def refuse(self: Path) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(PreflightError, match=r"run/left cannot be prepared \(Permission denied\); make /run an"):
        make_fresh(tmp_path, table)


def test_a_folder_that_an_image_does_not_have_is_not_told_as_read_only(tmp_path: Path) -> None:
    _container(tmp_path)
    (tmp_path / "var/lib/condor").rmdir()
    assert list(read_only(tmp_path)) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sets modes")
def test_the_termination_log_is_the_pilots_alone(tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    shut_termination_log(log)
    log.touch()
    log.chmod(0o666)
    shut_termination_log(log)
    assert _mode(log) == 0o600
