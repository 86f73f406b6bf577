"""What Prometheus is told.

Counters count from the start of the engine. What is counted elsewhere, or is a state, is read when Prometheus asks. No
label has a value that users choose: a job's name or image as one would make a series for each.
"""

from collections import Counter as Count
from collections.abc import Iterable, Iterator, Mapping
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

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

BindResult = Literal["bound", "refused", "failed", "unavailable", "api", "displaced", "given_up"]
BIND_RESULTS: Final[Mapping[BindResult, str]] = {
    "bound": "the image runs",
    "refused": "the registry says that there is no such image, or not for us",
    "failed": "the node cannot run it, or not in time",
    "unavailable": "it was not to be had, for which the job is not to blame",
    "api": "the API server did not do its part",
    "displaced": "somebody else changed the image",
    "given_up": "the job was removed meanwhile",
}

ExitReason = Literal["exited", "signalled", "out_of_memory", "lost"]
EXIT_REASONS: Final[Mapping[ExitReason, str]] = {
    "exited": "by itself, with whatever code",
    "signalled": "by a signal",
    "out_of_memory": "killed by the kernel for want of memory",
    "lost": "no result: the job goes back to the queue",
}

HoldClass = Literal["image_refused", "image_failed", "not_supported", "api", "untimely", "start", "fault"]
HOLD_CLASSES: Final[Mapping[HoldClass, str]] = {
    "image_refused": "no such image, or no access to it",
    "image_failed": "the node cannot run the image, or not in time",
    "not_supported": "a pod cannot do what the job asks for",
    "api": "the API server did not do its part",
    "untimely": "another job has the slot, or this one was removed",
    "start": "the image was bound, but the job could not be started",
    "fault": "none of these",
}

_SECONDS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200, 1800)
"""From a bind of an image that is on the node to the usual time limit of one."""


@dataclass(frozen=True, slots=True)
class Now:
    """How a pilot is at this moment."""

    version: str
    state: PayloadState
    restarts: int
    """Engines that died in this container before this one."""
    requests: Mapping[tuple[str, str], int] = field(default_factory=Count)
    """To the API server, by verb and status."""
    reachable: bool = True
    heard: float | None = None
    """When the API server sent something last, seconds since the epoch."""
    running_since: datetime | None = None
    """When the job began, if there is one."""
    pulling_since: datetime | None = None
    """Since when the node is waited for, which pulls an image that nobody wants any more, while that is so."""


class Metrics:
    """The counters, and the text that Prometheus reads."""

    def __init__(self) -> None:
        # They are a series more for each, that tells nothing but when the engine started.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._binds = self._counter("binds", "Changes of the payload container's image", "result", BIND_RESULTS)
        self._exits = self._counter("payload_exits", "Ends of jobs' containers", "reason", EXIT_REASONS)
        self._holds = self._counter("holds", "Refusals that make HTCondor hold the job", "class", HOLD_CLASSES)
        self._seconds = Histogram(
            "k8spilot_bind_duration_seconds",
            "Time from the request for an image until it runs, the pull included",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._events = Counter(
            "k8spilot_events_suppressed_total",
            "Kubernetes Events that were not made, since there were too many",
            registry=self._registry,
        )
        ProcessCollector(registry=self._registry)

    def bind(self, result: BindResult, seconds: float) -> None:
        """Count a bind."""
        self._binds.labels(result).inc()
        if result == "bound":
            self._seconds.observe(seconds)

    def exit(self, reason: ExitReason) -> None:
        """Count the end of a job's container."""
        self._exits.labels(reason).inc()

    def hold(self, kind: HoldClass) -> None:
        """Count a refusal."""
        self._holds.labels(kind).inc()

    def suppress(self) -> None:
        """Count an Event that is not made."""
        self._events.inc()

    def text(self, now: Now, more: Iterable[Metric] = ()) -> bytes:
        """All of it in Prometheus' text format, with how the pilot is now and what else there is to tell."""
        return generate_latest(_Together(self._registry, now, more))

    def _counter(self, name: str, words: str, label: str, values: Iterable[str]) -> Counter:
        """A counter whose series are all there from the start, so that a rate sees the first one, too."""
        counter = Counter(f"k8spilot_{name}_total", words, [label], registry=self._registry)
        for value in values:
            counter.labels(value)
        return counter


class _Together(Collector):
    """The counters, and what is read when Prometheus asks."""

    def __init__(self, counters: Collector, now: Now, more: Iterable[Metric]) -> None:
        self._counters = counters
        self._now = now
        self._more = more

    def collect(self) -> Iterator[Metric]:
        """All families."""
        yield from self._counters.collect()
        yield from _families(self._now)
        yield from self._more


def _families(now: Now) -> Iterator[Metric]:
    """How the pilot is now."""
    yield _gauge("build_info", "Always 1; the version is in the label", 1, version=now.version)
    states = GaugeMetricFamily("k8spilot_state", "1 for the state that the slot is in", labels=["state"])
    for state in PayloadState:
        states.add_metric([state.value], float(state is now.state))
    yield states
    restarts = CounterMetricFamily("k8spilot_engine_restarts", "Engines that died in this container")
    restarts.add_metric([], now.restarts)
    yield restarts
    requests = CounterMetricFamily(
        "k8spilot_api_requests", "Requests to the Kubernetes API, by its verbs", labels=["verb", "code"]
    )
    for (verb, code), count in sorted(now.requests.items()):
        requests.add_metric([verb, code], count)
    yield requests
    yield _gauge("api_reachable", "1 if the own pod can be watched", float(now.reachable))
    yield _moment("api_last_contact_timestamp_seconds", "When the API server sent something last", now.heard)
    since = now.running_since.timestamp() if now.running_since is not None else None
    yield _moment("job_start_timestamp_seconds", "When the job began; not there while none runs", since)
    pulling = now.pulling_since.timestamp() if now.pulling_since is not None else None
    words = "Since when the node pulls an image that nobody wants any more; not there while it does not"
    yield _moment("given_up_bind_timestamp_seconds", words, pulling)


def _gauge(name: str, words: str, value: float, **labels: str) -> Metric:
    found = GaugeMetricFamily(f"k8spilot_{name}", words, labels=list(labels))
    found.add_metric(list(labels.values()), value)
    return found


def _moment(name: str, words: str, value: float | None) -> Metric:
    found = GaugeMetricFamily(f"k8spilot_{name}", words)
    if value is not None:
        found.add_metric([], value)
    return found


def wall_time(loop_time: float, now: float) -> float:
    """A moment of the event loop's clock, at which it is `now`, in seconds since the epoch."""
    return datetime.now(UTC).timestamp() - (now - loop_time)
