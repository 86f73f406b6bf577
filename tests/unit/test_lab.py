"""The lab's parts that need no machine of their own."""

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import psutil
import pytest

from lab import network, outages, processes, shell, streams
from lab.errors import LabError
from lab.images import digest_of
from lab.processes import Daemon, Daemons
from lab.progress import clock
from lab.settings import Settings

SAVED = """\
*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:DOCKER - [0:0]
:K8SPILOT-LAB - [0:0]
:KUBE-FORWARD - [0:0]
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -j K8SPILOT-LAB
-A FORWARD -j DOCKER
-A K8SPILOT-LAB -i k8spilot0 -j ACCEPT
-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
COMMIT
*mangle
:PREROUTING ACCEPT [0:0]
COMMIT
"""


def test_a_daemon_runs_again_after_an_interruption_that_came_while_a_fault_was_ending_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab: Any = SimpleNamespace(settings=replace(Settings.from_environment(), state=tmp_path))
    daemons = Daemons(lab.settings)
    daemons.start(Daemon("sleeper", ["/bin/sleep", "300"]))
    (first,) = daemons.living()
    interrupted = Mock(side_effect=[KeyboardInterrupt, [], []])
    monkeypatch.setattr(processes, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt), outages._ended(lab, "sleeper"):
        pytest.fail("the interruption is lost")
    monkeypatch.undo()
    try:
        (again,) = daemons.living()
        assert again.pid != first.pid
    finally:
        daemons.stop("sleeper")


def test_only_the_labs_rules_are_removed() -> None:
    assert network.removal_orders(SAVED).splitlines() == [
        "*filter",
        ":K8SPILOT-LAB - [0:0]",
        ":KUBE-FORWARD - [0:0]",
        '-D FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD',
        "-D FORWARD -j K8SPILOT-LAB",
        "-X K8SPILOT-LAB",
        "-X KUBE-FORWARD",
        "COMMIT",
    ]
    assert not network.removal_orders("*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n")


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.04, "0.0 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.6, "1:00 min"), (276, "4:36 min")]
)
def test_times_as_people_read_them(seconds: float, words: str) -> None:
    assert clock(seconds) == words


def test_the_key_of_an_image_names_contents_and_modes(tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    program = source / "program"
    program.write_text("a")
    first = digest_of(["x"], [source])
    (source / "__pycache__").mkdir()
    (source / "__pycache__/program.pyc").write_text("left out")
    assert digest_of(["x"], [source]) == first
    program.chmod(0o755)
    second = digest_of(["x"], [source])
    program.write_text("b")
    assert len({first, second, digest_of(["x"], [source]), digest_of(["y"], [source])}) == 4


def test_a_failure_is_one_sentence_with_the_programs_last_words(tmp_path: Path) -> None:
    script = "echo output; echo 'Error: no such thing' >&2; echo bye >&2; exit 3"
    with pytest.raises(LabError, match=r"^could not try: Error: no such thing$"):
        shell.run(["sh", "-c", script], what="try")
    log = tmp_path / "logs/try.log"
    with pytest.raises(LabError, match=rf"no such thing \(all of it: {log}\)$"):
        shell.run(["sh", "-c", script], what="try", log=log)
    with pytest.raises(LabError, match="there is no program `k8spilot-nothing`"):
        shell.run(["k8spilot-nothing"], what="try")
    with pytest.raises(LabError, match="did not end within"):
        shell.run(["sleep", "60"], what="try", timeout=0.05)


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("echo bye; exit 3", "has ended with status 3: bye"),
        ("echo bye; kill -ABRT $$", "has ended by SIGABRT: bye"),
        ("kill -ABRT $$", "has ended by SIGABRT: it said nothing"),
    ],
)
def test_a_daemon_that_has_ended_is_told_with_how_and_its_last_words(end: str, words: str, tmp_path: Path) -> None:
    daemons = Daemons(replace(Settings.from_environment(), state=tmp_path))
    daemons.start(Daemon("brief", ["sh", "-c", end]))
    deadline = time.monotonic() + 10
    while daemons.find("brief") is not None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(LabError, match=f"^brief {words}"):
        daemons.check("brief")
    daemons.stop("brief")


def test_a_daemon_is_found_after_the_machines_clock_was_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    daemons = Daemons(replace(Settings.from_environment(), state=tmp_path))
    daemons.start(Daemon("sleeper", ["sleep", "60"]))
    try:
        later = psutil.boot_time() + 29.0
        for module in ("psutil", "psutil._pslinux"):
            monkeypatch.setattr(f"{module}.boot_time", lambda: later)
        assert daemons.find("sleeper") is not None
        monkeypatch.setattr("lab.processes._BOOT", tmp_path / "boot")
        (tmp_path / "boot").write_text("another\n")
        assert daemons.find("sleeper") is None
    finally:
        monkeypatch.undo()
        daemons.stop("sleeper")


def test_the_labs_own_kubeconfig_is_no_foreign_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    own = Settings.from_environment()
    monkeypatch.setenv("KUBECONFIG", str(own.admin_kubeconfig))
    assert Settings.from_environment().kubeconfig is None
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    assert Settings.from_environment().kubeconfig == tmp_path / "config"


def test_who_follows_a_file_leaves_no_process_behind(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("word\n")
    stream = streams.Stream("bash", "-c", f'cd "{tmp_path}" && {streams._FOLLOW.format(files="log")}')
    deadline = time.monotonic() + 10
    while not list(stream.lines()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    far_end: list[psutil.Process] = []
    while not {"cat", "tail"} <= {one.name() for one in far_end}:  # a shell that has forked is a bash until its exec
        assert time.monotonic() < deadline
        far_end = psutil.Process(stream._process.pid).children(recursive=True)
    stream.close()
    gone, alive = psutil.wait_procs(far_end, timeout=5)
    assert (len(gone), alive) == (len(far_end), [])
