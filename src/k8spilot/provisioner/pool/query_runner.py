"""One query of the pool by HTCondor's library: the idle jobs of its access points, and the slots of the pilots.

Runs in the pool worker's process only (worker.py).
"""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import classad2
import htcondor2

from k8spilot.provisioner.planning.model import Demand, JobGroup, PilotSlot
from k8spilot.provisioner.planning.resources import Resources
from k8spilot.provisioner.pool.access_points import AccessPoints, as_suspect
from k8spilot.provisioner.pool.matching import Matcher
from k8spilot.provisioner.pool.query import PoolQuery, PoolView

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
    "Activity",
    "ChildActivity",
    "EnteredCurrentState",
    "ChildEnteredCurrentState",
    "MyCurrentTime",
    "RecentJobBusyTimeAvg",
    "RecentJobBusyTimeCount",
]
_MOST_GROUPS: Final = 1000
"""Groups of one user's jobs at one access point that count, the largest ones. The others follow when these have run."""
_WINDOW_SECONDS: Final = 1200.0
"""Window of the startd's recent statistics (StartdStats in ResMgr.h)."""


_AUTHENTICATION: Final = ("SEC_CLIENT_AUTHENTICATION", "SEC_CLIENT_AUTHENTICATION_METHODS")
_OF_COLLECTOR: Final = ("COLLECTOR_AUTHENTICATION", "COLLECTOR_AUTHENTICATION_METHODS")
"""The same for queries of the collector (configuration.py)."""
_ASKING_SECONDS: Final = 40.0
"""Time of a query after which no other access point is asked."""
_USER_SECONDS: Final = 3.0
"""Time for the expressions of one user's jobs in a query: a single one can take seconds."""


_matcher: Matcher | None = None


def run(query: PoolQuery, record_suspect: Callable[[str], None]) -> PoolView:
    """Return the pool's idle jobs and the slots of the pilots.

    Args:
        query: the query.
        record_suspect: records whose jobs are evaluated now, or which access point answers.

    Raises:
        RuntimeError: the collector did not answer.
    """
    global _matcher  # noqa: PLW0603 -- the process is one worker, and the ads are parsed once for each change
    if _matcher is None or _matcher.templates != query.templates:
        _matcher = Matcher(query.templates)
    began = time.monotonic()
    collector = htcondor2.Collector()
    usual = {name: htcondor2.param[name] for name in _AUTHENTICATION}
    for name, own in zip(_AUTHENTICATION, _OF_COLLECTOR, strict=True):
        htcondor2.param[name] = htcondor2.param[own]
    try:
        slots = collector.query(htcondor2.AdType.Startd, _of_namespace(query.namespace), _SLOT)
        schedds = collector.query(
            htcondor2.AdType.Schedd, query.schedds, ["Name", "MyAddress", "CondorVersion", "AddressV1"]
        )
    except htcondor2.HTCondorException as error:
        doubt = ", or refuses the token" if htcondor2.param[_OF_COLLECTOR[0]] == "REQUIRED" else ""
        raise RuntimeError(f"the collector does not answer{doubt}: {error}") from None
    finally:
        for name, value in usual.items():
            htcondor2.param[name] = value
    grouping = Grouping(_matcher, query.suspects, record_suspect)
    demand = demand_of(schedds, grouping, query.access_points, began)
    return PoolView(demand, list(slots_of(slots)), time.monotonic() - began, query.access_points)


def demand_of(schedds: Sequence[Any], grouping: "Grouping", memory: AccessPoints, began: float) -> Demand:
    """Return the jobs of all access points. `memory` is changed."""
    groups: list[JobGroup] = []
    running, missing = 0, memory.absent({str(ad.get("Name")) for ad in schedds}, began)
    is_complete = not missing
    for ad in schedds:
        name = str(ad.get("Name"))
        try:
            idle, more = _answer(name, ad, grouping=grouping, memory=memory, began=began)
        except _SilentError as error:
            missing.append(str(error))
            is_complete = is_complete and not memory.is_missed(name, began)
        else:
            memory.answered(name, began)
            groups += idle
            running += more
    return Demand(groups, running, missing, is_complete)


class _SilentError(Exception):
    """Raised when an access point does not answer, or is not asked."""


def _answer(
    name: str, schedd: Any, grouping: "Grouping", memory: AccessPoints, began: float
) -> tuple[list[JobGroup], int]:
    """Return what `_jobs` does, unless the access point is left out or the query takes too long already."""
    if why := memory.why_left_out(name, began):
        raise _SilentError(why)
    if time.monotonic() - began > _ASKING_SECONDS:
        raise _SilentError(f"the access point {name} was not asked in this turn, since others took too long")
    grouping.record_suspect(as_suspect(name))
    try:
        return _jobs(schedd, grouping)
    except htcondor2.HTCondorException as error:
        memory.leave_out_silent(name)
        raise _SilentError(f"the access point {name} does not answer: {error}") from error
    except MemoryError as error:
        raise _SilentError(memory.leave_out_large(name, "memory")) from error
    finally:
        grouping.record_suspect("")


