"""The program that the startd runs as its starter: where HTCondor is not root, it sweeps, or no starter begins."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from k8spilot.common.pilot_api import NEXT_JOB
from k8spilot.condor.programs import assignments, script
from tests.simulator.programs import Programs
from tests.unit.test_condor_engine_get import engine

GROUP = 47002
HTCONDOR, JOB = 47001, 47003


def started(
    tmp_path: Path, engine: str, *arguments: str, is_root: bool = False, starter: str = "/bin/echo", **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Run what the startd runs for a job, with an engine that answers as a program does."""
    program = tmp_path / "starter"
    program.write_text(script("starter").read_text())
    values = {"starter": starter, "client": engine, "tidy": "./bin/tidy"}
    values |= {"slot": "slot1", "next_job": NEXT_JOB}
    values["rootless"] = "" if is_root else "yes"
    (tmp_path / "programs.settings").write_text(assignments(values))
    for slot, number, folder in (("slot1", 1, "slot"), ("slot2", 2, "slot-2"), ("slot1_2", 2, "slot-2")):
        of_slot = {
            "execute": str(tmp_path / folder),
            "slot_socket": f"{number}.sock",
            "docker_host": f"unix://{number}",
            "temporary": str(tmp_path / ("tmp" if number == 1 else "tmp-2")),
        }
        (tmp_path / f"{slot}.settings").write_text(assignments(of_slot))
    environment = {**os.environ, **variables}
    return subprocess.run(
        ["sh", program, *arguments], capture_output=True, text=True, check=False, env=environment, cwd=tmp_path
    )


@pytest.fixture
def leftovers(tmp_path: Path, programs: Programs) -> Path:
    (tmp_path / "bin").mkdir()
    shutil.copy(programs.tidy, tmp_path / "bin")
    (tmp_path / "slot/dir_77/scratch/deep").mkdir(parents=True)
    (tmp_path / "slot/dir_77.recover").touch()
    (tmp_path / "tmp/docker_config.77").mkdir(parents=True)
    (tmp_path / "tmp/docker_config.77/config.json").touch()
    (tmp_path / "tmp/link").symlink_to(tmp_path / "beside")
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside/file").touch()
    return tmp_path


def test_where_nobody_is_root_a_starter_finds_nothing_of_one_that_was_killed(leftovers: Path) -> None:
    assert started(leftovers, "true", "-f", "job").stdout == "-f job\n"
    assert [path.name for path in (leftovers / "slot").iterdir()] == ["dir_77.recover"]
    assert list((leftovers / "tmp").iterdir()) == []
    assert (leftovers / "beside/file").exists()


def test_a_slot_that_the_pilot_does_not_have_has_no_starter(tmp_path: Path) -> None:
    for name in ("slot3", "../slot1", "slot1@host"):
        assert started(tmp_path, "true", "-f", "-a", name, is_root=True, starter="/bin/true").returncode != 0


@pytest.mark.parametrize(
    ("arguments", "number"),
    [
        (("-f", "-a", "slot2", "10.0.0.1"), 2),
        (("-f", "-local-name", "slot_type_1", "-a", "slot1_2", "10.0.0.1"), 2),
        (("-f", "-a", "slot1"), 1),
        (("-f", "slot2"), 1),
        (("-classad",), 1),
    ],
)
def test_a_starter_has_its_slots_docker_socket_and_folder(
    tmp_path: Path, arguments: tuple[str, ...], number: int
) -> None:
    program = tmp_path / "environment"
    program.write_text('#!/bin/sh\necho "$DOCKER_HOST $_CONDOR_EXECUTE"\n')
    program.chmod(0o755)
    folder = tmp_path / ("slot" if number == 1 else "slot-2")
    said = started(tmp_path, "true", *arguments, is_root=True, starter=str(program)).stdout
    assert said == f"unix://{number} {folder}\n"


def test_a_starter_of_an_unknown_slot_does_not_run(tmp_path: Path) -> None:
    done = started(tmp_path, "true", "-a", "slot3", is_root=True)
    assert (done.returncode != 0, done.stdout) == (True, "")


