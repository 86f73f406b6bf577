"""Record of a slot's events: counters for Prometheus, Events for people, and the last faults for the status."""

import asyncio
import logging
from collections import deque
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from k8spilot.common import logs
from k8spilot.common.errors import (
    BindError,
    ClusterError,
    ClusterRefused,
    Displaced,
    ImageError,
    ImageNotAllowed,
    ImageNotHere,
    ImageNotNow,
    NotHere,
    NotNow,
    PilotError,
    Refused,
    Untimely,
)
from k8spilot.condor.daemons import liveness
from k8spilot.model.event_reasons import EventReason
from k8spilot.model.outcome import Outcome
from k8spilot.model.reference import Reference
from k8spilot.payload.listeners import SlotListener
from k8spilot.telemetry.event_recorder import EventRecorder
from k8spilot.telemetry.metrics import BindResult, ExitReason, HoldClass, Metrics

logger = logging.getLogger(__name__)

_FAULTS: Final = 10
_AWAY_SECONDS: Final = 30.0
"""Seconds of an outage of the API server that are worth an Event."""
_SIGTERM: Final = "Got SIGTERM. Performing graceful shutdown."
"""Message of condor_master's log at that time (condor_daemon_core, main_shutdown_graceful)."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault."""

    when: datetime
    what: EventReason
    """Reason of its Event."""
    words: str
    job: str = ""

    def json(self) -> dict[str, Any]:
        """Return the fault for the status."""
        return {**asdict(self), "when": self.when.isoformat(timespec="seconds")}


@dataclass(frozen=True, slots=True)
class Closure:
    """A time in which the slot takes no job, because jobs fail."""

    until: datetime
    words: str

    @property
    def lasts(self) -> bool:
        """Whether the slot is closed now."""
        return datetime.now(UTC) < self.until


