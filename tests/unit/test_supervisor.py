"""The supervisor with shell scripts in the places of the engine and HTCondor."""

import json
import marshal
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from k8spilot.supervisor import program, supervisor

Start = Callable[[str | None, str | None], "subprocess.Popen[bytes]"]

ENGINE = "trap 'exit 0' TERM; echo $K8SPILOT_ENGINE_DEATHS >> engines; while :; do sleep 0.02; done"
CONDOR = "trap 'echo term >> said; exit 0' TERM; trap 'exit 0' QUIT; echo $$ > condor; while :; do sleep 0.02; done"


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts a supervisor of two scripts, whose working folder is the test's."""
    monkeypatch.chdir(tmp_path)
    with ExitStack() as cleanup:
        yield lambda engine, condor: cleanup.enter_context(_kept(engine, condor))


@contextmanager
def _kept(engine: str | None, condor: str | None) -> Iterator["subprocess.Popen[bytes]"]:
    scripts = {"engine": engine, "condor": condor}
    plan = {
        name: {"argv": ["sh", "-c", text], "env": dict(os.environ), "sockets": 2 if name == "engine" else 0}
        for name, text in scripts.items()
        if text is not None
    }
    file = Path("plan")
    file.write_bytes(marshal.dumps({**plan, "sockets": 2}))
    # As cli/run.py leaves it: the plan at 3, the sockets after it.
    shell = f'exec 3<plan 4<plan 5<plan; exec "{sys.executable}" -IS "{program()}"'
    with subprocess.Popen(["sh", "-c", shell], stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                for child in psutil.Process(process.pid).children(recursive=True):
                    with suppress(psutil.NoSuchProcess):  # a script's `sleep` ends by itself
                        child.kill()
                process.kill()


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def lines(name: str) -> list[str]:
    return Path(name).read_text().splitlines() if Path(name).exists() else []


def kill(pattern: str, number: int, parent: int) -> None:
    found = [one for one in psutil.Process(parent).children() if any(pattern in word for word in one.cmdline())]
    assert len(found) == 1
    found[0].send_signal(number)


def test_an_engine_that_dies_is_started_again_and_htcondor_lives_on(start: Start) -> None:
    process = start(ENGINE, CONDOR)
    eventually(lambda: lines("engines") == ["0"] and lines("condor"))
    kill("engines", signal.SIGKILL, process.pid)
    eventually(lambda: lines("engines") == ["0", "1"])
    kill("engines", signal.SIGSEGV, process.pid)
    eventually(lambda: lines("engines") == ["0", "1", "2"])
    assert psutil.pid_exists(int(lines("condor")[0]))
    process.terminate()
    assert process.wait(10) == 0
    assert lines("said") == ["term"]
    assert b"SIGKILL" in (process.stderr.read() if process.stderr else b"")


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a process namespace")
def test_an_end_that_the_kubelet_asks_for_is_no_success_of_a_job_that_owns_the_pod(tmp_path: Path) -> None:
    plan = {"engine": None, "condor": {"argv": ["sh", "-c", CONDOR], "env": dict(os.environ), "sockets": 0}}
    (tmp_path / "plan").write_bytes(marshal.dumps({**plan, "sockets": 2}))
    script = f'exec 3<plan 4<plan 5<plan; exec "{sys.executable}" -IS "{program()}"'
    pod = ["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", script]
    with subprocess.Popen(pod, cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        eventually((tmp_path / "condor").exists)
        (inside,) = psutil.Process(process.pid).children()
        inside.terminate()
        assert process.wait(10) == supervisor.TOLD


def test_the_engine_outlives_htcondor_at_the_end(start: Start) -> None:
    process = start(
        "trap 'test -e gone && echo after > engine; exit 0' TERM; while :; do sleep 0.02; done",
        "trap 'sleep 0.3; touch gone; exit 0' TERM; touch ready; while :; do sleep 0.02; done",
    )
    eventually(Path("ready").exists)
    process.terminate()
    assert process.wait(10) == 0
    assert lines("engine") == ["after"]


def test_a_second_sigterm_makes_htcondor_end_fast(start: Start) -> None:
    process = start(ENGINE, "trap : TERM; trap 'touch fast; exit 0' QUIT; touch ready; while :; do sleep 0.02; done")
    eventually(Path("ready").exists)
    process.terminate()
    time.sleep(0.2)
    assert process.poll() is None
    process.terminate()
    assert process.wait(10) == 0
    assert Path("fast").exists()


def test_that_htcondor_has_nothing_more_to_do_is_a_reason_to_end_but_not_to_hurry(start: Start) -> None:
    process = start(
        ENGINE,
        "trap 'touch term; sleep 0.5; exit 0' TERM; trap 'touch fast; exit 0' QUIT; touch ready; "
        "while :; do sleep 0.02; done",
    )
    eventually(Path("ready").exists)
    for _ in range(2):
        process.send_signal(supervisor.DONE)
        eventually(Path("term").exists)
    assert process.wait(10) == 0
    assert not Path("fast").exists()


@pytest.mark.parametrize(("said", "told"), [(0, 0), (44, 44), (99, 0)], ids=["ended", "failed", "drained"])
def test_htcondors_exit_status_is_the_containers(start: Start, said: int, told: int) -> None:
    assert start(ENGINE, f"sleep 0.2; exit {said}").wait(10) == told


def test_an_engine_that_has_seen_the_end_of_its_pod_ends_htcondor(start: Start) -> None:
    process = start(f"sleep 0.2; exit {supervisor.GONE}", CONDOR)
    assert process.wait(10) == 0
    assert lines("said") == ["term"]


def test_an_engine_that_dies_in_the_end_is_started_again_for_htcondor(start: Start) -> None:
    process = start(ENGINE, "trap 'touch told; sleep 1; exit 0' TERM; touch ready; while :; do sleep 0.02; done")
    eventually(lambda: lines("engines") == ["0"] and Path("ready").exists())
    process.terminate()
    eventually(Path("told").exists)
    kill("engines", signal.SIGKILL, process.pid)
    eventually(lambda: lines("engines") == ["0", "1"])
    assert process.wait(10) == 0


def status_of(engine: str, condor: str, changes: str) -> int:
    """The exit status of a supervisor that has other numbers, or an engine of another kind.

    It is a process of its own: the signals that it waits for would go to another thread of this one, and be lost.
    """
    program = f"""
import os, signal, sys
from k8spilot.supervisor import program, supervisor
Engine = supervisor.Child
{changes}
engine = Engine("engine", ["sh", "-c", sys.argv[1]], dict(os.environ))
condor = supervisor.Child("condor", ["sh", "-c", sys.argv[2]], dict(os.environ))
signal.pthread_sigmask(signal.SIG_BLOCK, supervisor._SIGNALS)
sys.exit(supervisor.Supervisor(engine, condor).run())
"""
    return subprocess.run([sys.executable, "-c", program, engine, condor], timeout=30, check=False).returncode


REFUSED_ONCE = """
class Engine(supervisor.Child):
    tries = 0

    def start(self, **more):
        self.tries += 1
        if self.tries == 2:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        super().start(**more)
"""


def test_an_engine_that_cannot_be_started_again_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    changes = f"{REFUSED_ONCE}\nsupervisor._MOST_DEATHS = 3"
    assert status_of("echo 1 >> engines; exit 5", CONDOR, changes) == 1
    assert len(lines("engines")) == 3


def test_an_engine_that_does_not_end_is_killed() -> None:
    assert status_of("trap '' TERM; while :; do sleep 0.02; done", "exit 0", "supervisor._END_SECONDS = 0.3") == 0


def test_an_engine_that_keeps_dying_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert status_of("sleep 0.2; exit 5", CONDOR, "supervisor._MOST_DEATHS = 2") == 1
    assert lines("said") == ["term"]


def test_htcondor_does_not_get_the_docker_socket(start: Start) -> None:
    process = start(
        "test -e /proc/self/fd/4 && touch has; exec sleep 9", "test -e /proc/self/fd/4 || touch not; exec sleep 9"
    )
    eventually(lambda: Path("has").exists() and Path("not").exists())
    assert process.poll() is None


def test_its_lines_are_json_where_the_engines_are(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K8SPILOT_LOG_FORMAT", "json")
    process = start(ENGINE, "sleep 0.2; exit 44")
    assert process.wait(10) == 44
    told = [json.loads(line) for line in (process.stderr.read() if process.stderr else b"").splitlines()]
    assert [line["level"] for line in told] == [*["INFO"] * 3, "ERROR"]
    assert told[-1]["message"].startswith("The pilot ends: HTCondor has ended with status 44")
    assert told[-2]["message"] == "HTCondor has ended with status 44."


def test_what_it_says_is_json_whatever_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("K8SPILOT_LOG_FORMAT", "json")
    supervisor._say('a "quoted" back\\slash')
    assert json.loads(capsys.readouterr().err)["message"] == 'a "quoted" back\\slash'


def test_the_supervisor_is_small(start: Start) -> None:
    process = start(ENGINE, CONDOR)
    eventually(lambda: lines("condor"))
    assert psutil.Process(process.pid).memory_info().rss < 12 * 1024 * 1024


@pytest.mark.parametrize(
    ("text", "age", "before", "status", "words"),
    [
        ("0 0 idle for 30 min", 0, 0, 0, "idle for 30 min"),
        ("0 0 idle for 30 min", 600, 0, 0, "HTCondor has ended"),
        ("0 1 the pod was deleted", 600, supervisor.TOLD, supervisor.TOLD, "the pod was deleted"),
        ("0 0 idle for 30 min", 0, supervisor.TOLD, supervisor.TOLD, "the kubelet told it to end: "),
        ("1 1 the slot was not in the pool within 600 s: x", 0, 0, 1, "the slot was not in the pool within 600 s: x"),
        ("nonsense", 0, 0, 0, "HTCondor has ended"),
        (None, 0, 0, 0, "HTCondor has ended"),
    ],
)
def test_the_reason_of_the_end_is_the_last_line_and_the_termination_message(  # noqa: PLR0917
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str | None,
    age: int,
    before: int,
    status: int,
    words: str,
) -> None:
    message, reason = tmp_path / "termination-log", tmp_path / "end-reason"
    message.write_text("x" * 500)
    if text is not None:
        reason.write_text(text)
        os.utime(reason, (time.time() - age, time.time() - age))
    monkeypatch.setattr(supervisor, "_TERMINATION_LOG", str(message))
    ending = supervisor.Supervisor(None, supervisor.Child("condor", ["true"], {}), str(reason))
    ending._status = before
    ending._tell_reason()
    assert ending._status == status
    assert message.read_text().startswith(f"The pilot ends: {words}")
    level = "ERROR" if status == 1 else "INFO"
    assert f" {level} k8spilot.supervisor: {message.read_text()}\n" in capsys.readouterr().err


def test_no_termination_log_is_made_where_the_kubelet_mounts_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_TERMINATION_LOG", str(tmp_path / "none"))
    supervisor.Supervisor(None, supervisor.Child("condor", ["true"], {}))._tell_reason()
    assert not (tmp_path / "none").exists()
