"""The pool of scale.py, in a process of its own: ads as HTCondor's daemons send them, read by the project's code."""

import time
from functools import cache
from typing import Any

import classad2

from k8spilot.provisioner.planning.model import Demand
from k8spilot.provisioner.pool import query_runner
from k8spilot.provisioner.pool.matching import Matcher
from k8spilot.provisioner.pool.query import PoolQuery, PoolView

_USERS = 40


def run(query: PoolQuery, pods: list[str], groups: int, jobs: int) -> PoolView:
    """Return the pool's idle jobs, in `groups` groups, and a slot for each of the pods (their uids)."""
    began = time.monotonic()
    matcher = _matcher(query)
    found = [matcher.group(ad) for ad in _jobs(groups, jobs)]
    slots = list(query_runner.slots_of(_slots(tuple(pods))))
    return PoolView(Demand(found, len(pods)), slots, time.monotonic() - began)


_matchers: dict[int, Matcher] = {}


def _matcher(query: PoolQuery) -> Matcher:
    """Parse the templates once, as query_runner.run does."""
    if 0 not in _matchers or _matchers[0].templates != query.templates:
        _matchers[0] = Matcher(query.templates)
    return _matchers[0]


@cache
def _jobs(groups: int, jobs: int) -> list[Any]:
    """Return ads of the access points' aggregated query."""
    return [
        classad2.ClassAd(
            {
                "User": f"user{number % _USERS}@pool",
                "JobUniverse": 5,
                "JobStatus": 1,
                "WantContainer": True,
                "ContainerImage": f"docker://registry.example/image{number}",
                "RequestCpus": 1 + number % 4,
                "RequestMemory": 200 + number,
                "RequestDisk": 1024,
                "Requirements": classad2.ExprTree('TARGET.HasContainer && TARGET.Arch == "X86_64"'),
                "JobCount": jobs // groups,
                "JobIds": f"{number}.0 {number}.1",
            }
        )
        for number in range(groups)
    ]


@cache
def _slots(pods: tuple[str, ...]) -> list[Any]:
    """Return ads of the collector: two of three slots have a job."""
    now = int(time.time())
    return [
        classad2.ClassAd(
            {
                "K8SPodUID": uid,
                "State": "Claimed" if number % 3 else "Unclaimed",
                "Cpus": 1,
                "Memory": 1024,
                "Disk": 1000000,
                "GPUs": 0,
                "TotalSlotGPUs": 0,
                "GLIDEIN_ToRetire": now + 86400,
                "EnteredCurrentState": now - 600,
                "MyCurrentTime": now,
                "RecentJobBusyTimeCount": 2,
                "RecentJobBusyTimeAvg": 300.0,
            }
        )
        for number, uid in enumerate(pods)
    ]
