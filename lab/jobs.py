"""HTCondor jobs as users handle them: submit on the access point, follow the event log, collect the output."""

import base64
import io
import secrets
import shlex
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import htcondor2

from lab.api import Lab
from lab.errors import LabError
from lab.patience import scaled
from lab.phases import BIND, CLEAN_UP, JOB, MATCH, PILOT, Phase, phase
from lab.settings import SESSION_ATTRIBUTE
from lab.streams import Stream

SUBMIT_FILE = "job.sub"
LOG = "job.log"
DEFAULTS = {
    "universe": "container",
    "executable": "/bin/true",
    "output": "out.$(Process)",
    "error": "err.$(Process)",
    "log": LOG,
    "should_transfer_files": "YES",
    "when_to_transfer_output": "ON_EXIT",
    "transfer_executable": "false",
    "request_cpus": "1",
    "request_memory": "128M",
    "request_disk": "1G",
}
"""Submit commands of every job. Commands of the caller have priority."""

_STEPS: dict[str, Phase] = {
    "FileTransferEvent": BIND,
    "ExecuteEvent": JOB,
    "ShadowExceptionEvent": MATCH,
    "JobEvictedEvent": MATCH,
}
"""Phase of a job after an event. A file transfer means that the slot is claimed."""
SLOW_SHADOW = "called during active transfer"
"""Words of the event of a race in HTCondor on a busy access point. A short job ends before its shadow has reaped the
process that sent the input, and condor_shadow excepts when the output comes (FileTransfer::Download in
src/condor_utils/file_transfer.cpp). The job goes back to the queue and runs again."""
BAD_NEWS = frozenset({"JobHeldEvent", "JobAbortedEvent", "ShadowExceptionEvent", "JobEvictedEvent"})
PATIENCE_S = 120.0
"""Usual time limit of an event, in seconds. Six tests at a time share the pool and a node of two cores."""
_LOOK_S = 0.05
_queued: Counter[str] = Counter()
"""Numbers of this process's jobs that are not removed yet, by the pilot that they are for."""


class JobTrouble(LabError):
    """Raised when a job does not reach the awaited state."""


@dataclass(frozen=True)
class Event:
    """One entry of a job's event log."""

    proc: int
    kind: str
    """HTCondor's name of the event's class: SubmitEvent, ExecuteEvent, JobTerminatedEvent, JobHeldEvent, ..."""
    seen: float
    """Time at which it was read here (time.monotonic)."""
    attributes: Mapping[str, Any]

    @property
    def at(self) -> float:
        """Time of the event by the access point's clock: whole seconds since the epoch."""
        return datetime.fromisoformat(str(self.attributes["EventTime"])).replace(tzinfo=UTC).timestamp()


