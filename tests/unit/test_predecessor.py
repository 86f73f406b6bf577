"""Processes that an earlier pilot container has left: which of them the next pilot ends."""

import os
from pathlib import Path

import pytest

from k8spilot.supervisor import predecessor
from k8spilot.supervisor.predecessor import end_predecessor

OWN = os.getuid()
MINE, BEFORE, PAYLOAD, SIDECAR = "0::/\n", "0::/../old\n", "0::/../payload\n", "0::/../sidecar\n"
ENGINE = "/opt/k8spilot/bin/python\0-P\0-m\0k8spilot.engine\0"
AGENT = "/opt/k8spilot/bin/python\0-P\0-m\0k8spilot.condor.agent\0"


class Proc:
    """A proc file system of a pod, and who was killed."""

    def __init__(self, folder: Path, *, own: str = MINE) -> None:
        self.folder = folder
        self.killed: list[int] = []
        self.immortal: set[int] = set()
        self.denied: set[int] = set()
        self._write("self", "k8spilot\0run\0", own)

    def add(self, pid: int, words: str, group: str, user: int = OWN, *, name: bytes = b"x", state: str = "S") -> None:
        """A process."""
        self._write(str(pid), words, group, user, name, state)

    def _write(
        self, folder: str, words: str, group: str, user: int = OWN, name: bytes = b"x", state: str = "S"
    ) -> None:
        here = self.folder / folder
        here.mkdir()
        (here / "cmdline").write_text(words)
        (here / "cgroup").write_text(group)
        facts = f"State:\t{state} (as it is)\nPPid:\t1\nUid:\t{user}\t101\t101\t101\n".encode()
        (here / "status").write_bytes(b"Name:\t" + name + b"\n" + facts)

    def kill(self, pid: int, _number: int) -> None:
        """As os.kill does with SIGKILL."""
        if pid in self.denied:
            raise PermissionError
        self.killed.append(pid)
        if pid not in self.immortal:
            (self.folder / str(pid)).replace(self.folder / f"gone-{pid}")


@pytest.fixture
def pod(tmp_path: Path) -> Proc:
    """A pod whose pilot container has been started again, while its runtime ended none of the processes before."""
    proc = Proc(tmp_path)
    proc.add(1, "/pause\0", "0::/../pause\n")
    proc.add(10, ENGINE, BEFORE)
    proc.add(11, "condor_master\0-f\0", BEFORE)
    proc.add(12, "/usr/sbin/condor_startd\0-f\0", BEFORE)
    proc.add(13, "/usr/bin/python3\0./plugin\0", BEFORE, 65534)
    proc.add(14, "", BEFORE, state="Z")
    proc.add(15, "", BEFORE)  # about to end
    proc.add(20, "/k8spilot/payload-init\0/k8spilot/socket\0", PAYLOAD)
    proc.add(21, "sleep\01000\0", PAYLOAD, 65534)
    proc.add(30, "/usr/sbin/cvmfs2\0", SIDECAR)
    proc.add(40, "/opt/k8spilot/bin/python\0/opt/k8spilot/bin/k8spilot\0run\0", MINE)
    return proc


def test_everything_of_the_container_before_is_killed_and_nothing_else(pod: Proc) -> None:
    assert end_predecessor(["engine", "condor"], pod.folder, pod.kill) == 5
    assert sorted(pod.killed) == [10, 11, 12, 13, 15]
    assert end_predecessor(["engine", "condor"], pod.folder, pod.kill) == 0


def test_nothing_is_killed_where_the_runtime_has_done_so_already(tmp_path: Path) -> None:
    proc = Proc(tmp_path)
    proc.add(20, "/k8spilot/payload-init\0", PAYLOAD)
    proc.add(40, ENGINE, MINE)
    proc.add(41, "condor_master\0-f\0", MINE)
    assert end_predecessor(["engine", "condor"], proc.folder, proc.kill) == 0


@pytest.mark.parametrize(("service", "killed"), [("engine", [10]), ("condor", [50, 51])])
def test_a_container_of_one_service_leaves_that_of_the_other_alone(
    service: str, killed: list[int], tmp_path: Path
) -> None:
    """HTCondor's own container, in the level restricted."""
    proc = Proc(tmp_path)
    proc.add(10, ENGINE, "0::/../pilot\n")
    proc.add(50, AGENT, "0::/../condor\n")
    proc.add(51, "condor_master\0-f\0", "0::/../condor\n")
    end_predecessor([service], proc.folder, proc.kill)
    assert sorted(proc.killed) == killed


def test_a_job_with_the_name_of_a_daemon_and_a_tool_of_htcondors_change_nothing(pod: Proc) -> None:
    pod.add(22, "condor_master\0", PAYLOAD, 65534)
    pod.add(50, "condor_status\0", "0::/../debug\n")
    end_predecessor(["engine", "condor"], pod.folder, pod.kill)
    assert sorted(pod.killed) == [10, 11, 12, 13, 15]


@pytest.mark.parametrize("kind", ["immortal", "denied"])
def test_processes_that_do_not_end_are_named(pod: Proc, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predecessor, "_KILL_SECONDS", 0.1)
    getattr(pod, kind).add(12)
    with pytest.raises(OSError, match=r"^processes 12 of an earlier pilot container do not end$"):
        end_predecessor(["engine", "condor"], pod.folder, pod.kill)


@pytest.mark.parametrize("name", [b"\xff", b"\rUid:\t0", b"\rxx", b"Uid:\t0"])
def test_no_name_of_a_jobs_process_keeps_a_pilot_from_its_start(pod: Proc, name: bytes) -> None:
    pod.add(23, "condor_master\0", PAYLOAD, 65534, name=name)
    end_predecessor(["engine", "condor"], pod.folder, pod.kill)
    assert sorted(pod.killed) == [10, 11, 12, 13, 15]
