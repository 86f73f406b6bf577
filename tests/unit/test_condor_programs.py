"""The programs that HTCondor runs for k8spilot, as they are installed, and those that ask the engine of GPUs."""

import os
import subprocess
from pathlib import Path

import pytest

from k8spilot.common import pilot_api
from k8spilot.common.errors import PreflightError
from k8spilot.condor import programs
from k8spilot.condor.folders import Folders
from k8spilot.condor.programs import SCRIPTS, assignments, script
from k8spilot.docker.command_lines.create import check_extra
from tests.simulator.programs import Programs
from tests.unit.condor_reads import settings
from tests.unit.test_cli_status import engine


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folders:
    """HTCondor's folders, and its tool that reads the configuration, in which nothing is set."""
    found = Folders(tmp_path / "execute", tmp_path)
    found.private.mkdir(parents=True)
    (tmp_path / "condor_config_val").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "condor_config_val").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return found


def test_each_is_its_owners_alone_to_change_and_all_may_run_it(folders: Folders) -> None:
    programs.install(settings(), folders, rootless=False, check_extra=check_extra)
    for program in folders.programs:
        assert (program.stat().st_mode & 0o777, program.stat().st_uid) == (0o755, os.geteuid())
        assert program.read_text() == script(program.name).read_text()
    assert folders.program_settings.stat().st_mode & 0o777 == 0o644
    assert {path.name for path in SCRIPTS.iterdir()} == {f"{program.name}.sh" for program in folders.programs}
    assert folders.docker_client.readlink() == programs.DOCKER_CLIENT
    assert folders.docker_client_settings.stat().st_mode & 0o777 == 0o644


def test_docker_client_has_its_settings_beside_it(folders: Folders) -> None:
    (folders.root / "condor_config_val").write_text("#!/bin/sh\necho '\"--env=A=b'' c --init\"'\n")
    for rootless in ("yes", ""):
        programs.install(settings(), folders, rootless=bool(rootless), check_extra=lambda _: None)
        found = folders.docker_client_settings.read_text().split("\0")
        assert found[:2] == [rootless, str(programs.DOCKER)]
        assert found[2:] == ["--env=A=b", "c", "--init", ""]


def test_a_pilot_with_arguments_for_docker_that_the_engine_does_not_support_does_not_start(folders: Folders) -> None:
    (folders.root / "condor_config_val").write_text("#!/bin/sh\necho --privileged\n")
    with pytest.raises(PreflightError, match="does not support '--privileged' in DOCKER_EXTRA_ARGUMENTS"):
        programs.install(settings(), folders, rootless=False, check_extra=check_extra)


@pytest.mark.parametrize("rootless", [False, True])
def test_a_shell_reads_their_settings_whatever_a_value_has_in_it(folders: Folders, rootless: bool) -> None:
    known = settings(socket=folders.root / "it's a $(socket)", confine_starter=True)
    programs.install(known, folders, rootless=rootless, check_extra=check_extra)
    show = '. "$1"; . "$2"; printf "%s\\n" "$socket" "$next_job" "$starter" "$rootless" "$execute" "$slot_socket"'
    files = folders.program_settings, folders.slot_settings("slot1")
    said = subprocess.run(["sh", "-c", show, "-", *files], text=True, stdout=-1, check=True).stdout
    starter, yes = (programs.STARTER, "yes") if rootless else ("/usr/sbin/condor_starter", "")
    assert said.splitlines() == [
        str(known.socket), pilot_api.NEXT_JOB, str(starter), yes, str(known.execute / "slot"), str(known.socket)
    ]  # fmt: skip


def test_each_slot_of_several_has_settings_of_its_own(folders: Folders) -> None:
    programs.install(settings(payload_containers=3), folders, rootless=False, check_extra=check_extra)
    hosts = [folders.slot_settings(f"slot{number}").read_text().split("docker_host=")[1] for number in (1, 2, 3)]
    assert hosts == [f"unix:///run/k8spilot/htcondor-payload-{number}.sock\n" for number in (1, 2, 3)]


def run(programs: Programs, folder: Path, name: str, path: str) -> "subprocess.CompletedProcess[str]":
    """Run a program that asks the engine that listens at `path`."""
    program = folder / name
    program.write_text(script(name).read_text().replace("seconds=180", "seconds=0.3"))
    values = {"client": str(programs.engine_get), "socket": path}
    values |= {"inventory": pilot_api.INVENTORY, "gpu_monitor": pilot_api.GPU_MONITOR}
    (folder / "programs.settings").write_text(assignments(values))
    return subprocess.run(["sh", program], capture_output=True, text=True, check=False)


def test_htcondor_is_told_of_no_gpu_where_no_engine_answers(tmp_path: Path, programs: Programs) -> None:
    done = run(programs, tmp_path, "gpu-inventory", str(tmp_path / "none"))
    assert (done.returncode, done.stdout) == (0, "DetectedGPUs=0\n")
    assert "no answer from the engine" in done.stderr


@pytest.mark.parametrize("name", ["gpu-inventory", "gpu-monitor"])
def test_what_the_engine_says_of_gpus_is_printed(tmp_path: Path, programs: Programs, name: str) -> None:
    with engine(tmp_path, b"HTTP/1.0 200 OK\r\n\r\nDetectedGPUs=1\n") as path:
        done = run(programs, tmp_path, name, path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "DetectedGPUs=1\n", "")


def test_a_job_without_a_container_is_held_with_a_reason(tmp_path: Path) -> None:
    done = subprocess.run(["sh", script("no-container")], cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert "found no image for this one" in (tmp_path / ".worker_stdout").read_text()
