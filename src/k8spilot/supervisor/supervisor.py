"""The supervisor: the first process of the pilot container. It starts the engine and HTCondor, and restarts the engine.

`k8spilot run` becomes the supervisor (cli/run.py) after its preparations. The two children share only the Docker
sockets, and each survives the death of the other. An engine that dies restarts at once, while HTCondor continues: the
job returns to the queue, and the slot stays. The sockets stay open here, so that docker's clients wait for the next
engine instead of getting an error.

The death of the supervisor ends the whole container. So it is small, imports little (its memory is part of every
pilot's), waits for signals and does nothing else: Python itself has 8 MiB of resident memory, and the supervisor 10.
asyncio would double that.
"""

import marshal
import os
import signal
import sys
import time

GONE = 3
"""Exit status of an engine that has detected the end of its pod: HTCondor should end, too."""
NO_RESTART = 99
"""HTCondor's exit status of a daemon that has ended for good by its own policy (DAEMON_NO_RESTART)."""
TOLD = 128 + signal.SIGTERM
"""Exit status after the kubelet's SIGTERM. A Job counts a pod that ends with 0 as completed, and would create no
other pod after a drain or an eviction (pkg/controller/job/job_controller.go)."""
DEATHS = "K8SPILOT_ENGINE_DEATHS"
"""Environment variable with the number of engines that died before this one in this container."""

REASON_SECONDS = 300.0
"""Age after which a reason of the pilot's end that was only read in a log does not count."""

_TERMINATION_LOG = "/dev/termination-log"

PLAN = 3
"""Descriptor of the supervisor's plan."""
SOCKETS = 4
"""First descriptor of the engine's sockets, on which all engines listen (Settings.sockets)."""

_MOST_DEATHS = 20
"""Limit of deaths within _DEATHS_SECONDS. After it, the supervisor does not restart the engine."""
_DEATHS_SECONDS = 600.0
_WAIT_SECONDS = (0.1, 10.0)
_CALM_SECONDS = 60.0
"""Lifetime after which a dead engine restarts with the shortest delay again."""
_END_SECONDS = 10.0
DONE = signal.SIGHUP
"""Signal by which the engine requests the end, because HTCondor has ended for good. It is ignored while the pilot
ends."""
_SIGNALS = frozenset({signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, DONE})


class Child:
    """A program that runs as long as the pilot."""

    def __init__(self, name: str, argv: list[str], env: dict[str, str], sockets: int = 0) -> None:
        self.name = name
        self._inherited = range(SOCKETS, SOCKETS + sockets)
        """Descriptors of the sockets."""
        self.pid = 0
        """Process ID; 0 while the program does not run."""
        self._argv = argv
        self._env = env

    def start(self, **more: str) -> None:
        """Start the program in its own session, so that signals to the container's terminal do not reach it."""
        self.pid = os.posix_spawnp(
            self._argv[0],
            self._argv,
            {**self._env, **more},
            file_actions=[(os.POSIX_SPAWN_DUP2, end, end) for end in self._inherited],  # dup2 makes it inheritable
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE],
        )

    def signal(self, number: int) -> None:
        """Send a signal to the program, if it runs."""
        if self.pid:
            os.kill(self.pid, number)


