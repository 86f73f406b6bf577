"""The first process of the pilot container: it starts the engine and HTCondor, and keeps the engine running.

`k8spilot run` becomes it (cli/run.py) when all is ready. The two children share nothing but the Docker sockets, and
each outlives what happens to the other. An engine that dies is started again at once, while HTCondor lives on: the job
goes back to the queue, and the slot stays. The sockets are open here all the time, so that docker's clients wait for
the next engine instead of being told that there is none.

What dies here takes the whole container with it. So this is small, imports next to nothing (its memory is part of every
pilot's), waits for signals and does nothing else. Measured with Python 3.11: 10 MiB of Rss as it is;
asyncio would double that.
"""

import marshal
import os
import signal
import sys
import time

GONE = 3
"""Exit status of an engine that has seen the end of its pod: HTCondor is to end, too."""
NO_RESTART = 99
"""HTCondor's exit status of a daemon that has ended for good by its own rules (DAEMON_NO_RESTART)."""
TOLD = 128 + signal.SIGTERM
"""Exit status when the kubelet has asked for the end: a Job takes a pod of its own that ended with 0 for its work done,
and would make no other one after a drain or an eviction (pkg/controller/job/job_controller.go)."""
DEATHS = "K8SPILOT_ENGINE_DEATHS"
"""Variable that tells an engine how many there were before it in this container."""

DOCKER_SOCKETS = (3, 4)
"""Descriptors of the Docker sockets, on which all engines listen: the one for people, and HTCondor's."""

_MOST_DEATHS = 20
"""An engine that dies more often than this in _DEATHS_SECONDS will not do better the next time."""
_DEATHS_SECONDS = 600.0
_WAIT_SECONDS = (0.1, 10.0)
_CALM_SECONDS = 60.0
"""An engine that has lived for this long is started again at once, as the first one is."""
_END_SECONDS = 10.0
DONE = signal.SIGHUP
"""What the engine tells when it sees that HTCondor has nothing more to do: the end, unless that is under way."""
_SIGNALS = frozenset({signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, DONE})


class Child:
    """A program that runs as long as the pilot does."""

    def __init__(self, name: str, argv: list[str], env: dict[str, str], inherits: bool = False) -> None:
        self.name = name
        self._inherited = DOCKER_SOCKETS if inherits else ()
        self.pid = 0
        """0 when it does not run."""
        self._argv = argv
        self._env = env

    def start(self, **more: str) -> None:
        """Start it in a session of its own, so that signals to the container's terminal do not reach it."""
        self.pid = os.posix_spawnp(
            self._argv[0],
            self._argv,
            {**self._env, **more},
            file_actions=[(os.POSIX_SPAWN_DUP2, end, end) for end in self._inherited],  # which makes it inheritable
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE],
        )

    def signal(self, number: int) -> None:
        """Send it a signal, if it runs."""
        if self.pid:
            os.kill(self.pid, number)