@pytest.mark.parametrize(
    ("answer", "begins"), [(b"HTTP/1.0 200 OK\r\n\r\n", True), (b"HTTP/1.0 409 Conflict\r\n\r\n", False)]
)
def test_a_starter_begins_if_the_engine_of_its_slot_allows_it(
    tmp_path: Path, programs: Programs, answer: bytes, begins: bool
) -> None:
    with engine(tmp_path, answer) as asked:
        (tmp_path / "2.sock").symlink_to(asked.path)
        done = started(tmp_path, str(programs.engine_get), "-f", "-a", "slot1_2", is_root=True)
    assert (done.returncode == 0, done.stdout) == (begins, "-f -a slot1_2\n" if begins else "")
    assert [request.split()[1].decode() for request in asked.requests] == [NEXT_JOB]


def test_a_starter_waits_no_longer_than_five_minutes(tmp_path: Path) -> None:
    client = tmp_path / "client"
    client.write_text('#!/bin/sh\necho "$@" >words\n')
    client.chmod(0o755)
    assert started(tmp_path, str(client), "-f", is_root=True).returncode == 0
    assert (tmp_path / "words").read_text() == f"get 1.sock {NEXT_JOB} 300\n"


def test_without_the_engines_word_there_is_no_starter(leftovers: Path) -> None:
    answer = started(leftovers, "false", "-f")
    assert (answer.returncode, answer.stdout) == (1, "")


@pytest.mark.parametrize("program", ["exit 1", "kill -KILL $$"])
def test_where_nobody_can_look_for_what_is_left_there_is_no_starter(leftovers: Path, program: str) -> None:
    """As while no process can be started in the pod."""
    (leftovers / "find").write_text(f"#!/bin/sh\n{program}\n")
    (leftovers / "find").chmod(0o755)
    answer = started(leftovers, "true", "-f", PATH=f"{leftovers}:{os.environ['PATH']}")
    assert (answer.returncode, answer.stdout) == (1, "")


def test_where_htcondor_is_root_it_sweeps_nothing_which_the_engine_does(leftovers: Path) -> None:
    assert started(leftovers, "true", "-f", is_root=True).stdout == "-f\n"
    assert started(leftovers, "false", "-f", is_root=True).returncode == 1
    assert (leftovers / "slot/dir_77/scratch/deep").exists()
    assert (leftovers / "tmp/link").is_symlink()


@pytest.mark.parametrize("lost", ["starter", "client", "tidy"])
def test_without_its_settings_there_is_no_starter(leftovers: Path, lost: str) -> None:
    started(leftovers, "true", "-classad")
    settings = leftovers / "programs.settings"
    settings.write_text(
        "".join(line for line in settings.read_text().splitlines(keepends=True) if not line.startswith(f"{lost}="))
    )
    program = ["sh", str(leftovers / "starter"), "-f"]
    environment = {**os.environ, "starter": "/bin/echo", "client": "true", "tidy": "true"}
    done = subprocess.run(program, capture_output=True, text=True, check=False, env=environment, cwd=leftovers)
    assert (done.returncode != 0, done.stdout) == (True, "")


def test_a_starter_that_is_asked_what_it_can_sweeps_nothing(leftovers: Path) -> None:
    assert started(leftovers, "false", "-classad").stdout == "-classad\n"
    assert (leftovers / "slot/dir_77/scratch/deep").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes other users")
def test_what_a_lost_job_locked_keeps_the_next_one_away_until_its_user_has_opened_it(leftovers: Path) -> None:
    """The startd has tried to remove it, and has locked all else by that."""
    slot, scratch, deep = (leftovers / name for name in ("slot", "slot/dir_77/scratch", "slot/dir_77/scratch/deep"))
    (deep / "file").touch()
    for path in (slot, slot / "dir_77", scratch, leftovers / "tmp"):
        os.chown(path, HTCONDOR, GROUP if path == slot else HTCONDOR)
    for path in (leftovers, *leftovers.parents[:-2]):
        path.chmod(path.stat().st_mode | 0o011)
    for path in (slot / "dir_77", scratch):
        path.chmod(0o700)
    os.chown(deep, JOB, GROUP)
    started(leftovers, "true", "-classad")

    def start() -> int:
        command = ["sh", str(leftovers / "starter"), "-f"]
        return subprocess.run(
            command, user=HTCONDOR, group=HTCONDOR, extra_groups=[GROUP], check=False, cwd=leftovers
        ).returncode

    assert start() == 1
    subprocess.run(["chmod", "770", deep], user=JOB, group=JOB, extra_groups=[GROUP], check=True)
    assert start() == 0
    assert [path.name for path in slot.iterdir()] == ["dir_77.recover"]