class Jobs:
    """The jobs of one condor_submit. Its methods raise LabError."""

    def __init__(self, lab: Lab, user: str, folder: str, cluster: int, count: int, pilot: str = "") -> None:
        self.lab = lab
        self.user = user
        self.folder = folder
        """Folder of the jobs, in the user's home."""
        self.cluster = cluster
        self.count = count
        self.events: list[Event] = []
        self._pilot = pilot
        _queued[pilot] += count
        self._stream = Stream.of_user_file(lab, user, f"{folder}/{LOG}")
        self._copy = tempfile.NamedTemporaryFile(prefix="k8spilot-events-", suffix=".log")  # noqa: SIM115
        self._log = htcondor2.JobEventLog(self._copy.name)

    def look(self) -> list[Event]:
        """Read the event log; return the events since the last look."""
        found = []
        for block in self._stream.blocks(b"\n...\n"):
            # One whole event at a time: the reader waits a second for an event that is partial or missing.
            self._copy.write(block)
            self._copy.flush()
            event = next(self._log.events(stop_after=1), None)
            if event is not None and event.cluster == self.cluster:
                found.append(Event(event.proc, str(event["MyType"]), time.monotonic(), dict(event)))
        self.events += found
        return found

    def wait(
        self, *kinds: str, proc: int = 0, timeout: float = PATIENCE_S, ignore: frozenset[str] = frozenset()
    ) -> Event:
        """Return the first event of job `proc` that is one of `kinds`, once it has happened.

        Raises JobTrouble when that takes more than `timeout` seconds of a machine of usual speed, or when the job was
        held, removed or evicted instead and that is not to be ignored.
        """
        timeout = scaled(timeout)
        deadline = time.monotonic() + timeout
        while True:
            for event in self.events:
                if event.proc != proc:
                    continue
                if event.kind in kinds:
                    return event
                if event.kind in BAD_NEWS - ignore and SLOW_SHADOW not in words(event):
                    raise JobTrouble(f"job {self.cluster}.{proc}: {event.kind}: {words(event)}")
            if time.monotonic() > deadline:
                seen = ", ".join(event.kind for event in self.events if event.proc == proc) or "nothing"
                raise JobTrouble(
                    f"job {self.cluster}.{proc} has no {' or '.join(kinds)} within {timeout:.0f} s; it has {seen}"
                )
            with phase(self._phase(proc)):
                if not self.look():
                    time.sleep(_LOOK_S)

    def _phase(self, proc: int) -> Phase:
        """Return the phase that job `proc` is in: it waits for its match, for its bind, or for its own end."""
        last = next((one.kind for one in reversed(self.events) if one.proc == proc and one.kind in _STEPS), "")
        return _STEPS.get(last, MATCH)

    def ended(self, proc: int = 0, timeout: float = PATIENCE_S, ignore: frozenset[str] = frozenset()) -> Event:
        """Return the event of the job's own end. Raises JobTrouble, as `wait`."""
        return self.wait("JobTerminatedEvent", proc=proc, timeout=timeout, ignore=ignore)

    def held(self, proc: int = 0, timeout: float = PATIENCE_S) -> Event:
        """Return the event of the job's being put on hold. Raises JobTrouble when it ends instead."""
        event = self.wait("JobHeldEvent", "JobTerminatedEvent", proc=proc, timeout=timeout, ignore=BAD_NEWS)
        if event.kind != "JobHeldEvent":
            raise JobTrouble(f"job {self.cluster}.{proc} ended and was not held: {words(event)}")
        return event

    def files(self) -> dict[str, bytes]:
        """Fetch all files of the jobs' folder: those of the submission, and the returned ones."""
        script = f"cd {shlex.quote(self.folder)} && tar -c . | base64"
        archive = base64.b64decode(self.lab.access_point(self.user, script))
        found = {}
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                if member.isfile() and (content := tar.extractfile(member)) is not None:
                    found[member.name.removeprefix("./")] = content.read()
        return found

    def command(self, tool: str, *options: str, proc: int | None = None) -> str:
        """Run condor_rm, condor_hold or the like for all of the jobs, or for job `proc`, as their user."""
        whom = str(self.cluster) if proc is None else f"{self.cluster}.{proc}"
        return self.lab.access_point(self.user, [tool, *options, whom])

    @phase(CLEAN_UP)
    def remove(self) -> None:
        """Remove the jobs, wherever they are, and their files."""
        self.close()
        _queued[self._pilot] -= self.count
        # It ends with 1 for jobs that have left the queue, too: its words tell whether the queue has answered.
        removed = f'condor_rm {self.cluster} 2>&1 | grep -qi "all jobs in cluster"'
        again = f"for i in 1 2 3; do {removed} && break; sleep 1; done"
        script = f"{again}; rm -rf {shlex.quote(self.folder)}"
        self.lab.access_point(self.user, f"({script}) >/dev/null 2>&1; true")

    def close(self) -> None:
        """Stop following the event log."""
        self._stream.close()
        self._log.close()
        self._copy.close()

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the jobs."""
        self.remove()


@phase(MATCH)
def submit(
    lab: Lab,
    user: str,
    commands: Mapping[str, str],
    *,
    files: Mapping[str, str | bytes] | None = None,
    pilot: str | None = None,
    count: int = 1,
) -> Jobs:
    """Submit `count` jobs as `user` and return them.

    `commands` are submit commands over DEFAULTS. `files` are put beside the submit file; one that begins with `#!` is
    executable. With `pilot`, only the pod of that name may run them. Raises LabError with condor_submit's words.
    """
    folder = f"jobs/{secrets.token_hex(6)}"
    chosen = {**DEFAULTS, **commands}
    if pilot is not None:
        own = f'TARGET.K8SPodName == "{pilot}"'
        chosen["requirements"] = f"({chosen['requirements']}) && {own}" if "requirements" in chosen else own
    # The schedd offers the first twenty idle jobs of a user to the negotiator: jobs that wait for one pilot must not be
    # in the way of the first jobs for other pilots. Those for one pilot keep their order.
    chosen.setdefault("priority", str(-max(0, _queued[pilot or ""])))
    if lab.settings.session:
        chosen[f"My.{SESSION_ATTRIBUTE}"] = f'"{lab.settings.session}"'
    text = "".join(f"{name} = {value}\n" for name, value in chosen.items()) + f"queue {count}\n"
    archive = _pack({**(files or {}), SUBMIT_FILE: text})
    script = f"mkdir -p {folder} && cd {folder} && base64 -d | tar -x && condor_submit -terse {SUBMIT_FILE}"
    answer = lab.access_point(user, script, input=archive)
    cluster = answer.strip().splitlines()[-1].split(".")[0]
    if not cluster.isdecimal():
        raise LabError(f"condor_submit answered {answer.strip()!r}")
    return Jobs(lab, user, folder, int(cluster), count, pilot or "")


@phase(PILOT)
def wait_in_pool(lab: Lab, pilot: str, timeout: float = 60) -> None:
    """Return once the slot of the pod `pilot` can be matched; raise LabError when that takes too long."""
    # By its uid: the ad of a former pod of that name may still be there.
    uid = lab.kubectl("get", "pod", pilot, "-n", lab.namespace, "-o", "jsonpath={.metadata.uid}")
    query = ["condor_status", "-constraint", f'K8SPodUID == "{uid}"', "-af", "Name"]
    timeout = scaled(timeout)
    deadline = time.monotonic() + timeout
    while True:
        try:
            if lab.access_point("alice", query).strip():
                return
        except LabError as problem:
            reason = str(problem)
        else:
            reason = "the pool does not know it"
        if time.monotonic() > deadline:
            log = lab.kubectl("logs", "-n", lab.namespace, pilot, "-c", "pilot", "--tail=3").strip()
            raise LabError(
                f"the slot of pod {pilot} is not in the pool after {timeout:.0f} s: {reason}; it says: {log}"
            )
        time.sleep(0.3)


def words(event: Event) -> str:
    """Return a description of an event, in HTCondor's words."""
    facts = event.attributes
    if event.kind == "JobHeldEvent":
        return f"{facts.get('HoldReason')} ({facts.get('HoldReasonCode')}/{facts.get('HoldReasonSubCode')})"
    if event.kind == "JobTerminatedEvent":
        how = f"exit code {facts.get('ReturnValue')}" if facts.get("TerminatedNormally") else "a signal"
        return f"it ended with {how}"
    return str(facts.get("Reason") or facts.get("Message") or "no reason is given")


def _pack(files: Mapping[str, str | bytes]) -> str:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            entry = tarfile.TarInfo(str(Path(name)))
            entry.size, entry.mtime = len(data), int(time.time())
            entry.mode = 0o755 if data.startswith(b"#!") else 0o644
            tar.addfile(entry, io.BytesIO(data))
    return base64.encodebytes(buffer.getvalue()).decode()
