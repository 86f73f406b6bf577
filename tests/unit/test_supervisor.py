"""The supervisor with shell scripts in the places of the engine and HTCondor."""

import json
import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from k8spilot.supervisor.plan import DEATHS, DONE, GONE, REASON_SECONDS, TOLD, Child, Plan
from tests.keyrings import DENIED, KNOWN, question, without_filters
from tests.simulator.programs import Programs

Start = Callable[..., "subprocess.Popen[bytes]"]

ENGINE = "trap 'exit 0' TERM; echo $K8SPILOT_ENGINE_DEATHS >> engines; while :; do sleep 0.02; done"
CONDOR = "trap 'echo term >> said; exit 0' TERM; trap 'exit 0' QUIT; echo $$ > condor; while :; do sleep 0.02; done"
STUBBORN = "trap '' TERM; touch ready; while :; do sleep 0.02; done"
"""An engine that does not end."""
ENDS_WHEN_READY = "while ! test -e ready; do sleep 0.02; done; touch gone; exit 0"
# As cli/run.py leaves it: the plan at 3, the sockets after it, and the signals that Python ignores.
BECOME = "trap '' XFSZ; exec 3<plan 4<plan 5<plan; exec \"$0\""


def script(text: str) -> list[str]:
    return ["sh", "-c", text]


def write_plan(engine: str | list[str] | None, condor: str | None, changes: Mapping[str, Any] | None = None) -> None:
    """Write a plan with two sockets into the working folder."""
    children = []
    if engine is not None:
        argv = script(engine) if isinstance(engine, str) else engine
        children.append(Child("engine", argv, dict(os.environ), 2))
    if condor is not None:
        children.append(Child("condor", script(condor), dict(os.environ)))
    plan = Plan(children, 2, **{"termination_log": "termination-log", **(changes or {})})
    Path("plan").write_bytes(plan.encode())


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: Programs) -> Iterator[Start]:
    """Starts a supervisor of two scripts, whose working folder is the test's; `changes` are fields of the plan."""
    monkeypatch.chdir(tmp_path)
    with ExitStack() as cleanup:

        def begin(engine: str | list[str] | None, condor: str | None, **changes: Any) -> "subprocess.Popen[bytes]":
            write_plan(engine, condor, changes)
            return cleanup.enter_context(_running([*script(BECOME), str(programs.supervisor)]))

        yield begin


@contextmanager
def _running(command: list[str]) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                for child in psutil.Process(process.pid).children(recursive=True):
                    with suppress(psutil.NoSuchProcess):  # a script's `sleep` ends by itself
                        child.kill()
                process.kill()


def told(process: "subprocess.Popen[bytes]") -> str:
    """Return what an ended supervisor has logged."""
    assert process.stderr is not None
    return process.stderr.read().decode()


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
    assert "has died (SIGKILL)" in told(process)


def test_an_end_that_the_kubelet_asks_for_is_no_success_of_a_job_that_owns_the_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: Programs
) -> None:
    monkeypatch.chdir(tmp_path)
    write_plan(None, CONDOR)
    pod = ["unshare", "--pid", "--fork", "--kill-child", *script(BECOME), str(programs.supervisor)]
    with _running(pod) as process:
        eventually(Path("condor").exists)
        (inside,) = psutil.Process(process.pid).children()
        inside.terminate()
        assert process.wait(10) == TOLD
    assert Path("termination-log").exists() is False


@KNOWN
def test_neither_the_engine_nor_htcondor_can_use_keyrings(start: Start) -> None:
    ask = f"{shlex.join(question())} > %s.part; mv %s.part %s; sleep 60"
    start(ask.replace("%s", "engine-keys"), ask.replace("%s", "condor-keys"))
    eventually(lambda: lines("engine-keys") == lines("condor-keys") == [DENIED])


@KNOWN
def test_that_keyrings_are_open_for_want_of_a_filter_is_logged_and_the_pilot_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: Programs
) -> None:
    monkeypatch.chdir(tmp_path)
    write_plan(None, CONDOR)
    shell, *arguments = [*script(BECOME), str(programs.supervisor)]
    with _running(without_filters(f"/bin/{shell}", *arguments)) as process:
        eventually(Path("condor").exists)
        process.terminate()
        assert process.wait(10) == 0
        assert "WARNING k8spilot.supervisor: The kernel's keyrings are open" in told(process)


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
    process = start(
        ENGINE,
        "trap 'touch term' TERM; trap 'touch fast; exit 0' QUIT; touch ready; while :; do sleep 0.02; done",
    )
    eventually(Path("ready").exists)
    process.terminate()
    eventually(Path("term").exists)  # two signals that are pending at a time count as one
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
        process.send_signal(DONE)
        eventually(Path("term").exists)
    assert process.wait(10) == 0
    assert not Path("fast").exists()


@pytest.mark.parametrize(("said", "status"), [(0, 0), (44, 44), (99, 0)], ids=["ended", "failed", "drained"])
def test_htcondors_exit_status_is_the_containers(start: Start, said: int, status: int) -> None:
    assert start(ENGINE, f"sleep 0.2; exit {said}").wait(10) == status


