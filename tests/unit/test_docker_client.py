"""The program between HTCondor and docker's client, with a script in the client's place."""

import os
import shlex
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from k8spilot.condor.programs import assignments, script, split_arguments
from k8spilot.docker.serializers import NEVER

GONE = 'echo "error during connect: Post \\"http://x/containers/create\\": EOF" >&2; exit 1'


CONTAINER = "HTCJob1_0_slot1_PID7"
IMAGE = "registry.example.org/image:1"


def create(
    *command: str,
    variables: Sequence[str] = (),
    mounts: Sequence[str] = (),
    extra: Sequence[str] = (),
    image: str = IMAGE,
) -> list[str]:
    """What HTCondor writes for `docker create` (docker-api.cpp, createContainer)."""
    return [
        *("create", "--cpu-shares=100", "--memory=1024m", "--cap-drop=all", "--cap-add=SYS_PTRACE"),
        *("--security-opt", "no-new-privileges", "--init", "--name", CONTAINER, "--label=org.htcondorproject=True"),
        *("--log-driver", "none"),
        *(word for variable in variables for word in ("-e", variable)),
        *("--volume", "/execute/dir_7:/execute/dir_7", *mounts),
        *("--workdir", "/execute/dir_7/scratch", "--user", "65534:65534"),
        *("--group-add", "65534", "--hostname", "alice-1.0-lab", *extra, image, *command),
    ]


def installed(folder: Path, client: str, rootless: bool = False, extra: Sequence[str] = ()) -> Path:
    """Make it, with `client` as docker's own, which finds the number of its call in $calls."""
    own, lines = folder / "docker", folder / "docker-client"
    own.write_text(f'#!/bin/sh\necho "$*" >> {folder}/asked; calls=$(wc -l < {folder}/asked)\n{client}\n')
    lines.write_text(script("docker-client").read_text().replace("sleep 3", "sleep 0.01"))
    values = {"docker": str(own), "rootless": "yes" if rootless else "", "extra": shlex.join(extra)}
    (folder / "programs.settings").write_text(assignments(values))
    own.chmod(0o755)
    lines.chmod(0o755)
    return lines


def docker(
    folder: Path, client: str, *arguments: str, execute: Path | None = None, extra: Sequence[str] = ()
) -> "subprocess.CompletedProcess[str]":
    """Make it, and run it; `execute` is the slot's folder where HTCondor is not root."""
    return run(installed(folder, client, execute is not None, extra), *arguments, execute=execute)


def run(program: Path, *arguments: str, execute: Path | None = None) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "_CONDOR_EXECUTE": str(execute or "")}
    return subprocess.run([str(program), *arguments], capture_output=True, text=True, check=False, env=environment)


def asked(folder: Path) -> list[str]:
    return (folder / "asked").read_text().splitlines()


def test_a_pull_never_fails(tmp_path: Path) -> None:
    assert docker(tmp_path, "echo no >&2; exit 1", "pull", "-q", IMAGE).returncode == 0
    assert asked(tmp_path) == [f"pull -q {IMAGE}"]


def test_create_tells_of_a_refusal_in_the_engines_words(tmp_path: Path) -> None:
    answer = docker(tmp_path, 'echo "Error response from daemon: no" >&2; exit 125', *create("a b"))
    assert (answer.returncode, answer.stdout, answer.stderr) == (125, "", "Error response from daemon: no\n")
    assert asked(tmp_path) == [" ".join(("create", "--interactive", *create("a b")[1:]))]


@pytest.mark.parametrize("line", [create("x"), ["info"]], ids=["create", "info"])
def test_what_an_engine_that_died_was_asked_is_asked_of_the_next(tmp_path: Path, line: list[str]) -> None:
    answer = docker(tmp_path, f'[ "$calls" -ge 3 ] && {{ echo fine; exit 0; }}; {GONE}', *line)
    assert (answer.returncode, answer.stdout) == (0, "fine\n")
    assert len(asked(tmp_path)) == 3