class SlotRecorder(SlotListener):
    """Listener that counts and records all events of a slot."""

    def __init__(self, metrics: Metrics, event_recorder: EventRecorder) -> None:
        self._metrics = metrics
        self._event_recorder = event_recorder
        self.faults: deque[Fault] = deque(maxlen=_FAULTS)
        """Last faults, the newest at the end."""
        self.closure: Closure | None = None
        """Last closure of the slot because jobs fail; it may be over."""

    def bind_ended(self, reference: Reference, seconds: float, error: BaseException | None) -> None:
        """Count a bind. `held` records the failures that affect a job."""
        self._metrics.bind(_bind_result(error), seconds)
        if error is None:
            self._event_recorder.record_once(
                "Bound", f"Image {reference} runs, after {seconds:.1f} s.", reference.source
            )
        elif isinstance(error, ImageNotNow):
            self._blame("ImageUnavailable", str(error), key=reference.source)
        elif isinstance(error, NotNow):
            self._blame("NotBound", str(error))

    def reused(self) -> None:
        """Count a reused container."""
        self._metrics.reuse()

    def ended(self, outcome: Outcome) -> None:
        """Count the end of a job. It is too frequent for an Event."""
        self._metrics.exit(_exit_reason(outcome))

    def lost(self, why: str) -> None:
        """Count a lost job, and record an Event."""
        self._metrics.exit("lost")
        self._blame("JobLost", f"{_job()} was lost: {why}", key=why)

    def held(self, error: PilotError, at: Literal["create", "start", "end"]) -> None:
        """Count a refused job of HTCondor, and record an Event."""
        if not logs.subject().slot:
            return
        kind = _hold_class(error) if at == "create" else at
        self._metrics.hold(kind)
        if kind == "untimely":
            return
        reason: EventReason = "ImageRefused" if kind in ("image_refused", "image_failed") else "JobRefused"
        self._blame(reason, f"{_job()} will be held: {error}", key=str(error))

    async def left(self, reference: Reference, error: NotHere) -> None:
        """Record a job whose image cannot run at this site, and which goes back to the queue."""
        self._blame("ImageLeft", f"{_job()} is left to other sites: {error}", key=reference.part(error.scope))

    async def black_hole(self, seconds: float, words: str) -> None:
        """Record that the slot is closed because jobs fail."""
        self.closure = Closure(datetime.now(UTC) + timedelta(seconds=seconds), words)
        logger.warning("The slot is closed: %s.", words)
        self._blame("BlackHole", logs.capitalized(words), key="BlackHole", always=True)

    async def excess(self, words: str) -> None:
        """Count a job that has used more disk than it may, and record an Event."""
        if words:
            self._metrics.hold("disk")
            self._blame("JobRefused", f"{_job()} will be held: {words}", key=words)

    def still_pulling(self, reference: Reference, words: str) -> None:
        """Record the Event in spite of the limit of Events: only a person can end that pull."""
        self._blame("StillPulling", logs.capitalized(words), key=reference.source, always=True)

    def returned(self, seconds: float) -> None:
        """Record the end of an outage of the API server."""
        words = f"The Kubernetes API failed or was unreachable for {seconds:.0f} s; running jobs continued."
        logger.info("%s", words)
        if seconds >= _AWAY_SECONDS:
            self._blame("ApiUnreachable", words)

    def recovered(self, deaths: int) -> None:
        """Record that this engine is not the first of its container."""
        if deaths:
            self._blame(
                "Recovered",
                f"The engine died and was started again, for the {_ordinal(deaths)} time in this container; a "
                "running job goes back to the queue.",
                always=True,
            )

    def gpus_doubtful(self, words: str, *, new: bool) -> None:
        """Record that the pod's GPUs differ from its request."""
        self._blame("GpuMismatch", f"GPUs: {words}", always=new, quiet=not new)

    def port_taken(self, words: str) -> None:
        """Record that metrics and probes are not served."""
        self._blame("MetricsPortTaken", words)

    def gpus_unmeasured(self, words: str) -> None:
        """Record why there are no figures of the GPUs: once in the life of an engine."""
        self._blame("GpusUnmeasured", words)

    async def handle_line(self, log: str, line: str) -> None:
        """Handle a log line of HTCondor's daemons (file, line), and the report of a daemon that hung and was killed."""
        if log in (liveness.LOG, liveness.JOB_LOG):
            self._blame("HTCondorHangs", f"HTCondor's {line}", always=True)
        elif log == "MasterLog" and _SIGTERM in line:
            self._event_recorder.record(
                "Draining",
                "The pilot begins to end: HTCondor takes no more jobs, and vacates one that runs.",
                always=True,
            )

    def drained(self, reason: str) -> None:
        """Record that the engine ends as requested; `reason` is a phrase, or empty if it is not known."""
        words = f"No job runs here any more; the pilot ends{f': {reason}' if reason else ''}."
        self._event_recorder.record("Drained", logs.one_line(words), always=True)

    def _blame(
        self, reason: EventReason, words: str, *, key: str = "", always: bool = False, quiet: bool = False
    ) -> None:
        words = f"{words.rstrip('.')}."
        self.faults.append(Fault(datetime.now(UTC), reason, words, logs.subject().job))
        if not quiet:
            self._event_recorder.record(reason, logs.one_line(words), key=key, always=always)


def _job() -> str:
    job = logs.subject().job
    return f"Job {job}" if job else "A job"


def _ordinal(number: int) -> str:
    ending = "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _exit_reason(outcome: Outcome) -> ExitReason:
    if outcome.out_of_memory:
        return "out_of_memory"
    return "signalled" if outcome.signalled else "exited"


def _bind_result(error: BaseException | None) -> BindResult:
    if error is None:
        return "bound"
    kinds: dict[type[BaseException], BindResult] = {
        ImageError: "refused",
        ImageNotNow: "unavailable",
        ClusterRefused: "api",
        NotHere: "left",
        ClusterError: "api",
        Displaced: "displaced",
        asyncio.CancelledError: "given_up",
    }
    return next((result for kind, result in kinds.items() if isinstance(error, kind)), "failed")


def _hold_class(error: PilotError) -> HoldClass:
    kinds: dict[type[PilotError], HoldClass] = {
        ImageError: "image_refused",
        ImageNotAllowed: "image_refused",
        ImageNotHere: "image_refused",
        ClusterRefused: "api",
        ClusterError: "api",
        BindError: "image_failed",
        Untimely: "untimely",
        Refused: "not_supported",
    }
    return next((hold_class for kind, hold_class in kinds.items() if isinstance(error, kind)), "fault")
