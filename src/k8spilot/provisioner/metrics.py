"""Metrics of the provisioner for Prometheus. No label has a value that users of the pool choose."""

from collections import Counter as Count
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CollectorRegistry, CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from k8spilot.provisioner.planning.model import PilotState

if TYPE_CHECKING:
    from k8spilot.provisioner.planning.plan import TurnPlan

_TEMPLATE: Final = ("template",)


class ProvisionerMetrics(Collector):
    """Figures of the last turn, and counters since the start."""

    def __init__(self) -> None:
        self.plan: TurnPlan | None = None
        self.is_leader = False
        self.pool_answers = False
        self.api_answers = False
        self.turn_seconds = 0.0
        self.last_turn = 0.0
        self.invalid = 0
        self.created: Count[str] = Count()
        self.deleted: Count[str] = Count()
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """Return all metrics in Prometheus's format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        yield _gauge("leader", "Whether this provisioner holds the Lease and is at work.", self.is_leader)
        yield _gauge("pool_up", "Whether the pool answered in the last turn.", self.pool_answers)
        yield _gauge("api_up", "Whether the Kubernetes API could be watched in the last turn.", self.api_answers)
        yield _gauge("turn_seconds", "Time that the last turn took.", self.turn_seconds)
        yield _gauge("last_turn_timestamp_seconds", "Time of the last turn with a plan.", self.last_turn)
        yield _gauge("invalid_templates", "Pod templates that cannot be used.", self.invalid)
        plan = self.plan
        unmatched = sum(group.idle for group in plan.mismatches) if plan is not None else 0
        yield _gauge("unmatched_jobs", "Idle jobs that no template could run.", unmatched)
        idle, lacking, wanted, closed, pilots = (
            _of_template("idle_jobs", "Idle jobs that a pilot of the template could run."),
            _of_template("lacking_pilots", "Pilots that would have jobs and that a limit forbids."),
            _of_template("wanted_pilots", "Pilots that the demand asks for, those of use that exist included."),
            _of_template("closed_until_timestamp_seconds", "Time before which no pilot is made after failures, or 0."),
            _of_template("pilots", "Pilots by state.", "state"),
        )
        for name, one in (plan.templates if plan is not None else {}).items():
            idle.add_metric([name], one.idle_jobs)
            lacking.add_metric([name], one.lacking)
            wanted.add_metric([name], one.wanted)
            closed.add_metric([name], one.closure.until if one.closure.failures else 0)
            for state in PilotState:
                pilots.add_metric([name, str(state)], one.states[state])
        yield from (idle, lacking, wanted, closed, pilots)
        for count, what in ((self.created, "created"), (self.deleted, "deleted")):
            family = CounterMetricFamily(f"k8spilot_provisioner_{what}", f"Pilots {what}.", labels=_TEMPLATE)
            for name, number in count.items():
                family.add_metric([name], number)
            yield family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"k8spilot_provisioner_{name}", text, value=float(value))


def _of_template(name: str, text: str, *more: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"k8spilot_provisioner_{name}", text, labels=(*_TEMPLATE, *more))
