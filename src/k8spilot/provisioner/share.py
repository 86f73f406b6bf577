"""The part of the demand that one of several clusters serves, without a coordinator.

Each cluster counts all jobs of the pool, those that run and those that wait, and takes its part of them. What its own
pilots run is taken off that part. Fractions of a group of jobs go to exactly one of the clusters: all of them compute
the same number for the group, and each has another part of the numbers from 0 to 1.
"""

import hashlib
import math
from dataclasses import replace

from k8spilot.provisioner.model import Demand, JobGroup
from k8spilot.provisioner.settings import Share


def of(demand: Demand, part: Share, own_running: int) -> Demand:
    """Return the demand that a cluster with the share `part` serves, whose pilots run `own_running` jobs."""
    idle = sum(group.idle for group in demand.groups if group.matches)
    if part.size >= 1 or not idle:
        return demand
    wanted = part.size * (idle + demand.running) - min(own_running, demand.running)
    factor = min(max(wanted / idle, 0.0), 1.0)
    groups = [
        replace(group, idle=math.floor(group.idle * factor + _offset(group, part))) if group.matches else group
        for group in demand.groups
    ]
    return replace(demand, groups=[group for group in groups if group.idle])


def _offset(group: JobGroup, part: Share) -> float:
    """Return a number from 0 to 1 that is the group's own, moved by the cluster's part."""
    key = f"{group.user} {group.wanted} {sorted(group.matches)}"
    number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:6]) / 2**48
    return (number + part.begin) % 1.0
