"""Report of a turn for people: the ConfigMap of the provisioner's status, and its text.

The ConfigMap is also where the records of failures outlive the process.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from k8spilot.provisioner.planning import scaling
from k8spilot.provisioner.planning.model import EXISTING, JobGroup, PilotState, TemplateClosure
from k8spilot.provisioner.planning.plan import TemplatePlan, TurnPlan

Json = dict[str, Any]

CONFIG_MAP: Final = "k8spilot-provisioner-status"
KEY: Final = "status.json"
_MOST_OF_USER: Final = 5
_MOST: Final = 20
"""Most groups of jobs that are named. A ConfigMap has at most 1 MiB."""
STALE_SECONDS: Final = 120.0
"""Age of a status from which no provisioner is at work."""
_SHOWN: Final = (
    PilotState.PENDING,
    PilotState.STARTING,
    PilotState.IDLE,
    PilotState.BUSY,
    PilotState.RETIRING,
    PilotState.LOST,
    PilotState.FAILING,
    PilotState.FAILED,
)

_KEPT: Final = ("templates", "otherPilots", "unmatched", "unmatchedJobs")
"""Parts of the status that a turn without a plan takes over from the one before."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn."""

    time: float
    """Its beginning, in seconds since the epoch."""
    seconds: float = 0.0
    leader: str = ""
    faults: Sequence[str] = ()
    """Why nothing was decided, or less than usual."""
    invalid: Mapping[str, str] = field(default_factory=dict)
    """Templates that cannot be used, with the reasons."""
    plan: TurnPlan | None = None
    """The plan; None if none could be made."""


def status(turn: Turn, before: Json) -> Json:
    """Return the status after a turn. A turn without a plan keeps the templates of the one before."""
    found: Json = {
        "time": round(turn.time),
        "seconds": round(turn.seconds, 2),
        "leader": turn.leader,
        "faults": list(turn.faults),
        "invalid": dict(turn.invalid),
    }
    if turn.plan is None:
        return {**found, **{name: before[name] for name in _KEPT if name in before}}
    unmatched = _unmatched(turn.plan.mismatches)
    places = Counter[str]()
    named = []
    for one in unmatched:
        places[one["user"]] += 1
        named += [one] if places[one["user"]] <= _MOST_OF_USER else []
    return {
        **found,
        "templates": {name: _template(one, turn.time) for name, one in sorted(turn.plan.templates.items())},
        "otherPilots": {
            name: _counts(Counter(pilot.state for pilot in own)) for name, own in sorted(turn.plan.others.items())
        },
        "unmatchedJobs": sum(one["number"] for one in unmatched),
        "unmatched": named[:_MOST],
    }


def _unmatched(groups: Sequence[JobGroup]) -> list[Json]:
    """Return the jobs that no template could run, one entry for each user and reason, the largest first."""
    found: dict[tuple[str, str], Json] = {}
    for group in groups:
        empty = {"user": group.user, "jobs": group.jobs, "number": 0, "reason": group.mismatch}
        found.setdefault((group.user, group.mismatch), empty)["number"] += group.idle
    return sorted(found.values(), key=lambda one: -int(one["number"]))


def _template(one: TemplatePlan, now: float) -> Json:
    return {
        "idleJobs": one.idle_jobs,
        "pilots": _counts(one.states),
        "most": one.template.limits.max_pilots,
        "create": one.create,
        "delete": len(one.delete),
        "lacking": one.lacking,
        "limit": one.limit,
        "next": next_step(one, now),
        "trouble": one.trouble,
        "closure": asdict(one.closure),
    }


def _counts(states: Counter[PilotState]) -> Json:
    return {str(state): number for state in PilotState if (number := states[state])}


def next_step(one: TemplatePlan, now: float) -> str:
    """Return what happens next to a template's pilots, and why, in a sentence."""
    parts = []
    if one.create:
        parts.append(f"{_pilots(one.create)} {_are(one.create)} made")
    ended = sum(pilot.state not in EXISTING for pilot, _ in one.delete)
    if going := len(one.delete) - ended:
        parts.append(f"{_pilots(going)} {_are(going)} deleted")
    if ended:
        parts.append("1 pod that has ended is removed" if ended == 1 else f"{ended} pods that have ended are removed")
    if one.lacking:
        more = "1 more pilot" if one.lacking == 1 else f"{one.lacking} more pilots"
        parts.append(f"{more} would have jobs: {one.limit}")
    elif one.limit:
        parts.append(one.limit)
    if now < one.closure.until and one.closure.reason not in one.limit:
        parts.append(scaling.closed(one.closure))
    if not parts and one.trouble:
        parts.append("pilots that do not start are waited for; trouble has the reason")
    if not parts:
        parts.append(
            "all idle jobs have pilots, or slots that take them within minutes"
            if one.idle_jobs
            else "no idle job matches"
        )
    return "; ".join(parts)


def _pilots(number: int) -> str:
    return "1 pilot" if number == 1 else f"{number} pilots"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def closures(found: Json) -> dict[str, TemplateClosure]:
    """Return the records of failures in a status, by template; none of an entry that cannot be read."""
    records = {}
    for name, one in (found.get("templates") or {}).items():
        try:
            records[name] = TemplateClosure(**one["closure"])
        except (KeyError, TypeError):
            continue
    return records


def _shown(pilots: Json) -> str:
    return ", ".join(f"{pilots[state]} {state}" for state in map(str, _SHOWN) if state in pilots) or "none"


def lines(found: Json, now: float) -> Iterator[str]:
    """Yield a status as text."""
    age = max(now - found.get("time", 0), 0)
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(found.get("time", 0)))
    late = ": no provisioner is at work" if age > STALE_SECONDS else ""
    yield f"provisioner {found.get('leader') or 'without a name'}, as of {stamp} UTC, {age:.0f} s ago{late}"
    for words in found.get("faults") or ():
        yield f"  fault     {words}"
    for name, words in sorted((found.get("invalid") or {}).items()):
        yield f"template {name}: not used"
        if own := (found.get("otherPilots") or {}).get(name):
            yield f"  pilots    {_shown(own)}"
        yield f"  fault     {words}"
    for name, one in (found.get("templates") or {}).items():
        idle = one.get("idleJobs", 0)
        yield f"template {name}: {idle} idle {'job matches' if idle == 1 else 'jobs match'}"
        yield f"  pilots    {_shown(one.get('pilots') or {})}, of at most {one.get('most', '?')}"
        if one.get("trouble"):
            yield f"  trouble   {one['trouble']}"
        yield f"  next      {one.get('next', '')}"
    if not found.get("templates") and not found.get("invalid") and not found.get("faults"):
        yield "no pod template: apply one with the label app.kubernetes.io/component=pilot-template"
    for one in found.get("unmatched") or ():
        jobs = "1 job" if one["number"] == 1 else f"{one['number']} jobs"
        yield f"no template for {jobs} of {one['user']}, such as {(one['jobs'].split() or ['?'])[0]}"
        yield f"  reason    {one['reason']}"