def test_an_engine_that_has_seen_the_end_of_its_pod_ends_htcondor(start: Start) -> None:
    process = start(f"sleep 0.2; exit {GONE}", CONDOR)
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


def test_an_engine_that_cannot_be_started_again_is_tried_again(start: Start) -> None:
    engine = Path("engine.sh").absolute()
    engine.write_text(f"#!/bin/sh\necho $K8SPILOT_ENGINE_DEATHS >> engines\nmv {engine} away\nexit 5\n")
    engine.chmod(0o755)
    process = start([str(engine)], CONDOR)
    eventually(lambda: lines("engines") == ["0"] and Path("away").exists())
    time.sleep(0.3)
    Path("away").rename(engine)
    eventually(lambda: len(lines("engines")) == 2)
    assert int(lines("engines")[1]) > 1
    process.terminate()
    assert process.wait(10) == 0
    assert "The engine has died (it cannot be started: No such file or directory); the next one starts in" in told(
        process
    )


def test_an_engine_that_does_not_end_is_killed(start: Start) -> None:
    process = start(
        STUBBORN,
        ENDS_WHEN_READY,
        end_seconds=0.5,
    )
    eventually(Path("gone").exists)
    began = time.monotonic()
    assert process.wait(10) == 0
    assert 0.3 < time.monotonic() - began < 5


@pytest.mark.slow
def test_a_pause_of_the_supervisor_gives_an_engine_no_more_time_to_end(start: Start) -> None:
    process = start(
        STUBBORN,
        ENDS_WHEN_READY,
        end_seconds=3,
    )
    eventually(Path("gone").exists)
    began = time.monotonic()
    time.sleep(2.7)
    process.send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGCONT)
    assert process.wait(10) == 0
    assert time.monotonic() - began < 2.7 + 3


def test_further_signals_give_an_engine_no_more_time_to_end(start: Start) -> None:
    process = start(STUBBORN, None, end_seconds=1)
    eventually(Path("ready").exists)
    began = time.monotonic()
    while process.poll() is None and time.monotonic() - began < 5:
        process.terminate()
        time.sleep(0.05)
    assert process.wait(0.1) == 0


def test_an_engine_that_keeps_dying_is_given_up(start: Start) -> None:
    process = start("sleep 0.2; exit 5", CONDOR, most_deaths=2)
    assert process.wait(20) == 1
    assert lines("said") == ["term"]
    assert "The pilot ends: the engine has died 3 times in 10 minutes; read its log for the reason." in told(process)


def test_an_engine_that_dies_again_and_again_waits_longer_each_time(start: Start) -> None:
    process = start("exit 5", CONDOR, most_deaths=4)
    assert process.wait(20) == 1
    pauses = [line.split()[-2] for line in told(process).splitlines() if "the next one starts in" in line]
    assert pauses == ["0.1", "0.2", "0.4", "0.8"]


@pytest.mark.parametrize("child", ["engine", "condor"])
def test_a_program_that_cannot_be_started_ends_the_pilot_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: Programs, child: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("termination-log").touch()
    children = [Child("engine", script(ENGINE), dict(os.environ)), Child("condor", script(CONDOR), dict(os.environ))]
    children = [Child(child, ["/none"], {}) if one.name == child else one for one in children]
    Path("plan").write_bytes(Plan(children, 0, termination_log="termination-log").encode())
    with _running([*script(BECOME), str(programs.supervisor)]) as process:
        assert process.wait(10) == 1
    sentence = "The pilot ends: /none cannot be started: No such file or directory."
    assert Path("termination-log").read_text() == sentence


def test_without_a_whole_plan_it_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: Programs
) -> None:
    monkeypatch.chdir(tmp_path)
    children = [Child("engine", script("touch ran"), {"A": "1"}, 2), Child("condor", script("touch ran"), {"B": "2"})]
    whole = Plan(children, 2).encode()
    cuts = [whole[: place + 1] for place, byte in enumerate(whole[:-1]) if byte == 0]
    doubled = Plan([children[0], children[0]], 2).encode()
    for plan in (b"", whole[:-1], *cuts, whole + b"more\0", doubled, whole.replace(b"20\0", b"x\0"), b"x\0" * 30):
        Path("plan").write_bytes(plan)
        done = subprocess.run([*script(BECOME), str(programs.supervisor)], capture_output=True, check=False, timeout=10)
        assert done.returncode == 1, plan
        assert done.stderr.endswith(
            b"The supervisor has no plan; start the container with the command `k8spilot run`.\n"
        )
    assert not Path("ran").exists()


def test_a_word_with_a_nul_is_no_part_of_a_plan() -> None:
    with pytest.raises(ValueError, match="has a NUL"):
        Plan([Child("condor", ["true"], {"A": "1\0B=2"})], 0).encode()