def created(folder: Path) -> str:
    """The label that `create` gives a job with GPUs whose sandbox is `folder`."""
    line = create("x", variables=[f"_CONDOR_SCRATCH_DIR={folder}", "CUDA_VISIBLE_DEVICES=GPU-1,GPU-2"])
    assert docker(folder, "echo id", *line, execute=folder / "slot").stdout == "id\n"
    said = asked(folder)[-1].split()
    assert said[:3] == ["create", "--interactive", "--label"]
    assert said[4:] == line[1:]
    return said[3]


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


@pytest.mark.parametrize(
    ("ad", "wanted"),
    [
        ("RequestDisk = 65536\n", "65536"),
        ("RequestDisk = DiskUsage\n", ""),
        ("RequestDisk = 1234567890123456\n", ""),
        ("RequestCpus = 1\n", ""),
    ],
)
def test_the_jobs_own_ad_says_how_much_disk_it_asked_for(tmp_path: Path, ad: str, wanted: str) -> None:
    (tmp_path / ".job.ad").write_text(ad)
    line = create("x", variables=[f"_CONDOR_SCRATCH_DIR={tmp_path}"])
    assert docker(tmp_path, "echo id", *line, execute=tmp_path / "slot").stdout == "id\n"
    label = f"--label k8spilot.disk={wanted} " if wanted else ""
    assert asked(tmp_path)[-1] == f"create --interactive {label}{' '.join(line[1:])}"


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
    line = create("x", variables=[f"_CONDOR_SCRATCH_DIR={tmp_path}", "CUDA_VISIBLE_DEVICES=10000"])
    assert docker(tmp_path, "echo id", *line, execute=tmp_path / "slot").returncode == 0
    assert asked(tmp_path) == [" ".join(("create", "--interactive", *line[1:]))]


def test_an_engine_that_stays_away_is_told_of_at_last(tmp_path: Path) -> None:
    answer = docker(tmp_path, GONE, *create("x"))
    assert (answer.returncode, "EOF" in answer.stderr) == (1, True)
    assert len(asked(tmp_path)) == 10


def test_an_image_that_a_new_engine_does_not_know_has_no_wrong_architecture(tmp_path: Path) -> None:
    architecture = ("inspect", "--format", "{{.Architecture}}", IMAGE)
    assert docker(tmp_path, "echo amd64", *architecture).stdout == "amd64\n"
    answer = docker(tmp_path, "echo; echo 'Error: No such object: x' >&2; exit 1", *architecture)
    assert (answer.returncode, answer.stdout.strip(), answer.stderr) == (0, "", "")


PASSED_ON = {
    f"start -a {CONTAINER}": f"start --interactive -a {CONTAINER}",
    **{
        line: line
        for line in (
            *(
                f"pull -q {IMAGE}",
                f"rm -f -v {CONTAINER}",
                f"kill --signal 15 {CONTAINER}",
                f"pause {CONTAINER}",
                f"unpause {CONTAINER}",
            ),
            *("-v", "info", "container prune -f --filter=label=org.htcondorproject=True"),
        )
    },
}


@pytest.mark.parametrize("line", PASSED_ON)
def test_what_else_htcondor_asks_is_passed_on(tmp_path: Path, line: str) -> None:
    assert docker(tmp_path, "exit 0", *line.split()).returncode == 0
    assert asked(tmp_path) == [PASSED_ON[line]]