class Supervisor:
    """The children, and what is to become of them."""

    def __init__(self, engine: Child | None, condor: Child | None) -> None:
        self.engine = engine
        self.condor = condor
        self._ending = False
        self._status = 0
        """With which the container ends."""
        self._deaths: list[float] = []
        """When engines have died (time.monotonic)."""
        self._again: float | None = None
        """When the next engine is to be started."""
        self._kill: float | None = None
        """When the engine has had enough time to end."""

    def run(self) -> int:
        """Run the children to their end; return the container's exit status."""
        for child in self._children():
            child.start(**({DEATHS: "0"} if child is self.engine else {}))
            _say(f"{child.name} has been started, pid {child.pid}.")
        while any(child.pid for child in self._children()) or self._again is not None:
            times = [at for at in (self._again, self._kill) if at is not None]
            got = _wait(max(0.0, min(times) - time.monotonic()) if times else None)
            # Whoever sends a signal from outside of the pod has no process id here (sigaction(2), si_pid).
            if got is not None and got.si_signo == signal.SIGTERM and got.si_pid == 0 and not self._ending:
                self._status = TOLD
            self._act(None if got is None else got.si_signo)
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
        elif self._kill is not None and self.engine is not None and now >= self._kill:
            self._kill = None
            self.engine.signal(signal.SIGKILL)
        elif self._again is not None and self.engine is not None and now >= self._again:
            self._again = None
            try:
                self.engine.start(**{DEATHS: str(len(self._deaths))})
            except OSError as error:  # no memory, or a job that makes processes without end
                self._engine_died(f"it cannot be started: {error.strerror}")

    def _reap(self) -> None:
        """Take the statuses of all that have ended; orphans of the container may be among them."""
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
            self._end_engine()
        elif status == GONE or (self._ending and not (self.condor is not None and self.condor.pid)):
            self._kill = None
            if not self._ending:
                self._end()
        elif self.condor is None and status == 0:
            self._ending = True
        else:
            self._engine_died(_how(status))  # also in the end: HTCondor needs one for its job's

    def _engine_died(self, how: str) -> None:
        now = time.monotonic()
        assert self.engine is not None
        self._deaths.append(now)
        recent = [at for at in self._deaths if at > now - _DEATHS_SECONDS]
        if len(recent) > _MOST_DEATHS:
            times = f"{len(recent)} times in {_DEATHS_SECONDS / 60:.0f} minutes"
            _fail(f"the {self.engine.name} has died {times}; its log says why")
            self._status = 1
            self._end()
            return
        streak = sum(1 for at in self._deaths if at > now - _CALM_SECONDS)
        pause = min(_WAIT_SECONDS[0] * 2 ** (streak - 1), _WAIT_SECONDS[1])
        _say(f"The {self.engine.name} has died ({how}); the next one starts in {pause:.1f} s.")
        self._again = now + pause

    def _end(self, *, fast: bool = False) -> None:
        """HTCondor first: it vacates its jobs (SIGTERM) or kills them (SIGQUIT), for which it needs the engine."""
        self._ending = True
        if self.condor is not None and self.condor.pid:
            _say("Ending: HTCondor kills its jobs." if fast else "Ending: HTCondor vacates its jobs.")
            self.condor.signal(signal.SIGQUIT if fast else signal.SIGTERM)
        else:
            self._end_engine()

    def _end_engine(self) -> None:
        self._ending = True
        self._again = None
        if self.engine is not None and self.engine.pid:
            self.engine.signal(signal.SIGTERM)
            self._kill = time.monotonic() + _END_SECONDS


def _wait(seconds: float | None) -> signal.struct_siginfo | None:
    """Wait for a signal, at most so long."""
    return signal.sigwaitinfo(_SIGNALS) if seconds is None else signal.sigtimedwait(_SIGNALS, seconds)


def _how(status: int) -> str:
    return f"exit status {status}" if status >= 0 else signal.Signals(-status).name


def _say(sentence: str) -> None:
    _log("INFO", sentence)


def _log(level: str, sentence: str) -> None:
    """As the engine logs (common/logs.py), which is not imported here."""
    now = time.time()
    when = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now * 1000) % 1000:03d}Z"
    line = f"{when} {level} k8spilot.supervisor: {sentence}"
    if os.environ.get("K8SPILOT_LOG_FORMAT") == "json":
        told = sentence.replace("\\", r"\\").replace('"', r"\"")  # there are no other characters to escape in ours
        line = f'{{"time": "{when}", "level": "{level}", "logger": "k8spilot.supervisor", "message": "{told}"}}'
    print(line, file=sys.stderr, flush=True)  # noqa: T201


def _fail(sentence: str) -> None:
    _log("ERROR", sentence)
    try:
        with open("/dev/termination-log", "w") as file:  # noqa: PTH123 -- pathlib is half of this process's memory
            file.write(sentence)
    except OSError:
        pass


def main() -> int:
    """Run what the plan says; its descriptor is the only argument."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    for end in DOCKER_SOCKETS:
        os.set_inheritable(end, False)  # HTCondor must not have it, nor what it runs
    with open(int(sys.argv[1]), "rb") as file:  # noqa: PTH123
        plan = marshal.load(file)  # noqa: S302 -- written by what this process was; json would be a sixth of its memory
    children = {
        name: Child(**{"name": name, **plan[name]}) if plan.get(name) else None for name in ("engine", "condor")
    }
    return Supervisor(**children).run()


if __name__ == "__main__":
    sys.exit(main())
