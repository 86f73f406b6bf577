"""One look at the pool by HTCondor's library: the idle jobs of its access points, and the slots of the pilots.

Runs in the pool worker's process only (pool_worker.py).
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import htcondor2

from k8spilot.provisioner.matching import Matcher
from k8spilot.provisioner.model import Demand, JobGroup, PilotSlot, PoolView, Question
from k8spilot.provisioner.resources import Resources

_IDLE, _RUNNING, _VANILLA = 1, 2, 5
"""Values of JobStatus and JobUniverse."""
_SLOT: Final = [
    "K8SPodUID",
    "State",
    "PartitionableSlot",
    "NumDynamicSlots",
    "Cpus",
    "Memory",
    "Disk",
    "GPUs",
    "TotalSlotGPUs",
    "GLIDEIN_ToRetire",
    "K8SBlackHoleUntil",
    "Draining",
    "EnteredCurrentState",
    "ChildEnteredCurrentState",
    "MyCurrentTime",
    "RecentJobBusyTimeAvg",
    "RecentJobBusyTimeCount",
]
_WINDOW_SECONDS: Final = 1200.0
"""Window of the startd's recent statistics (StartdStats in ResMgr.h)."""


_matcher: Matcher | None = None


def look(question: Question) -> PoolView:
    """Return the pool's idle jobs and the slots of the pilots.

    Raises:
        RuntimeError: the collector did not answer.
    """
    global _matcher  # noqa: PLW0603 -- the process is one worker, and the ads are parsed once for each change
    if _matcher is None or _matcher.templates != question.templates:
        _matcher = Matcher(question.templates)
    began = time.monotonic()
    collector = htcondor2.Collector()
    try:
        slots = collector.query(htcondor2.AdType.Startd, _of_namespace(question.namespace), _SLOT)
        schedds = collector.query(
            htcondor2.AdType.Schedd, question.schedds, ["Name", "MyAddress", "CondorVersion", "AddressV1"]
        )
    except htcondor2.HTCondorException as error:
        raise RuntimeError(f"the collector does not answer: {error}") from None
    groups: list[JobGroup] = []
    running, missing = 0, []
    for ad in schedds:
        try:
            idle, more = _jobs(ad, _matcher)
        except htcondor2.HTCondorException as error:
            missing.append(f"the access point {ad.get('Name')} does not answer: {error}")
        else:
            groups += idle
            running += more
    return PoolView(Demand(groups, running, missing), list(slots_of(slots)), time.monotonic() - began)


def _jobs(schedd: Any, matcher: Matcher) -> tuple[list[JobGroup], int]:
    """Return the idle jobs of an access point, and the number of running ones that match a template.

    The access point aggregates them (aggregate_jobs in the schedd's autocluster.cpp). It does not evaluate a constraint
    over the jobs there, so that the status is one of the attributes that tell groups apart.
    """
    attributes = ["JobStatus", *matcher.attributes]
    found = htcondor2.Schedd(schedd).query("", attributes, opts=htcondor2.QueryOpts.GroupBy)
    of_status: dict[int, list[JobGroup]] = {_IDLE: [], _RUNNING: []}
    for ad in found:
        groups = of_status.get(int(ad.get("JobStatus", 0)))
        if groups is not None and ad.get("JobUniverse") == _VANILLA:
            groups.append(matcher.group(ad))
    return of_status[_IDLE], sum(group.idle for group in of_status[_RUNNING] if group.matches)


def _of_namespace(namespace: str) -> str:
    return f'K8SNamespace == "{namespace}" && SlotType != "Dynamic"'


def slots_of(ads: Sequence[Any]) -> Iterator[PilotSlot]:
    """Yield the slots in the ads of startds."""
    now = time.time()
    for ad in ads:
        if ad.get("PartitionableSlot") is True:
            running = int(ad.get("NumDynamicSlots", 0))
        else:
            running = int(ad.get("State") != "Unclaimed")
        yield PilotSlot(
            pod_uid=str(ad.get("K8SPodUID", "")),
            has_gpus=int(ad.get("TotalSlotGPUs", 0)) > 0,
            running=running,
            is_draining=ad.get("Draining") is True or ad.get("State") == "Drained",
            to_retire=float(ad.get("GLIDEIN_ToRetire", 0)),
            room=Resources(
                float(ad.get("Cpus", 0)), int(ad.get("Memory", 0)), int(ad.get("Disk", 0)), int(ad.get("GPUs", 0))
            ),
            is_black_hole=now < float(ad.get("K8SBlackHoleUntil") or 0),
            ended_jobs=int(ad.get("RecentJobBusyTimeCount", 0)),
            ended_seconds=int(ad.get("RecentJobBusyTimeCount", 0)) * float(ad.get("RecentJobBusyTimeAvg", 0)),
            claimed_seconds=_claimed_seconds(ad),
        )


def _claimed_seconds(ad: Any) -> float:
    """Return for how long the slot's claims have lasted within the window; of several at a time, the sum."""
    if ad.get("PartitionableSlot") is True:
        since = ad.eval("ChildEnteredCurrentState") if "ChildEnteredCurrentState" in ad else []
    else:
        since = [ad.get("EnteredCurrentState")] if ad.get("State") == "Claimed" else []
    now = float(ad.get("MyCurrentTime", 0))
    return sum(min(max(now - one, 0.0), _WINDOW_SECONDS) for one in since if isinstance(one, int | float))