def _jobs(schedd: Any, grouping: "Grouping") -> tuple[list[JobGroup], int]:
    """Return the idle jobs of an access point, and the number of running ones that match a template.

    The access point aggregates them (aggregate_jobs in the schedd's autocluster.cpp). It does not evaluate a constraint
    over the jobs there, so that the status is one of the attributes that tell groups apart.
    """
    attributes = ["JobStatus", *grouping.matcher.attributes]
    found = htcondor2.Schedd(schedd).query("", attributes, opts=htcondor2.QueryOpts.GroupBy)
    of_status: dict[object, list[JobGroup]] = {_IDLE: [], _RUNNING: []}
    for ad in largest(found):
        of_status[ad.get("JobStatus")].append(grouping.group(ad))
    return of_status[_IDLE], sum(group.idle for group in of_status[_RUNNING] if group.matches)


def largest(ads: Iterable[Any]) -> Iterator[Any]:
    """Yield the ads of groups of idle and running jobs, of each user the largest ones: there may be any number."""
    of_user: dict[object, list[Any]] = {}
    for ad in ads:
        if ad.get("JobStatus") in (_IDLE, _RUNNING) and ad.get("JobUniverse") == _VANILLA:
            of_user.setdefault(ad.get("User"), []).append(ad)
    for own in of_user.values():
        own.sort(key=lambda ad: -number(ad, "JobCount"))
        yield from own[:_MOST_GROUPS]


class Grouping:
    """Groups of jobs in one query. What a user has written must not end the query for all others."""

    def __init__(
        self, matcher: Matcher, suspects: Mapping[str, str], record_suspect: Callable[[str], None] = lambda _: None
    ) -> None:
        self.matcher = matcher
        self.record_suspect = record_suspect
        self._refused = dict(suspects)
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def group(self, ad: Any) -> JobGroup:
        """Return a group of jobs."""
        user = str(ad.get("User", ""))
        if user in self._refused:
            return _mismatch(ad, self._refused[user])
        self.record_suspect(user)
        began = time.monotonic()
        try:
            return self.matcher.group(ad)
        except (
            classad2.ClassAdException,
            ArithmeticError,
            TypeError,
            ValueError,
            RecursionError,
            MemoryError,
        ) as error:
            return _mismatch(ad, f"an expression of the jobs cannot be evaluated ({type(error).__name__})")
        finally:
            self.record_suspect("")
            self._seconds[user] += time.monotonic() - began
            if self._seconds[user] > _USER_SECONDS:
                self._refused[user] = "the expressions of this user's jobs take too long to evaluate"


def _mismatch(ad: Any, reason: str) -> JobGroup:
    user, jobs = str(ad.get("User", "")), str(ad.get("JobIds", ""))
    return JobGroup(user, int(number(ad, "JobCount")), Resources(1), jobs=jobs, mismatch=reason)


def number(ad: Any, name: str, default: float = 0.0) -> float:
    """Return a finite number of an ad, and `default` for anything else."""
    value = ad.get(name, default)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else default


def _of_namespace(namespace: str) -> str:
    return f'K8SNamespace == "{namespace}" && SlotType != "Dynamic"'


def slots_of(ads: Sequence[Any]) -> Iterator[PilotSlot]:
    """Yield the slots in the ads of startds."""
    now = time.time()
    for ad in ads:
        is_partitionable = ad.get("PartitionableSlot") is True
        ended = int(number(ad, "RecentJobBusyTimeCount"))
        yield PilotSlot(
            pod_uid=str(ad.get("K8SPodUID", "")),
            has_gpus=number(ad, "TotalSlotGPUs") > 0,
            running=int(number(ad, "NumDynamicSlots")) if is_partitionable else int(ad.get("State") != "Unclaimed"),
            idle_claims=_of_claims(ad, "Activity").count("Idle"),
            is_draining=ad.get("Draining") is True or ad.get("State") == "Drained",
            to_retire=number(ad, "GLIDEIN_ToRetire"),
            room=Resources(
                number(ad, "Cpus"), int(number(ad, "Memory")), int(number(ad, "Disk")), int(number(ad, "GPUs"))
            ),
            is_black_hole=now < number(ad, "K8SBlackHoleUntil"),
            ended_jobs=ended,
            ended_seconds=ended * number(ad, "RecentJobBusyTimeAvg"),
            claimed_seconds=_claimed_seconds(ad),
        )


def _claimed_seconds(ad: Any) -> float:
    """Return for how long the slot's claims have lasted within the window; of several at a time, the sum."""
    now = number(ad, "MyCurrentTime")
    times = [one for one in _of_claims(ad, "EnteredCurrentState") if isinstance(one, int | float)]
    return sum(min(max(now - one, 0.0), _WINDOW_SECONDS) for one in times)


def _of_claims(ad: Any, name: str) -> list[Any]:
    """Return the values of an attribute for each claim: a partitionable slot has those of its dynamic slots."""
    if ad.get("PartitionableSlot") is not True:
        return [ad.get(name)] if ad.get("State") == "Claimed" else []
    found = ad.eval(f"Child{name}") if f"Child{name}" in ad else []
    return found if isinstance(found, list) else []
