"""The command line: exit statuses and where errors are told."""

import os
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from k8spilot.cli import main


@pytest.fixture
def termination_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    log = tmp_path / "termination-log"
    log.touch()
    monkeypatch.setattr(main, "TERMINATION_LOG", log)
    return log


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["k8spilot", *arguments])
    with pytest.raises(SystemExit) as caught:
        main.main()
    return caught.value.code


def test_version_is_the_distributions(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"k8spilot {version('k8spilot')}\n"


def test_bad_settings_are_told_to_people_and_to_the_kubelet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], termination_log: Path
) -> None:
    monkeypatch.setenv("NUM_CPUS", "many")
    assert call(monkeypatch, "run") == 2
    assert capsys.readouterr().err.startswith("k8spilot: NUM_CPUS is 'many', but ")
    assert termination_log.read_text().startswith("NUM_CPUS is 'many', but ")


def test_of_a_long_message_the_kubelet_gets_the_beginning(
    monkeypatch: pytest.MonkeyPatch, termination_log: Path
) -> None:
    monkeypatch.setenv("NUM_CPUS", "ü" * 5000)
    assert call(monkeypatch, "run") == 2
    message = termination_log.read_bytes()
    assert 4090 < len(message) <= 4096
    assert message.decode().startswith("NUM_CPUS is 'ü")


def test_install_puts_payload_init_into_the_exchange(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = tmp_path / "payload-init"
    source.write_bytes(b"program")
    (tmp_path / "tidy").write_bytes(b"its helper")
    assert call(monkeypatch, "install", "--source", str(source), "--exchange", str(tmp_path)) == 0
    assert (tmp_path / "bin/payload-init").read_bytes() == b"program"
    assert (tmp_path / "bin/tidy").read_bytes() == b"its helper"
    assert (tmp_path / "bin/kubelet").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "bin/kubelet/termination-log").read_bytes() == b""
    assert (
        call(monkeypatch, "install", "--source", str(source), "--exchange", str(tmp_path)) == 0
    )  # in a pod's second life


@pytest.mark.skipif(os.geteuid() != 0, reason="writes /dev/termination-log")
def test_install_says_what_it_cannot_copy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert call(monkeypatch, "install", "--source", str(tmp_path / "none"), "--exchange", str(tmp_path)) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_missing_package_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], termination_log: Path
) -> None:
    monkeypatch.setitem(sys.modules, "asyncinotify", None)
    for name in [name for name in sys.modules if name.startswith(("k8spilot.preflight", "k8spilot.cli.run"))]:
        monkeypatch.delitem(sys.modules, name)
    assert call(monkeypatch, "run") == 1
    sentence = "the Python package of asyncinotify is missing: use the pilot's image, or install k8spilot[pilot]"
    assert capsys.readouterr().err == f"k8spilot: {sentence}\n"
    assert termination_log.read_text() == sentence
