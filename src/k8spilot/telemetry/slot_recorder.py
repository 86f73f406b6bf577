"""Keeps account of what happens: counts for Prometheus, Events for people, and the last faults for the status."""

import asyncio
import logging
from collections import deque
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from k8spilot.common import logs
from k8spilot.common.errors import (
    BindError,
    ClusterError,
    ClusterRefused,
    Displaced,
    ImageError,
    ImageNotAllowed,
    ImageNotNow,
    NotNow,
    PilotError,
    Refused,
    Untimely,
)
from k8spilot.condor import liveness
from k8spilot.model.event_reasons import EventReason
from k8spilot.model.outcome import Outcome
from k8spilot.model.reference import Reference
from k8spilot.payload.listeners import SlotListener
from k8spilot.telemetry.event_recorder import EventRecorder
from k8spilot.telemetry.metrics import BindResult, ExitReason, HoldClass, Metrics

logger = logging.getLogger(__name__)

_FAULTS: Final = 10
_AWAY_SECONDS: Final = 30.0
"""An API server that is away for less is not worth an Event."""
_TOLD_TO_END: Final = "Got SIGTERM. Performing graceful shutdown."
"""What condor_master logs then (condor_daemon_core, main_shutdown_graceful)."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that went wrong."""

    when: datetime
    what: EventReason
    """The Event's reason."""
    words: str
    job: str = ""

    def json(self) -> dict[str, Any]:
        """For the status."""
        return {**asdict(self), "when": self.when.isoformat(timespec="seconds")}


class SlotRecorder(SlotListener):
    """Is told of everything."""

    def __init__(self, metrics: Metrics, event_recorder: EventRecorder) -> None:
        self._metrics = metrics
        self._event_recorder = event_recorder
        self.faults: deque[Fault] = deque(maxlen=_FAULTS)
        """The last ones, the newest at the end."""

    def bind_ended(self, reference: Reference, seconds: float, error: BaseException | None) -> None:
        """Count it. Of those that fail, `held` tells if a job has to suffer."""
        self._metrics.bind(_bind_result(error), seconds)
        if error is None:
            self._event_recorder.tell_once("Bound", f"Image {reference} runs, after {seconds:.1f} s.", reference.source)
        elif isinstance(error, ImageNotNow):
            self._blame("ImageUnavailable", str(error), key=reference.source)
        elif isinstance(error, NotNow):
            self._blame("NotBound", str(error))

    def ended(self, outcome: Outcome) -> None:
        """Count it: jobs end all the time, and make no Events."""
        self._metrics.exit(_exit_reason(outcome))

    def lost(self, why: str) -> None:
        """Count it, and tell."""
        self._metrics.exit("lost")
        self._blame("JobLost", f"{_job()} was lost: {why}", key=why)

    def held(self, error: PilotError, at: Literal["create", "start"]) -> None:
        """Count it, and tell, if it is a job of HTCondor's."""
        if not logs.subject().slot:
            return
        kind = "start" if at == "start" else _hold_class(error)
        self._metrics.hold(kind)
        if kind == "untimely":
            return
        reason: EventReason = "ImageRefused" if kind in ("image_refused", "image_failed") else "JobRefused"
        self._blame(reason, f"{_job()} will be held: {error}", key=str(error))

    def still_pulling(self, reference: Reference, words: str) -> None:
        """Tell it, whatever jobs have had told before: nobody but a person can end that."""
        self._blame("StillPulling", words[:1].upper() + words[1:], key=reference.source, always=True)

    def returned(self, seconds: float) -> None:
        """The API server is there again."""
        words = f"The Kubernetes API was away, or did not do its part, for {seconds:.0f} s; jobs that ran went on."
        logger.info("%s", words)
        if seconds >= _AWAY_SECONDS:
            self._blame("ApiUnreachable", words)

    def recovered(self, deaths: int) -> None:
        """This engine is not the first of its container."""
        if deaths:
            self._blame(
                "Recovered",
                f"The engine died and was started again, for the {_ordinal(deaths)} time in this container; a job that "
                "ran goes back to the queue.",
                always=True,
            )

    def gpus_doubtful(self, words: str, *, new: bool) -> None:
        """What the pod was promised of GPUs is not what can be seen."""
        self._blame("GpuMismatch", f"GPUs: {words}", always=new, quiet=not new)

    def port_taken(self, words: str) -> None:
        """Metrics and probes are not served."""
        self._blame("MetricsPortTaken", words)

    def gpus_unmeasured(self, words: str) -> None:
        """There are no figures of the GPUs, and why: once in the life of an engine."""
        self._blame("GpusUnmeasured", words)

    async def heed(self, log: str, line: str) -> None:
        """Read what HTCondor's daemons log: file, line; and which of them were ended since they hung."""
        if log in (liveness.LOG, liveness.JOB_LOG):
            self._blame("HTCondorHangs", f"HTCondor's {line}", always=True)
        elif log == "MasterLog" and _TOLD_TO_END in line:
            self._event_recorder.tell(
                "Draining",
                "The pilot was told to end: HTCondor takes no more jobs, and vacates the one that runs.",
                always=True,
            )

    def drained(self) -> None:
        """The engine ends as it was told to."""
        self._event_recorder.tell("Drained", "No job runs here any more; the pilot ends.", always=True)

    def _blame(
        self, reason: EventReason, words: str, *, key: str = "", always: bool = False, quiet: bool = False
    ) -> None:
        words = f"{words.rstrip('.')}."
        self.faults.append(Fault(datetime.now(UTC), reason, words, logs.subject().job))
        if not quiet:
            self._event_recorder.tell(reason, logs.one_line(words), key=key, always=always)


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
        ClusterError: "api",
        Displaced: "displaced",
        asyncio.CancelledError: "given_up",
    }
    return next((result for kind, result in kinds.items() if isinstance(error, kind)), "failed")


def _hold_class(error: PilotError) -> HoldClass:
    kinds: dict[type[PilotError], HoldClass] = {
        ImageError: "image_refused",
        ImageNotAllowed: "image_refused",
        ClusterRefused: "api",
        ClusterError: "api",
        BindError: "image_failed",
        Untimely: "untimely",
        Refused: "not_supported",
    }
    return next((found for kind, found in kinds.items() if isinstance(error, kind)), "fault")
