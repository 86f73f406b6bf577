"""Removal of what jobs leave, and of nothing else."""

import os
import signal
import subprocess
import sys
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest

from k8spilot.common.errors import PilotError
from k8spilot.common.proc import own_cgroup
from k8spilot.payload.scrub import from_pilot as module
from k8spilot.payload.scrub.from_pilot import Leftovers
from tests.simulator.programs import Programs

NOBODY_ELSE = 46998
"""A uid that no process has, so that its System V IPC and /dev/shm are nobody's."""


def test_all_that_is_in_the_scratch_folders_goes_and_they_stay(tmp_path: Path, programs: Programs) -> None:
    (tmp_path / "a/b/c").mkdir(parents=True)
    (tmp_path / "a/b/file").write_text("x")
    (tmp_path / ".hidden").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a").chmod(0)
    Leftovers([tmp_path], NOBODY_ELSE, [], tidy=programs.tidy).clean()
    assert list(tmp_path.iterdir()) == []


def make_chain(folder: Path, depth: int) -> None:
    place = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=place)
        below = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = below
    os.close(place)


@pytest.mark.slow
def test_a_tree_of_any_depth_goes(tmp_path: Path, programs: Programs) -> None:
    make_chain(tmp_path, 5000)
    Leftovers([tmp_path], NOBODY_ELSE, [], tidy=programs.tidy).clean()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_what_takes_longer_than_there_is_time_for_goes_in_the_end(
    tmp_path: Path, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_chain(tmp_path, 20000)
    monkeypatch.setattr(module, "SCRUB_SECONDS", 0.2)
    scratch = Leftovers([tmp_path], NOBODY_ELSE, [], tidy=programs.tidy)
    with pytest.raises(PilotError, match="the slot takes no job"):
        scratch.clean()
    for _ in range(1000):
        with suppress(PilotError):
            scratch.clean()
            break
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_any_number_of_files_goes_in_memory_that_does_not_grow(tmp_path: Path, programs: Programs) -> None:
    for number in range(20000):
        (tmp_path / f"file {number}").touch()
    tracemalloc.start()
    try:
        Leftovers([tmp_path], NOBODY_ELSE, [], tidy=programs.tidy).clean()
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert list(tmp_path.iterdir()) == []
    assert most < 512 * 1024


def test_links_are_removed_and_not_followed(tmp_path: Path, programs: Programs) -> None:
    kept, scratch = tmp_path / "kept", tmp_path / "scratch"
    kept.mkdir()
    (kept / "file").write_text("x")
    (scratch / "deep").mkdir(parents=True)
    for link in (scratch / "link", scratch / "deep/link"):
        link.symlink_to(kept)
    (scratch / "dangling").symlink_to("/nowhere")
    Leftovers([scratch], NOBODY_ELSE, [], tidy=programs.tidy).clean()
    assert list(scratch.iterdir()) == []
    assert (kept / "file").read_text() == "x"


@pytest.mark.skipif(os.geteuid() != 0, reason="giving files away needs root")
def test_only_the_jobs_own_goes_where_others_have_files_too(tmp_path: Path, programs: Programs) -> None:
    mine, others = tmp_path / "mine", tmp_path / "others"
    for path in (mine, others):
        path.write_text("x")
    os.chown(mine, NOBODY_ELSE, -1)
    Leftovers([], NOBODY_ELSE, [tmp_path], tidy=programs.tidy).clean()
    assert list(tmp_path.iterdir()) == [others]


@pytest.mark.skipif(os.geteuid() != 0, reason="giving files away needs root")
def test_attributes_of_the_folders_themselves_go(tmp_path: Path, programs: Programs) -> None:
    try:
        os.setxattr(tmp_path, "user.left", b"x")
    except OSError:
        pytest.skip("this file system has no attributes")
    Leftovers([tmp_path], NOBODY_ELSE, [], tidy=programs.tidy).clean()
    assert os.listxattr(tmp_path) == []


def test_sandboxes_that_are_left_go_when_they_are_to_and_their_folder_stays(tmp_path: Path, programs: Programs) -> None:
    sandboxes, outside = tmp_path / "slot", tmp_path / "outside"
    (sandboxes / "dir_7/scratch/locked").mkdir(parents=True)
    (sandboxes / "dir_7/scratch/locked/file").write_text("x")
    (sandboxes / "dir_7/scratch/link").symlink_to(outside)
    (sandboxes / "dir_7.recover").touch()
    outside.mkdir()
    (outside / "file").write_text("x")
    (sandboxes / "dir_7/scratch/locked").chmod(0o000 if os.geteuid() == 0 else 0o700)
    scratch = Leftovers([], NOBODY_ELSE, [], sandboxes=sandboxes, tidy=programs.tidy)
    scratch.clean()
    assert len(list(sandboxes.iterdir())) == 2, "the next job's sandbox is there when this is called again"
    scratch.remove_sandboxes()
    assert [path.name for path in sandboxes.iterdir()] == ["dir_7.recover"], "HTCondor's own note of a container"
    assert (outside / "file").read_text() == "x"
    Leftovers([], NOBODY_ELSE, []).remove_sandboxes()


def test_a_sandbox_that_cannot_be_removed_closes_the_slot(tmp_path: Path) -> None:
    (tmp_path / "dir_7").mkdir()
    with pytest.raises(PilotError, match=r"cannot be removed .* the slot takes no job"):
        Leftovers([], NOBODY_ELSE, [], tidy=Path("/bin/false"), sandboxes=tmp_path).remove_sandboxes()


@pytest.mark.skipif(os.geteuid() != 0, reason="giving files away needs root")
def test_what_a_job_locked_is_its_users_again_and_nothing_else_changes(tmp_path: Path, programs: Programs) -> None:
    sandbox, outside = tmp_path / "sandbox", tmp_path / "outside"
    deep = sandbox / "locked/deep"
    deep.mkdir(parents=True)
    (deep / "-file").write_text("x")
    (deep / "program").write_text("x")
    for path in (outside, sandbox / "others"):
        path.write_text("x")
        path.chmod(0)
    os.chown(outside, NOBODY_ELSE, -1)
    (sandbox / "link").symlink_to(outside)
    for path, mode in ((deep / "-file", 0), (deep / "program", 0o550), (deep, 0), (deep.parent, 0o100)):
        os.chown(path, NOBODY_ELSE, -1)
        path.chmod(mode)
    for folder in (tmp_path, *tmp_path.parents[:-2]):  # pytest's own are for root alone
        folder.chmod(folder.stat().st_mode | 0o011)
    Leftovers([], NOBODY_ELSE, [], sandboxes=sandbox, tidy=programs.tidy).unlock()
    seen = [path.stat().st_mode & 0o777 for path in (deep.parent, deep, deep / "-file", deep / "program")]
    assert seen == [0o700, 0o700, 0o600, 0o550]
    assert [path.stat().st_mode & 0o777 for path in (outside, sandbox / "others")] == [0, 0]


def test_what_cannot_be_unlocked_in_time_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNLOCK_SECONDS", 0.1)
    slow = tmp_path / "tidy"
    slow.write_text("#!/bin/sh\nexec sleep 9\n")
    slow.chmod(0o755)
    with pytest.raises(PilotError, match="outputs in locked folders may be lost"):
        Leftovers([], os.geteuid(), [], sandboxes=tmp_path, tidy=slow).unlock()


def test_a_folder_that_is_not_there_has_nothing_in_it(tmp_path: Path, programs: Programs) -> None:
    Leftovers([tmp_path / "missing"], NOBODY_ELSE, [tmp_path / "missing, too"], tidy=programs.tidy).clean()


def test_what_cannot_be_removed_closes_the_slot(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(PilotError, match=r"cannot be removed .* the slot takes no job"):
        Leftovers([tmp_path], NOBODY_ELSE, [], tidy=Path("/bin/false")).clean()


MULTIPLIES = "import os, time\nos.setresuid(*3 * [%d])\nwhile os.fork(): time.sleep(60)\ntime.sleep(60)"


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes other users")
@pytest.mark.parametrize("cgroup", [own_cgroup(), "of another container"])
def test_processes_of_the_jobs_account_are_ended_and_no_others(cgroup: str, programs: Programs) -> None:
    ours = subprocess.Popen([sys.executable, "-c", MULTIPLIES % NOBODY_ELSE])
    others = subprocess.Popen(["sleep", "60"])
    try:
        while f"Uid:\t{NOBODY_ELSE}" not in Path(f"/proc/{ours.pid}/status").read_text():
            time.sleep(0.01)
        Leftovers([], NOBODY_ELSE, [], tidy=programs.tidy).clean()
        assert ours.poll() is None
        Leftovers([], NOBODY_ELSE, [], cgroup=cgroup, tidy=programs.tidy).clean()
        assert (ours.wait(10), others.poll()) == (-signal.SIGKILL, None)
    finally:
        for process in (ours, others):
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="a namespace of processes needs root")
@pytest.mark.parametrize(("cgroup", "lives"), [("of the pilot", True), (own_cgroup(), False)])
def test_the_first_process_of_another_container_is_not_ended(cgroup: str, lives: bool, programs: Programs) -> None:
    """The process is payload-init: its parent is outside of the pod's processes, which the kernel shows as 0."""
    pod = subprocess.Popen(["unshare", "--pid", "--mount-proc", "--fork", "sleep", "60"])
    enter = ["nsenter", "--target", "", "--pid", "--mount", "--"]
    try:
        while not (inside := Path(f"/proc/{pod.pid}/task/{pod.pid}/children").read_text().split()):
            time.sleep(0.01)
        while Path(f"/proc/{inside[0]}/comm").read_text() != "sleep\n":
            time.sleep(0.01)
        enter[2] = inside[0]
        become = f"import os, time\nos.setresuid(*3 * [{NOBODY_ELSE}])\nprint(flush=True)\ntime.sleep(60)"
        first = subprocess.Popen([*enter, sys.executable, "-c", become], stdout=subprocess.PIPE)
        assert first.stdout is not None
        first.stdout.readline()
        clean = (
            "from pathlib import Path; from k8spilot.payload.scrub.from_pilot import Leftovers; "
            f"Leftovers([], {NOBODY_ELSE}, [], cgroup={cgroup!r}, tidy=Path({str(programs.tidy)!r})).clean()"
        )
        subprocess.run([*enter, sys.executable, "-c", clean], check=True)
        assert (first.poll() is None) is lives
    finally:
        subprocess.run([*enter, "kill", "-KILL", "-1"], check=False)
        pod.kill()
        pod.wait()
        first.communicate()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's memory needs root")
def test_system_v_memory_semaphores_and_queues_go(programs: Programs) -> None:
    uid = NOBODY_ELSE + 1
    program = (
        "import ctypes, os\n"
        f"os.setresuid({uid}, {uid}, {uid})\n"
        "libc = ctypes.CDLL(None)\n"
        "made = [libc.shmget(0, 4096, 0o1600), libc.semget(0, 3, 0o1600), libc.msgget(0, 0o1600)]\n"
        "assert -1 not in made\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert [len(_ipc_of(uid, kind)) for kind in ("shm", "sem", "msg")] == [1, 1, 1]
    Leftovers([], uid, [], tidy=programs.tidy).clean()
    assert [len(_ipc_of(uid, kind)) for kind in ("shm", "sem", "msg")] == [0, 0, 0]


def _ipc_of(uid: int, kind: str) -> list[str]:
    """Identifiers of what the user has (proc_sysvipc(5)), other than memory that goes with the last process."""
    names, *rows = [line.split() for line in Path("/proc/sysvipc", kind).read_text().splitlines()]
    found = [dict(zip(names, row, strict=False)) for row in rows]
    return [one[names[1]] for one in found if one["uid"] == str(uid) and not int(one["perms"], 8) & 0o1000]


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's memory needs root")
def test_memory_that_is_removed_already_and_still_in_use_is_no_trouble(programs: Programs) -> None:
    uid = NOBODY_ELSE + 1
    program = (
        "import ctypes, os\n"
        f"os.setresuid({uid}, {uid}, {uid})\n"
        "libc = ctypes.CDLL(None); libc.shmat.restype = ctypes.c_void_p\n"
        "one = libc.shmget(0, 4096, 0o1600); assert libc.shmat(one, None, 0) != -1\n"
        "assert libc.shmctl(one, 0, None) == 0\n"
        "print(one, flush=True); input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        identifier = process.stdout.readline().strip()
        rows = [line.split() for line in Path("/proc/sysvipc/shm").read_text().splitlines()]
        assert identifier in [row[1] for row in rows]
        assert _ipc_of(uid, "shm") == []
        Leftovers([], uid, [], tidy=programs.tidy).clean()
        process.communicate("\n")