LABEL = "--label=org.htcondorproject=False"
OTHERS: dict[str, list[str]] = {
    "an image that is an option": create("--entrypoint=/bin/sh", IMAGE, image=f"{LABEL}:latest"),
    "an image that is an option with its value": create("--name=x", image="--name"),
    "an image that is nothing": create("x", image=""),
    "an image that is the next word": create("x", image=":latest"),
    "an option that HTCondor does not use": create("x", extra=["--privileged"]),
    "an option in another place": create("x", extra=["--memory=1m"]),
    "an option a second time": create("x", extra=["--hostname", "again"]),
    "another label": create("x", extra=[LABEL]),
    "another label in the label's place": [word.replace("True", "False") for word in create("x")],
    "no label": [word for word in create("x") if "label" not in word],
    "a name that is no job's": [word.replace("HTCJob", "x") for word in create("x")],
    "no name": [word for word in create("x") if word not in ("--name", CONTAINER)],
    "a variable of docker's client": create("x", variables=["DOCKER_HOST"]),
    "a file of variables": create("x", extra=["--env-file=/etc/passwd"]),
    "other options of security": [word.replace("no-new-privileges", "seccomp=/dev/zero") for word in create("x")],
    "a mount of another kind": create("x", mounts=["--mount", "type=tmpfs,target=/x"]),
    "a mount with an option": create("x", mounts=["--mount", "type=bind,source=/a,target=/a,bind-propagation=shared"]),
    "a mount with two": create("x", mounts=["--mount", "type=bind,source=/a,target=/a,readonly,consistency=x"]),
    "a name that is longer": [word.replace("PID7", "PID77777777") for word in create("x")],
    "a mount in another place": create("x", extra=["--mount", "type=bind,source=/data,target=/data"]),
    "no image": create(image="--rm"),
    "a line that ends with an option": create()[:-2],
    "nothing": [],
    "another command": ["run", IMAGE],
    "an option before the command": ["--host=tcp://x", *create("x")],
    "a container that is no job's": ["rm", "-f", "-v", "--volumes"],
    "a signal that is none": ["kill", "--signal", "-1", CONTAINER],
    "an inspection of an option": ["inspect", "--format", "{{.Architecture}}", "--type=image:latest"],
    "another inspection": ["inspect", "--format", "{{json .}}", IMAGE],
    "a session with another option": ["exec", "-i", "--privileged", CONTAINER, "sh"],
    "a session in another container": ["exec", "-i", "-e", "A=1", "x", "sh"],
}


@pytest.mark.parametrize("name", OTHERS)
def test_docker_is_not_asked_for(tmp_path: Path, name: str) -> None:
    answer = docker(tmp_path, "exit 0", *OTHERS[name])
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr.startswith("k8spilot: ")
    assert not (tmp_path / "asked").exists()


def test_an_image_that_is_an_option_is_not_pulled_and_no_reason_to_keep_the_slot(tmp_path: Path) -> None:
    assert docker(tmp_path, "exit 0", "pull", "-q", "--all-tags:latest").returncode == 0
    assert not (tmp_path / "asked").exists()


def test_the_words_of_a_job_are_its_own_wherever_they_begin_with_a_dash(tmp_path: Path) -> None:
    line = create("--name=x", "--", "-e", variables=["A=--label", "B=--privileged=x"])
    assert docker(tmp_path, "exit 0", *line).returncode == 0
    entry = [*create()[:-1], "--entrypoint", "--entrypoint", IMAGE, "--rm"]
    assert docker(tmp_path, "exit 0", *entry).returncode == 0
    assert asked(tmp_path) == [" ".join(("create", "--interactive", *one[1:])) for one in (line, entry)]


def test_what_htcondor_adds_for_some_jobs_has_its_place(tmp_path: Path) -> None:
    more = ["-p", "8080", "-p", "9000", "--pull", "always", "--shm-size", "1000", "--entrypoint", "/x"]
    assert docker(tmp_path, "exit 0", *create(extra=more)).returncode == 0
    host = [word for word in create("x") if word not in ("--hostname", "alice-1.0-lab")]
    host.insert(host.index(IMAGE), "--network=host")
    assert docker(tmp_path, "exit 0", *host).returncode == 0
    mounts = ["--mount", "type=bind,source=/data,target=/data,readonly", "--volume", "/x:/x"]
    assert docker(tmp_path, "exit 0", *create("x", mounts=mounts)).returncode == 0
    named = create("x")
    named.insert(named.index("--hostname"), "--network=bridge")
    assert docker(tmp_path, "exit 0", *named).returncode == 0
    named.insert(named.index("--hostname"), "--network=host")
    assert docker(tmp_path, "exit 0", *named).returncode == 1


def test_a_size_that_is_none_is_the_configurations_fault(tmp_path: Path) -> None:
    answer = docker(tmp_path, "exit 0", *create("x", extra=["--shm-size", "-1"]))
    assert (answer.returncode, answer.stderr) == (
        1,
        "k8spilot: DOCKER_SHM_SIZE in HTCondor's configuration is not a number of bytes ('-1')\n",
    )


