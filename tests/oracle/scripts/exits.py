"""Ends of runs: exit codes, signals, programs that are not there."""

from typing import Any

from tests.oracle.engines import JOB, Docker
from tests.oracle.scripts import Script, named, script

STATE = "{{.State.Status}} {{.State.Running}} {{.State.ExitCode}} {{.State.OOMKilled}} {{json .State.Error}}"


def _ended(docker: Docker, *command: str) -> tuple[Any, ...]:
    """Run a command, and return its end as the starter sees it: the client's end and the container's state."""
    docker.create(*command)
    ended = docker("start", "-a", docker.name)
    state = docker.state(STATE)
    waited = docker("wait", docker.name).told
    return ended.exact, state, waited


def _exit(code: int) -> Script:
    return lambda docker: _ended(docker, "sh", "-c", f"exit {code}")


def _death(name: str) -> Script:
    return lambda docker: _ended(docker, "sh", "-c", f"ulimit -c 0; kill -{name} $$; sleep 60")


for _code in (128, 254, 255):
    named(f"exit-{_code}")(_exit(_code))

for _name in ("KILL", "SEGV", "34"):
    named(f"death-by-{_name}")(_death(_name))


def _absent(program: str) -> Script:
    def run(docker: Docker) -> tuple[Any, ...]:
        (code, output, errors), *rest = _ended(docker, program, "argument")
        return code, output, program.encode() in errors, len(errors.splitlines()), *rest

    return run


for _what, _program in {"missing": "/no/such/program", "no-program": "/etc"}.items():
    named(f"program-{_what}")(_absent(_program))


@script
def program_missing_without_init(docker: Docker) -> Any:
    options = [one for one in JOB if one != "--init"]
    docker.create("/no/such/program", options=options)
    code = docker("start", "-a", docker.name).code
    return code, docker.state("{{.State.Status}} {{.State.ExitCode}}"), docker.state("{{json .State.Error}}") != '""'


@script
def no_command_at_all(docker: Docker) -> Any:
    return docker.create(image="pause").code != 0


@script
def background_process_that_holds_stdout(docker: Docker) -> Any:
    return docker.shell("(sleep 30; echo late) & echo main; exit 4").exact


@script
def background_process_in_a_session_of_its_own(docker: Docker) -> Any:
    return docker.shell("setsid sh -c 'trap \"\" TERM HUP; sleep 30; echo late' & echo main; exit 5").exact
