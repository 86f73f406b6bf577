"""The contestants: provisioners, each with the lifetime of its pilots."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bench.provisioning import ours, prp
from bench.provisioning.curves import MEMORY_OF_CPU
from bench.provisioning.demand import Size
from bench.provisioning.ours import Ours
from bench.provisioning.pods import Shape
from bench.provisioning.pool import Life
from bench.provisioning.prp import Prp
from bench.provisioning.world import Provisioner
from k8spilot.provisioner.limits import Limits

CPUS = (1, 2, 4, 8)
STATIC = [Shape(f"cpus-{cpus}", Size(cpus, cpus * MEMORY_OF_CPU)) for cpus in CPUS]
"""A template for each size that jobs request: pilots with one slot, as PRP's pods."""
PARTITIONABLE = [Shape("slots-8", Size(8, 8 * MEMORY_OF_CPU), 8)]
"""One template: pilots with a partitionable slot over eight payload containers."""
LIMITS = Limits(max_pilots=256)
"""Limits of each template: as many pilots as the cluster has CPUs, and defaults."""
SHORT = Life(idle_seconds=300.0, seconds=ours.LIFE.seconds)
"""ACCEPT_IDLE_MINUTES=5, which docs/how-to/provision.md recommends for templates."""
LONG = Life(idle_seconds=prp.LIFE.idle_seconds, seconds=ours.LIFE.seconds)
"""PRP's idle time."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """A provisioner and its pilots."""

    words: str
    """Description for people."""
    make: Callable[[], Provisioner]


CONTESTANTS: Mapping[str, Contestant] = {
    "k8spilot": Contestant(
        "k8spilot's plan, one slot in a pod; pods end after 5 min without a job",
        lambda: Ours(STATIC, LIMITS, SHORT),
    ),
    "PRP, same pods": Contestant("PRP's loop; pods end after 5 min without a job", lambda: Prp(SHORT)),
    "PRP": Contestant("PRP's loop; pods end after 20 min without a job, and take jobs for 2 h (its defaults)", Prp),
    "k8spilot, 20 min": Contestant("k8spilot's plan; 20 min without a job", lambda: Ours(STATIC, LIMITS, LONG)),
    "PRP, 20 min": Contestant("PRP's loop; 20 min without a job", lambda: Prp(LONG)),
    "k8spilot, 8 slots": Contestant(
        "k8spilot's plan, pods of 8 CPUs with a partitionable slot; 5 min without a job",
        lambda: Ours(PARTITIONABLE, LIMITS, SHORT),
    ),
    "k8spilot, 8 slots, 20 min": Contestant(
        "k8spilot's plan, pods of 8 CPUs with a partitionable slot; 20 min without a job",
        lambda: Ours(PARTITIONABLE, LIMITS, LONG),
    ),
}