def test_its_children_begin_as_htcondor_expects_it(start: Start) -> None:
    show = (
        "grep -E 'Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd; ps -o sid= -p $$ | grep -qw $$ && echo own session"
    )
    process = start(None, f"({show}) >seen 2>&1; exec sleep 9")
    eventually(lambda: "own session" in lines("seen"))
    signals = {name: int(bits, 16) for name, bits in (line.split() for line in lines("seen") if line.startswith("Sig"))}
    assert signals["SigBlk:"] == 0
    assert not signals["SigIgn:"] & (1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1))
    assert not {"4", "5"} & set(lines("seen"))
    assert process.poll() is None


def test_each_line_of_its_log_is_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: Programs
) -> None:
    """Other processes write to the same pipe. Each write to this socket is a message."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("K8SPILOT_LOG_FORMAT", "json")
    write_plan(None, "exit 0")
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, its:
        subprocess.run([*script(BECOME), str(programs.supervisor)], stderr=its.fileno(), check=True, timeout=10)
        ours.settimeout(1)
        said = [json.loads(ours.recv(4096))["message"] for _ in range(3)]
    assert said[1:] == ["HTCondor has ended with status 0.", "The pilot ends: HTCondor has ended."]


def test_only_the_engine_is_told_of_deaths(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DEATHS, "77")
    start(ENGINE, f"echo ${{{DEATHS}-none}} > seen; exec sleep 9")
    eventually(lambda: lines("engines") and lines("seen"))
    assert (lines("engines"), lines("seen")) == (["0"], ["none"])


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
    found = [json.loads(line) for line in told(process).splitlines()]
    assert [line["level"] for line in found] == [*["INFO"] * 3, "ERROR"]
    assert found[-1]["message"].startswith("The pilot ends: HTCondor has ended with status 44")
    assert found[-2]["message"] == "HTCondor has ended with status 44."


def test_what_it_says_is_json_whatever_it_is(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K8SPILOT_LOG_FORMAT", "json")
    Path("reason").write_text('0 1 a "quoted" back\\slash\tä')
    process = start(None, "exit 0", reason="reason")
    assert process.wait(10) == 0
    assert json.loads(told(process).splitlines()[-1])["message"] == 'The pilot ends: a "quoted" back\\slash\tä.'


def test_the_supervisor_is_small(start: Start) -> None:
    process = start(ENGINE, CONDOR)
    eventually(lambda: lines("condor"))
    assert psutil.Process(process.pid).memory_info().rss < 1024 * 1024


@pytest.mark.parametrize(
    ("text", "age", "condor", "status", "words"),
    [
        ("0 0 idle for 30 min", 0, 0, 0, "idle for 30 min"),
        ("0 0 idle for 30 min", 2 * REASON_SECONDS, 0, 0, "HTCondor has ended"),
        ("0 1 the pod was deleted", 2 * REASON_SECONDS, 0, 0, "the pod was deleted"),
        ("0 0 idle for 30 min", 0, 44, 44, "HTCondor has ended with status 44; its last log lines have the reason"),
        ("1 1 the slot was not in the pool within 600 s: x", 0, 0, 1, "the slot was not in the pool within 600 s: x"),
        ("nonsense", 0, 0, 0, "HTCondor has ended"),
        ("", 0, 0, 0, "HTCondor has ended"),
        (None, 0, 0, 0, "HTCondor has ended"),
    ],
)
def test_the_reason_of_the_end_is_the_last_line_and_the_termination_message(
    start: Start, text: str | None, age: float, condor: int, status: int, words: str
) -> None:
    message, reason = Path("termination-log"), Path("reason")
    message.write_text("x" * 500)
    if text is not None:
        reason.write_text(text)
        os.utime(reason, (time.time() - age, time.time() - age))
    process = start(None, f"exit {condor}", reason="reason")
    assert process.wait(10) == status
    assert message.read_text() == f"The pilot ends: {words}."
    level = "ERROR" if status else "INFO"
    assert told(process).endswith(f" {level} k8spilot.supervisor: {message.read_text()}\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 1 the pod was deleted", "the pod was deleted"),
        ("0 0 idle for 30 min", "the kubelet told it to end: the pod was"),
    ],
)
def test_the_kubelets_order_is_the_reason_unless_a_certain_one_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: Programs, text: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("termination-log").touch()
    Path("reason").write_text(text)
    write_plan(None, CONDOR, {"reason": "reason"})
    with _running(["unshare", "--pid", "--fork", "--kill-child", *script(BECOME), str(programs.supervisor)]) as process:
        eventually(Path("condor").exists)
        psutil.Process(process.pid).children()[0].terminate()
        assert process.wait(10) == TOLD
        assert " INFO k8spilot.supervisor: The pilot ends: " in told(process)
    assert Path("termination-log").read_text().startswith(f"The pilot ends: {words}")


def test_no_termination_log_is_made_where_the_kubelet_mounts_none(start: Start) -> None:
    assert start(None, "exit 0").wait(10) == 0
    assert not Path("termination-log").exists()