def test_dockers_client_reads_no_configuration_of_a_users(tmp_path: Path) -> None:
    program = installed(tmp_path, f'echo "$DOCKER_CONFIG" >> {tmp_path}/asked')
    for folder in (tmp_path / "docker", Path("/dir_7/.docker")):
        environment = {**os.environ, "DOCKER_CONFIG": str(folder)}
        subprocess.run([program, "pull", "-q", IMAGE], env=environment, check=True)
    assert asked(tmp_path)[1::2] == [str(tmp_path / "docker"), str(tmp_path / "docker-of-senders")]


def test_the_operators_own_arguments_are_those_of_the_configuration_and_no_others(tmp_path: Path) -> None:
    own = ["--device", "/dev/x", "--env=A=b 'c'"]
    assert docker(tmp_path, "exit 0", *create("x", extra=own), extra=own).returncode == 0
    assert docker(tmp_path, "exit 0", *create("x", extra=[*own, "--shm-size", "5"]), extra=own).returncode == 0
    for others in ([], own[:2], [*own[:2], "--env=A=b"], [*own, "--rm"]):
        assert docker(tmp_path, "exit 0", *create("x", extra=others), extra=own).returncode == 1


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("--gpus all", ["--gpus", "all"]),
        ("\"--a 'b c' d''e 'it''s' \"\"q\"\"\"", ["--a", "b c", "de", "it's", '"q"']),
        ("\"'' x\"", ["", "x"]),
    ],
)
def test_the_operators_own_arguments_are_read_as_htcondor_reads_them(text: str, found: list[str]) -> None:
    assert split_arguments(text) == found


@pytest.mark.parametrize("text", ['"a', '"\'a"', '"'])
def test_arguments_with_a_quote_too_few_are_told_of(text: str) -> None:
    with pytest.raises(ValueError, match="quote"):
        split_arguments(text)


GROUP = 47002


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
    before = modes(execute)

    answer = docker(tmp_path, 'echo "Error response from daemon: no" >&2; exit 125', *create("x"), execute=execute)
    assert (answer.returncode, answer.stderr) == (125, "Error response from daemon: no\n")
    assert modes(execute) == before

    answer = docker(tmp_path, "echo id", *create("x"), execute=execute)
    assert (answer.returncode, answer.stdout) == (0, "id\n")
    after = modes(execute)
    name = sandbox.name
    assert {key: value for key, value in after.items() if key not in before or value != before[key]} == {
        f"{name}/scratch": (GROUP, after[f"{name}/scratch"][1] | 0o2070),
        f"{name}/scratch/deep": (GROUP, after[f"{name}/scratch/deep"][1] | 0o2070),
        f"{name}/scratch/deep/input": (GROUP, after[f"{name}/scratch/deep/input"][1] | 0o060),
    }


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
    return docker(folder, f"cat {folder}/seen", "inspect", "--format", LOOK, CONTAINER)


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
    answer = docker(tmp_path, "echo no such container >&2; exit 1", "inspect", "--format", LOOK, CONTAINER)
    assert (answer.returncode, answer.stdout, answer.stderr) == (1, "", "no such container\n")


def test_sessions_beside_a_job_are_few(tmp_path: Path) -> None:
    """Each has a client whose memory is the pilot's, and a job can have them begun without end."""
    (tmp_path / "sessions").mkdir()
    (tmp_path / "asked").touch()
    client = installed(tmp_path, f"while [ ! -e {tmp_path}/end ]; do sleep 0.01; done; exit 3")
    session = partial(run, client, "exec", "-i", "-e", "A=1", CONTAINER, "sh")
    with ThreadPoolExecutor(8) as pool:
        begun = [pool.submit(session) for _ in range(8)]
        while len(asked(tmp_path)) < 8:
            time.sleep(0.01)
        one_more = session()
        (tmp_path / "end").touch()
    message = "k8spilot: this job has 8 sessions already; end one of them first\n"
    assert (one_more.returncode, one_more.stderr) == (1, message)
    assert {one.result().returncode for one in begun} == {3}
    assert session().returncode == 3
