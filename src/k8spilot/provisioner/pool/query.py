"""A query of the pool and its answer, as the worker process gets and returns them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from k8spilot.provisioner.planning.model import Demand, PilotSlot, Template
from k8spilot.provisioner.pool.access_points import AccessPoints


@dataclass(frozen=True, slots=True)
class PoolQuery:
    """A query of the pool."""

    namespace: str
    """Namespace of the pilots."""
    schedds: str
    """ClassAd expression over the ads of access points: those whose jobs count."""
    templates: Sequence[Template]
    suspects: Mapping[str, str] = field(default_factory=dict)
    """Users whose jobs are not evaluated, with the reason: a worker process hung or died of them (worker.py)."""
    access_points: AccessPoints = field(default_factory=AccessPoints)
    """Memory of earlier queries."""


@dataclass(frozen=True, slots=True)
class PoolView:
    """The answer."""

    demand: Demand
    slots: Sequence[PilotSlot]
    seconds: float
    access_points: AccessPoints = field(default_factory=AccessPoints)
    """The memory after this query."""
