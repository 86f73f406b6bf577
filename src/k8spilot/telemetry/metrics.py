"""Metrics for Prometheus.

Counters count from the start of the engine. States, and values that other parts count, are read at each request. No
label has a value that users choose: a label with a job's name or image would create a series for each.
"""

from collections import Counter as Count
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal

from prometheus_client import disable_created_metrics
from prometheus_client.core import CollectorRegistry, CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics import Counter, Histogram
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from k8spilot.model.payload_state import PayloadState
from k8spilot.model.pool_state import PoolState

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

BindResult = Literal["bound", "refused", "left", "failed", "unavailable", "api", "displaced", "given_up"]
BIND_RESULTS: Final[Mapping[BindResult, str]] = {
    "bound": "the image runs in the payload container",
    "refused": "the registry says that the image does not exist, or it is invalid",
    "left": "this site has no access to the image or does not allow it, while another site may",
    "failed": "the node cannot run the image, or the time limit was exceeded",
    "unavailable": "the image was not available for too long; the job is not at fault",
    "api": "the API server failed, could not be reached, or refused the change",
    "displaced": "another client changed the image",
    "given_up": "the job was removed during the bind",
}

ExitReason = Literal["exited", "signalled", "out_of_memory", "lost"]
EXIT_REASONS: Final[Mapping[ExitReason, str]] = {
    "exited": "the job exited, with any exit code",
    "signalled": "the job was ended by a signal",
    "out_of_memory": "the kernel killed the job because it exceeded its memory limit",
    "lost": "there is no result, and the job goes back to the queue",
}

HoldClass = Literal[
    "image_refused", "image_failed", "not_supported", "disk", "api", "untimely", "start", "end", "fault"
]
HOLD_CLASSES: Final[Mapping[HoldClass, str]] = {
    "image_refused": "the image does not exist; if the operator wants it: the site has no access or does not allow it",
    "image_failed": "the node cannot run the image, or the time limit was exceeded",
    "not_supported": "the job asks for something that a pod cannot do",
    "disk": "the job has used more disk than it requested, or than the slot has",
    "api": "a policy of the cluster refuses the image",
    "untimely": "another job has the slot, or this job was removed",
    "start": "the image was bound, but the job could not be started in it",
    "end": "the job has ended its container's first process again",
    "fault": "any other failure",
}

_BUCKETS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200, 1800)
"""Buckets in seconds, from the bind of an image that is already on the node, to the usual time limit of a bind."""


@dataclass(frozen=True, slots=True)
class NowOfSlot:
    """State of a slot at this moment."""

    container: str
    """Name of its payload container."""
    state: PayloadState
    running_since: datetime | None = None
    """Start of the job; None without a job."""
    pulling_since: datetime | None = None
    """Start of the node's pull of an image that no job needs any more; None without such a pull."""


@dataclass(frozen=True, slots=True)
class Now:
    """State of a pilot at this moment."""

    version: str
    slots: Sequence[NowOfSlot]
    restarts: int
    """Number of engines that died in this container before this one."""
    requests: Mapping[tuple[str, str], int] = field(default_factory=Count)
    """Requests to the API server, by verb and status."""
    reachable: bool = True
    heard: float | None = None
    """Last time the API server sent anything, in seconds since the epoch."""
    closed_until: datetime | None = None
    """End of the time in which the slot takes no job because jobs fail; None if it does not last."""
    pool: PoolState | None = None
    """The pool's view of the slot; None while no HTCondor has reported."""