class Supervisor:
    """The children, and the reactions to their ends and to signals."""

    def __init__(self, engine: Child | None, condor: Child | None, reason: str = "") -> None:
        self.engine = engine
        self.condor = condor
        self._reason = reason
        """File with the reason of the end (condor/end_reason.py); empty where HTCondor does not run."""
        self._why = ""
        """Reason of the end that the supervisor itself knows."""
        self._ending = False
        self._status = 0
        """Exit status of the container."""
        self._deaths: list[float] = []
        """Times of engines' deaths (time.monotonic)."""
        self._restart_at: float | None = None
        """Time to start the next engine; None if none is due."""
        self._kill_at: float | None = None
        """Time to kill an engine that is ending; None if none is ending."""

    def run(self) -> int:
        """Run the children to their end; return the container's exit status."""
        for child in self._children():
            child.start(**({DEATHS: "0"} if child is self.engine else {}))
            _say(f"{child.name} has been started, pid {child.pid}.")
        while any(child.pid for child in self._children()) or self._restart_at is not None:
            times = [at for at in (self._restart_at, self._kill_at) if at is not None]
            siginfo = _wait(max(0.0, min(times) - time.monotonic()) if times else None)
            # A sender outside of the pod's PID namespace has process ID 0 here (sigaction(2), si_pid).
            if siginfo is not None and siginfo.si_signo == signal.SIGTERM and siginfo.si_pid == 0 and not self._ending:
                self._status = TOLD
            self._act(None if siginfo is None else siginfo.si_signo)
        self._tell_reason()
        return self._status

    def _children(self) -> list[Child]:
        return [child for child in (self.engine, self.condor) if child is not None]

    def _act(self, number: int | None) -> None:
        now = time.monotonic()
        if number == signal.SIGCHLD:
            self._reap()
        elif number == DONE:
            if not self._ending:
                self._end()
        elif number is not None:
            self._end(fast=self._ending)
        elif self._kill_at is not None and self.engine is not None and now >= self._kill_at:
            self._kill_at = None
            self.engine.signal(signal.SIGKILL)
        elif self._restart_at is not None and self.engine is not None and now >= self._restart_at:
            self._restart_at = None
            try:
                self.engine.start(**{DEATHS: str(len(self._deaths))})
            except OSError as error:  # no memory, or a job's fork bomb
                self._engine_died(f"it cannot be started: {error.strerror}")

    def _reap(self) -> None:
        """Reap all children that have ended, including orphans of the container."""
        while True:
            try:
                pid, raw = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for child in self._children():
                if child.pid == pid:
                    child.pid = 0
                    self._ended(child, os.waitstatus_to_exitcode(raw))

    def _ended(self, child: Child, status: int) -> None:
        if child is self.condor:
            _say(f"HTCondor has ended with status {status}.")
            if not self._ending:
                self._status = 0 if status == NO_RESTART else abs(status)
                if self._status:
                    self._why = f"HTCondor has ended with status {status}; its last log lines have the reason"
            self._end_engine()
        elif status == GONE or (self._ending and not (self.condor is not None and self.condor.pid)):
            self._kill_at = None
            if not self._ending:
                self._end()
        elif self.condor is None and status == 0:
            self._ending = True
        else:
            self._engine_died(_how(status))  # also while ending: HTCondor needs an engine to end its job

    def _engine_died(self, how: str) -> None:
        now = time.monotonic()
        assert self.engine is not None
        self._deaths.append(now)
        recent = [at for at in self._deaths if at > now - _DEATHS_SECONDS]
        if len(recent) > _MOST_DEATHS:
            times = f"{len(recent)} times in {_DEATHS_SECONDS / 60:.0f} minutes"
            self._why = f"the {self.engine.name} has died {times}; read its log for the reason"
            self._status = 1
            self._end()
            return
        streak = sum(1 for at in self._deaths if at > now - _CALM_SECONDS)
        pause = min(_WAIT_SECONDS[0] * 2 ** (streak - 1), _WAIT_SECONDS[1])
        _say(f"The {self.engine.name} has died ({how}); the next one starts in {pause:.1f} s.")
        self._restart_at = now + pause

    def _end(self, *, fast: bool = False) -> None:
        """End HTCondor first: it vacates its jobs (SIGTERM) or kills them (SIGQUIT), and needs the engine for that."""
        self._ending = True
        if self.condor is not None and self.condor.pid:
            _say("Ending: HTCondor kills its jobs." if fast else "Ending: HTCondor vacates its jobs.")
            self.condor.signal(signal.SIGQUIT if fast else signal.SIGTERM)
        else:
            self._end_engine()

    def _tell_reason(self) -> None:
        """Make the reason of the end the last line of the log and the container's termination message."""
        status, is_certain, found = _read_reason(self._reason)
        if self._status == TOLD and not is_certain:
            found = "the kubelet told it to end: the pod was deleted or evicted, or failed its liveness probe"
        self._status = self._status or status
        why = self._why or found or ("HTCondor has ended" if self.condor is not None else "")
        if why:
            _fail(f"The pilot ends: {why}.", "INFO" if self._status in (0, TOLD) else "ERROR")

    def _end_engine(self) -> None:
        self._ending = True
        self._restart_at = None
        if self.engine is not None and self.engine.pid:
            self.engine.signal(signal.SIGTERM)
            self._kill_at = time.monotonic() + _END_SECONDS


def _wait(seconds: float | None) -> signal.struct_siginfo | None:
    """Wait for a signal, or at most for `seconds`."""
    return signal.sigwaitinfo(_SIGNALS) if seconds is None else signal.sigtimedwait(_SIGNALS, seconds)


def _how(status: int) -> str:
    return f"exit status {status}" if status >= 0 else signal.Signals(-status).name


def _read_reason(path: str) -> tuple[int, bool, str]:
    """Return the exit status for a reason of the end, whether the reason is certain, and its words."""
    if not path:
        return 0, False, ""
    try:
        with open(path) as file:  # noqa: PTH123
            status, certain, words = file.read().split(" ", 2)
            if int(certain) or time.time() - os.fstat(file.fileno()).st_mtime < REASON_SECONDS:
                return int(status), bool(int(certain)), words
    except (OSError, ValueError):
        pass
    return 0, False, ""


def _say(sentence: str) -> None:
    _log("INFO", sentence)


def _log(level: str, sentence: str) -> None:
    """Log a line in the engine's format (common/logs.py, which this program does not import)."""
    now = time.time()
    when = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now * 1000) % 1000:03d}Z"
    line = f"{when} {level} k8spilot.supervisor: {sentence}"
    if os.environ.get("K8SPILOT_LOG_FORMAT") == "json":
        escaped = sentence.replace("\\", r"\\").replace('"', r"\"")  # our sentences have no other characters to escape
        line = f'{{"time": "{when}", "level": "{level}", "logger": "k8spilot.supervisor", "message": "{escaped}"}}'
    print(line, file=sys.stderr, flush=True)  # noqa: T201


def _fail(sentence: str, level: str) -> None:
    """Log the last line, and write it for the kubelet, which mounts the file."""
    _log(level, sentence)
    try:
        with open(_TERMINATION_LOG, "r+") as file:  # noqa: PTH123 -- pathlib would double this process's memory
            file.truncate()
            file.write(sentence)
    except (OSError, ValueError):
        pass


def main() -> int:
    """Run the plan."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    with open(PLAN, "rb") as file:
        plan = marshal.load(file)  # noqa: S302 -- written by the same process before exec; json would be a sixth of its memory
    for end in range(SOCKETS, SOCKETS + plan["sockets"]):
        os.set_inheritable(end, False)  # neither HTCondor nor its children may inherit it
    children = {
        name: Child(**{"name": name, **plan[name]}) if plan.get(name) else None for name in ("engine", "condor")
    }
    return Supervisor(**children, reason=plan.get("reason", "")).run()


if __name__ == "__main__":
    sys.exit(main())
