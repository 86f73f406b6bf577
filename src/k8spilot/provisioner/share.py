"""The part of the demand that one of several clusters serves, without a coordinator.

Each cluster counts all jobs of the pool, those that run and those that wait, and takes its part of them. What its own
pilots run is taken off that part. A job that lies on the border of two parts goes to one of the clusters: both compute
the same border, if their templates match the same jobs. Jobs that the templates of one cluster alone match need a
provisioner without a share.
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
    groups = [replace(group, idle=_part(group, part, factor)) if group.matches else group for group in demand.groups]
    return replace(demand, groups=[group for group in groups if group.idle])


def _part(group: JobGroup, part: Share, factor: float) -> int:
    """Return how many jobs of a group the cluster serves: those between two marks, which its neighbours know, too."""
    key = f"{group.user} {group.wanted}"
    shift = int.from_bytes(hashlib.sha256(key.encode()).digest()[:6]) / 2**48
    begin = group.idle * part.begin + shift
    end = round(begin + group.idle * factor, 6)  # 5 * 0.6 is no integer
    return math.floor(end) - math.floor(round(begin, 6))