class Metrics:
    """Counters, and their text for Prometheus."""

    def __init__(self) -> None:
        # A created series shows only when the engine started.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._binds = self._counter(
            "binds", "Binds: changes of the payload container's image to that of a job", "result", BIND_RESULTS
        )
        self._reuses = Counter(
            "k8spilot_containers_reused_total",
            "Jobs that had the container of the last job of their claim (K8SPILOT_REUSE)",
            registry=self._registry,
        )
        self._exits = self._counter("payload_exits", "Jobs that have ended, by reason", "reason", EXIT_REASONS)
        self._holds = self._counter("holds", "Requests refused so that HTCondor holds the job", "class", HOLD_CLASSES)
        self._seconds = Histogram(
            "k8spilot_bind_duration_seconds",
            "Time of a successful bind, from the request until the image runs, including the pull",
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._events = Counter(
            "k8spilot_events_suppressed_total",
            "Kubernetes Events that were not published because there were too many",
            registry=self._registry,
        )
        ProcessCollector(registry=self._registry)

    def bind(self, result: BindResult, seconds: float) -> None:
        """Count a bind."""
        self._binds.labels(result).inc()
        if result == "bound":
            self._seconds.observe(seconds)

    def reuse(self) -> None:
        """Count a job that has the container of the last one."""
        self._reuses.inc()

    def exit(self, reason: ExitReason) -> None:
        """Count the end of a job's container."""
        self._exits.labels(reason).inc()

    def hold(self, kind: HoldClass) -> None:
        """Count a refusal."""
        self._holds.labels(kind).inc()

    def suppress(self) -> None:
        """Count a suppressed Event."""
        self._events.inc()

    def text(self, now: Now, more: Iterable[Metric] = ()) -> bytes:
        """Return all metrics in Prometheus' text format: the counters, the state now, and more families."""
        return generate_latest(_Together(self._registry, now, more))

    def _counter(self, name: str, words: str, label: str, values: Iterable[str]) -> Counter:
        """Create a counter with all its series, so that a rate includes the first increment."""
        counter = Counter(f"k8spilot_{name}_total", words, [label], registry=self._registry)
        for value in values:
            counter.labels(value)
        return counter


class _Together(Collector):
    """Collector of the counters and of the values that are read at each request."""

    def __init__(self, counters: Collector, now: Now, more: Iterable[Metric]) -> None:
        self._counters = counters
        self._now = now
        self._more = more

    def collect(self) -> Iterator[Metric]:
        """Yield all families."""
        yield from self._counters.collect()
        yield from _families(self._now)
        yield from self._more


def _families(now: Now) -> Iterator[Metric]:
    """Yield the families of the pilot's present state."""
    yield _gauge("build_info", "Always 1; the label has the version of k8spilot", 1, version=now.version)
    yield _states(now.slots)
    restarts = CounterMetricFamily(
        "k8spilot_engine_restarts", "How often the engine died and was started again in this container"
    )
    restarts.add_metric([], now.restarts)
    yield restarts
    requests = CounterMetricFamily(
        "k8spilot_api_requests",
        "Requests to the Kubernetes API by verb and status code; the code is none if no answer came",
        labels=["verb", "code"],
    )
    for (verb, code), count in sorted(now.requests.items()):
        requests.add_metric([verb, code], count)
    yield requests
    yield _gauge("api_reachable", "1 if the pilot can watch its own pod, else 0", float(now.reachable))
    yield _moment(
        "api_last_contact_timestamp_seconds",
        "Time of the last message from the API server, which sends one about once a minute",
        now.heard,
    )
    yield _moments(
        "job_start_timestamp_seconds",
        "Start time of the running job; absent while no job runs",
        {slot.container: slot.running_since for slot in now.slots},
    )
    closed = now.closed_until.timestamp() if now.closed_until is not None else None
    words = "Until when the slot takes no job, because jobs of several users failed one after another; absent otherwise"
    yield _moment("black_hole_until_timestamp_seconds", words, closed)
    yield _moments(
        "given_up_bind_timestamp_seconds",
        "Start time of a pull that no job needs any more and that the node continues; absent otherwise",
        {slot.container: slot.pulling_since for slot in now.slots},
    )
    in_pool = now.pool is not None and now.pool.in_pool
    yield _gauge("in_pool", "1 if a collector of the pool has the slot's ad, else 0", float(in_pool))
    yield _moment(
        "pool_last_update_timestamp_seconds",
        "Last known time at which a collector took the slot's ad; the pilot asks about every five minutes",
        now.pool.updated if now.pool is not None else None,
    )


def _states(slots: Iterable[NowOfSlot]) -> Metric:
    states = GaugeMetricFamily(
        "k8spilot_state",
        "1 for the current state of the payload container, 0 for the others",
        labels=["container", "state"],
    )
    for slot in slots:
        for state in PayloadState:
            states.add_metric([slot.container, state.value], float(state is slot.state))
    return states


def _gauge(name: str, words: str, value: float, **labels: str) -> Metric:
    family = GaugeMetricFamily(f"k8spilot_{name}", words, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family


def _moment(name: str, words: str, value: float | None) -> Metric:
    family = GaugeMetricFamily(f"k8spilot_{name}", words)
    if value is not None:
        family.add_metric([], value)
    return family


def _moments(name: str, words: str, values: Mapping[str, datetime | None]) -> Metric:
    """Return a time for each payload container that has one."""
    family = GaugeMetricFamily(f"k8spilot_{name}", words, labels=["container"])
    for container, value in values.items():
        if value is not None:
            family.add_metric([container], value.timestamp())
    return family


def wall_time(loop_time: float, now: float) -> float:
    """Return a time of the event loop's clock, whose current time is `now`, in seconds since the epoch."""
    return datetime.now(UTC).timestamp() - (now - loop_time)
