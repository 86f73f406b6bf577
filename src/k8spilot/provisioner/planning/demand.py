"""The demand that this cluster serves, in the groups that the plan takes. Pure.

Several clusters share the jobs of a pool without a coordinator. Each one counts all idle and running jobs, computes its
share of them, and subtracts the jobs that its own pilots run. Jobs that match the templates of one cluster alone need
a provisioner without a share.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from k8spilot.provisioner.planning.model import Demand, JobGroup
from k8spilot.provisioner.planning.resources import Resources
from k8spilot.provisioner.settings import Share


def share_of(demand: Demand, share: Share, own_running: int) -> Demand:
    """Return the demand that a cluster with such a share serves, whose pilots run `own_running` jobs."""
    idle = sum(group.idle for group in demand.groups if group.matches)
    if share.size >= 1 or not idle:
        return demand
    wanted = share.size * (idle + demand.running) - min(own_running, demand.running)
    factor = min(max(wanted / idle, 0.0), 1.0)
    groups = [replace(group, idle=_part(group, share, factor)) if group.matches else group for group in demand.groups]
    return replace(demand, groups=[group for group in groups if group.idle])


def _part(group: JobGroup, share: Share, factor: float) -> int:
    """Return how many jobs of a group the cluster serves.

    It serves the jobs of the group with numbers from `begin` to `end`. The next cluster begins at `end`, if the
    templates of both match the same jobs: then both compute the same numbers, and each job has one cluster.
    """
    key = f"{group.user} {group.wanted}"
    shift = int.from_bytes(hashlib.sha256(key.encode()).digest()[:6]) / 2**48
    begin = group.idle * share.begin + shift
    end = round(begin + group.idle * factor, 6)  # 5 * 0.6 is no integer
    return math.floor(end) - math.floor(round(begin, 6))


def merged(groups: Iterable[JobGroup]) -> list[JobGroup]:
    """Return the groups that match a template; those that differ in nothing that counts for the plan are one."""
    found: dict[tuple[object, ...], JobGroup] = {}
    for group in groups:
        if group.matches:
            key = (group.user, group.wanted, tuple(group.matches.items()))
            before = found.get(key)
            found[key] = group if before is None else replace(before, idle=before.idle + group.idle)
    return list(found.values())


def smallest(groups: Sequence[JobGroup]) -> Resources:
    """Return the least that a job of any group wants, of each resource."""
    wanted = [group.wanted for group in groups]
    return Resources(
        min((one.cpus for one in wanted), default=0),
        min((one.memory for one in wanted), default=0),
        min((one.disk for one in wanted), default=0),
        min((one.gpus for one in wanted), default=0),
    )
