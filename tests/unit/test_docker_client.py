"""The lines of shell between HTCondor and docker's client, with a script in the client's place."""

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from k8spilot.condor.preparation import DOCKER_CLIENT, rootless_client, starter_program
from k8spilot.docker.views import NEVER

GONE = 'echo "error during connect: Post \\"http://x/containers/create\\": EOF" >&2; exit 1'


def installed(folder: Path, client: str, script: str = DOCKER_CLIENT) -> Path:
    """Make it, with `client` as docker's own, which finds the number of its call in $calls."""
    own, lines = folder / "docker", folder / "docker-client"
    own.write_text(f'#!/bin/sh\necho "$*" >> {folder}/asked; calls=$(wc -l < {folder}/asked)\n{client}\n')
    assert "docker=/usr/bin/docker" in script
    lines.write_text(script.replace("docker=/usr/bin/docker", f"docker={own}").replace("sleep 3", "sleep 0.01"))
    own.chmod(0o755)
    lines.chmod(0o755)
    return lines


def docker(
    folder: Path, client: str, *arguments: str, script: str = DOCKER_CLIENT
) -> "subprocess.CompletedProcess[str]":
    """Make it, and run it."""
    return run(installed(folder, client, script), *arguments)


def run(program: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([str(program), *arguments], capture_output=True, text=True, check=False)


def asked(folder: Path) -> list[str]:
    return (folder / "asked").read_text().splitlines()


def test_a_pull_never_fails(tmp_path: Path) -> None:
    assert docker(tmp_path, "echo no >&2; exit 1", "pull", "-q", "x").returncode == 0
    assert asked(tmp_path) == ["pull -q x"]


def test_create_tells_of_a_refusal_in_the_engines_words(tmp_path: Path) -> None:
    answer = docker(tmp_path, 'echo "Error response from daemon: no" >&2; exit 125', "create", "--name", "a b", "x")
    assert (answer.returncode, answer.stdout, answer.stderr) == (125, "", "Error response from daemon: no\n")
    assert asked(tmp_path) == ["create --interactive --name a b x"]


@pytest.mark.parametrize("verb", ["create", "info"])
def test_what_an_engine_that_died_was_asked_is_asked_of_the_next(tmp_path: Path, verb: str) -> None:
    answer = docker(tmp_path, f'[ "$calls" -ge 3 ] && {{ echo fine; exit 0; }}; {GONE}', verb, "x")
    assert (answer.returncode, answer.stdout) == (0, "fine\n")
    assert len(asked(tmp_path)) == 3


def created(folder: Path, *more: str) -> str:
    """The label that `create` gives a job with GPUs whose sandbox is `folder`."""
    arguments = ("-e", f"_CONDOR_SCRATCH_DIR={folder}", "-e", "CUDA_VISIBLE_DEVICES=GPU-1,GPU-2", *more)
    script = rootless_client(folder / "slot")
    assert docker(folder, "echo id", "create", *arguments, script=script).stdout == "id\n"
    words = asked(folder)[-1].split()
    assert words[:3] == ["create", "--interactive", "--label"]
    assert words[4:] == list(arguments)
    return words[3]


@pytest.mark.parametrize(
    ("ad", "wanted"),
    [
        ('Cmd = "x"\nRequestGPUs = 2\nA = 1\n', "2"),
        ("requestgpus=0\n", "0"),
        ("RequestGPUs \t= \t 3 \t\r\n", "3"),
        ("RequestCpus = 1\n", "0"),
        ("", "0"),
        ("RequestGPUs = ifThenElse(x = 1, 1, 2)\n", ""),
        ("RequestGPUs = -1\n", ""),
        ("RequestGPUs = 1.5\n", ""),
        ("RequestGPUs = 12345\n", ""),
        ("RequestGPUs = 1" + " " * 300_000 + "x\n", ""),
    ],
)
def test_the_jobs_own_ad_says_how_many_gpus_it_asked_for(tmp_path: Path, ad: str, wanted: str) -> None:
    (tmp_path / ".job.ad").write_text(ad)
    assert created(tmp_path) == f"k8spilot.gpus={wanted}"


def test_an_ad_that_is_none_is_not_read(tmp_path: Path) -> None:
    assert created(tmp_path) == "k8spilot.gpus="
    (tmp_path / "elsewhere").write_text("RequestGPUs = 1\n")
    (tmp_path / ".job.ad").symlink_to("elsewhere")
    assert created(tmp_path) == "k8spilot.gpus="
    (tmp_path / ".job.ad").unlink()
    (tmp_path / ".job.ad").mkdir()
    assert created(tmp_path) == "k8spilot.gpus="
    (tmp_path / ".job.ad").rmdir()
    os.mkfifo(tmp_path / ".job.ad")
    assert created(tmp_path) == "k8spilot.gpus=0"


def test_a_job_without_gpus_is_asked_nothing(tmp_path: Path) -> None:
    arguments = ("-e", f"_CONDOR_SCRATCH_DIR={tmp_path}", "-e", "CUDA_VISIBLE_DEVICES=10000")
    assert docker(tmp_path, "echo id", "create", *arguments, script=rootless_client(tmp_path / "slot")).returncode == 0
    assert asked(tmp_path) == [" ".join(("create", "--interactive", *arguments))]


def test_an_engine_that_stays_away_is_told_of_at_last(tmp_path: Path) -> None:
    answer = docker(tmp_path, GONE, "create", "x")
    assert (answer.returncode, "EOF" in answer.stderr) == (1, True)
    assert len(asked(tmp_path)) == 10


def test_an_image_that_a_new_engine_does_not_know_has_no_wrong_architecture(tmp_path: Path) -> None:
    architecture = ("inspect", "--format", "{{.Architecture}}", "x")
    assert docker(tmp_path, "echo amd64", *architecture).stdout == "amd64\n"
    answer = docker(tmp_path, "echo; echo 'Error: No such object: x' >&2; exit 1", *architecture)
    assert (answer.returncode, answer.stdout.strip(), answer.stderr) == (0, "", "")


def test_all_else_is_passed_on_as_it_is(tmp_path: Path) -> None:
    assert docker(tmp_path, "echo said; exit 7", "inspect", "--format", "{{.State.Pid}}", "x").returncode == 7
    assert docker(tmp_path, "exit 0", "start", "-a", "x").returncode == 0
    assert asked(tmp_path) == ["inspect --format {{.State.Pid}} x", "start --interactive -a x"]


GROUP = 47002
HTCONDOR, JOB = 47001, 47003


def modes(folder: Path) -> dict[str, tuple[int, int]]:
    found = sorted(path for path in folder.rglob("*") if not path.is_symlink())
    return {str(one.relative_to(folder)): (one.stat().st_gid, one.stat().st_mode & 0o7777) for one in found}


@pytest.mark.skipif(os.geteuid() != 0, reason="changes groups")
def test_where_nobody_is_root_a_sandbox_is_the_jobs_once_its_container_is_there(tmp_path: Path) -> None:
    execute = tmp_path / "slot"
    sandbox = execute / f"dir_{os.getpid()}"
    (sandbox / "scratch/deep").mkdir(parents=True, mode=0o700)
    (sandbox / "scratch/deep/input").write_text("x")
    (sandbox / "scratch/out").symlink_to("/etc/passwd")
    (sandbox / "own").mkdir(mode=0o700)
    os.chown(execute, -1, GROUP)
    before, script = modes(execute), rootless_client(execute)

    answer = docker(tmp_path, 'echo "Error response from daemon: no" >&2; exit 125', "create", "x", script=script)
    assert (answer.returncode, answer.stderr) == (125, "Error response from daemon: no\n")
    assert modes(execute) == before

    answer = docker(tmp_path, "echo id", "create", "x", script=script)
    assert (answer.returncode, answer.stdout) == (0, "id\n")
    after = modes(execute)
    name = sandbox.name
    assert {key: value for key, value in after.items() if key not in before or value != before[key]} == {
        f"{name}/scratch": (GROUP, after[f"{name}/scratch"][1] | 0o2070),
        f"{name}/scratch/deep": (GROUP, after[f"{name}/scratch/deep"][1] | 0o2070),
        f"{name}/scratch/deep/input": (GROUP, after[f"{name}/scratch/deep/input"][1] | 0o060),
    }


def started(tmp_path: Path, engine: str, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run what the startd runs for a job where HTCondor is not root, with an engine that answers as a program does."""
    program = tmp_path / "starter"
    words = {"python": engine, "program": "ask.py", "socket": "docker.sock"}
    program.write_text(starter_program(Path("/bin/echo"), words, [tmp_path / "slot", tmp_path / "tmp"]))
    environment = {**os.environ, **variables}
    return subprocess.run(["sh", program, *arguments], capture_output=True, text=True, check=False, env=environment)


@pytest.fixture
def leftovers(tmp_path: Path) -> Path:
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
        return subprocess.run(command, user=HTCONDOR, group=HTCONDOR, extra_groups=[GROUP], check=False).returncode

    assert start() == 1
    subprocess.run(["chmod", "770", deep], user=JOB, group=JOB, extra_groups=[GROUP], check=True)
    assert start() == 0
    assert [path.name for path in slot.iterdir()] == ["dir_77.recover"]


@pytest.mark.parametrize(
    "question",
    [
        ("images", "--format", "{{.Repository}}:{{.Tag}} {{.ID}} {{.Size}}"),
        ("inspect", "--format", "{{.Id}} {{.Metadata.LastTagTime}}"),
        ("tag", "registry.example.org/image:1", "registry.example.org/image:1"),
    ],
)
def test_what_has_one_answer_before_every_job_starts_no_client(tmp_path: Path, question: tuple[str, ...]) -> None:
    answer = docker(tmp_path, "echo called", *question)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
    assert not (tmp_path / "asked").exists()


def test_an_image_that_is_named_is_inspected(tmp_path: Path) -> None:
    answer = docker(tmp_path, "echo called", "inspect", "--format", "{{.Id}} {{.Metadata.LastTagTime}}", "sha256:1")
    assert answer.stdout == "called\n"


LOOK = """ContainerId="{{.Id}}"
Pid={{.State.Pid}}
Name="{{.Name}}"
Running={{.State.Running}}
ExitCode={{.State.ExitCode}}
StartedAt="{{.State.StartedAt}}"
FinishedAt="{{.State.FinishedAt}}"
DockerError={{json .State.Error}}
OOMKilled="{{.State.OOMKilled}}\""""
"""What HTCondor asks once `docker start` has ended (docker-api.cpp, DockerAPI::inspect)."""


def seen(code: int, started: str, error: str = "") -> str:
    facts = {"Pid": 0, "Running": "false", "ExitCode": code, "StartedAt": started, "FinishedAt": NEVER}
    text = LOOK.replace("{{.Id}}", "x").replace("{{.Name}}", "/x").replace("{{.State.OOMKilled}}", "false")
    for name, value in facts.items():
        text = text.replace(f"{{{{.State.{name}}}}}", str(value))
    return text.replace("{{json .State.Error}}", f'"{error}"')


def looked_at(folder: Path, what: str) -> "subprocess.CompletedProcess[str]":
    (folder / "seen").write_text(f"{what}\n")
    return docker(folder, f"cat {folder}/seen", "inspect", "--format", LOOK, "HTCJob1_0")


def test_a_job_that_nobody_started_has_not_ended_well(tmp_path: Path) -> None:
    answer = looked_at(tmp_path, seen(0, NEVER))
    assert (answer.returncode, answer.stdout) == (1, "")
    assert "goes back to the queue" in answer.stderr


@pytest.mark.parametrize(
    "what", [seen(0, "2026-11-22T04:28:40Z"), seen(3, "2026-11-22T04:28:40Z"), seen(137, NEVER), seen(128, NEVER, "no")]
)
def test_how_any_other_job_ended_is_told_as_it_is(tmp_path: Path, what: str) -> None:
    answer = looked_at(tmp_path, what)
    assert (answer.returncode, answer.stdout) == (0, f"{what}\n")


def test_a_container_that_is_not_there_stays_unknown(tmp_path: Path) -> None:
    answer = docker(tmp_path, "echo no such container >&2; exit 1", "inspect", "--format", LOOK, "x")
    assert (answer.returncode, answer.stdout, answer.stderr) == (1, "", "no such container\n")


def test_sessions_beside_a_job_are_few(tmp_path: Path) -> None:
    """Each has a client whose memory is the pilot's, and a job can have them begun without end."""
    (tmp_path / "sessions").mkdir()
    (tmp_path / "asked").touch()
    client = installed(tmp_path, f"while [ ! -e {tmp_path}/end ]; do sleep 0.01; done; exit 3")
    session = partial(run, client, "exec", "-i", "x", "sh")
    with ThreadPoolExecutor(8) as pool:
        begun = [pool.submit(session) for _ in range(8)]
        while len(asked(tmp_path)) < 8:
            time.sleep(0.01)
        one_more = session()
        (tmp_path / "end").touch()
    words = "k8spilot: there are 8 sessions beside this job already; end one of them first\n"
    assert (one_more.returncode, one_more.stderr) == (1, words)
    assert {one.result().returncode for one in begun} == {3}
    assert session().returncode == 3
