"""Input of containers: arguments, environment, folders, entrypoints, standard input, terminals."""

from typing import Any

from tests.oracle.engines import JOB, Docker
from tests.oracle.scripts import script

ODD = ("", " ", "a b", "'", '"', "$HOME", "*", "new\nline", "tab\t", "grün", "日本", "-x", "a=b", "\\n")


@script
def arguments_and_environment(docker: Docker) -> Any:
    values = [word for number, value in enumerate(ODD) for word in ("-e", f"ODD{number}={value}")]
    show = "".join(f'printf "[%s]" "$ODD{number}"; ' for number in range(len(ODD)))
    script_ = f'printf "[%s]" "$@"; {show}printf "%s" "${{ABSENT-none}}"'
    return docker.run("sh", "-c", script_, "sh", *ODD, options=[*JOB, *values, "-e", "ABSENT"]).exact


@script
def variables_that_nobody_has_set(docker: Docker) -> Any:
    done = docker.run("env")
    return sorted(line.partition(b"=")[0] for line in done.output.splitlines())


@script
def workdir_that_is_missing(docker: Docker) -> Any:
    return docker.run("pwd", options=[*JOB, "--workdir", "/no/such/folder"]).exact


@script
def identity(docker: Docker) -> Any:
    return docker.shell(
        "id -u; id -g; id -G; umask; grep -E '^(Cap(Inh|Prm|Eff|Amb)|NoNewPrivs)' /proc/self/status"
    ).exact


@script
def capabilities_that_could_be_had(docker: Docker) -> Any:
    return docker.shell("grep CapBnd /proc/self/status").output.split()[1]


@script
def what_the_image_says(docker: Docker) -> Any:
    return docker.run("pwd", image=ENTRYPOINT).exact, docker.run(image=ENTRYPOINT).exact


@script
def entrypoint_that_is_overridden(docker: Docker) -> Any:
    options = [*JOB, "--entrypoint", "/usr/bin/printenv", "-e", "MARK=own"]
    return docker.run("MARK", image=ENTRYPOINT, options=options).exact


@script
def start_without_interactive(docker: Docker) -> Any:
    docker.create("sh", "-c", "cat; echo end")
    return docker("start", "-a", docker.name, given=b"one\ntwo").exact


@script
def start_with_interactive(docker: Docker) -> Any:
    docker.create("sh", "-c", "cat; echo end", options=[*JOB, "--interactive"])
    return docker("start", "-a", "-i", docker.name, given=b"one\ntwo").exact


@script
def interactive_start_of_what_was_not_created_so(docker: Docker) -> Any:
    docker.create("sh", "-c", "cat; echo end")
    return docker("start", "-a", "-i", docker.name, given=b"one\ntwo").exact


@script
def megabytes_of_input(docker: Docker) -> Any:
    docker.create("sh", "-c", "wc -c", options=[*JOB, "--interactive"])
    return docker("start", "-a", "-i", docker.name, given=b"x" * 5_000_000).exact


@script
def input_that_nobody_reads(docker: Docker) -> Any:
    docker.create("sh", "-c", "exec <&-; sleep 0.2; exit 3", options=[*JOB, "--interactive"])
    return docker("start", "-a", "-i", docker.name, given=b"x" * 1_000_000).code


@script
def run_and_remove(docker: Docker) -> Any:
    command = ("run", "--rm=true", "--name", docker.name, docker.image(), "sh", "-c", "echo out; echo err >&2; exit 37")
    return docker(*command).exact, docker("inspect", docker.name).told


@script
def run_with_input(docker: Docker) -> Any:
    return docker("run", "--rm", "-i", "--name", docker.name, docker.image(), "cat", given=b"a\0b\xff").exact


@script
def run_on_a_terminal(docker: Docker) -> Any:
    docker("pull", "-q", docker.image())
    show = "tty; stty size; echo ready; read line; echo got $line; exit 8"
    return docker.terminal("run", "--rm", "-ti", "--name", docker.name, docker.image(), "sh", "-c", show, given=b"x\n")


ENTRYPOINT = "oracle-entrypoint"
"""An image with ENTRYPOINT, CMD, ENV and WORKDIR."""
