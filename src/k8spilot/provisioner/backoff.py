"""When a template is closed: pilots of it fail, are stuck, or run jobs that fail.

A template is closed after a failure for a time that doubles. Then one pilot is tried. A pilot that reaches the pool
opens the template, and so does a change of the template.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from k8spilot.provisioner.model import IN_POOL, PENDING, Closure, Pilot, PilotState, Template

FIRST_SECONDS: Final = 30.0
LONGEST_SECONDS: Final = 3600.0
LONGEST_WAIT_SECONDS: Final = 60.0
"""Longest time for which a template is closed for want of room or quota: both come and go, and a trial costs little."""
STUCK_SECONDS: Final = 60.0
"""Seconds after which a pending pilot with a trouble counts as stuck: a scheduler and a registry need their time."""
LATE_SECONDS: Final = 600.0
"""Seconds after which a pilot that has started and is not in the pool counts as stuck."""
UNSCHEDULABLE: Final = "Unschedulable"
"""Reason of the condition PodScheduled where no node has room."""
IN_VAIN: Final = 3
"""Pilots that end without a job, after which the jobs that match are taken for jobs that do not start."""
_SKEW_SECONDS: Final = 60.0
KEPT: Final = 3
"""Failed pilots of a template that are kept, to be looked at."""
KEPT_SECONDS: Final = 24 * 3600.0
ENDED_SECONDS: Final = 300.0
"""Seconds for which a pilot that came to its end is kept."""
FAILING_SECONDS: Final = 600.0
"""Seconds after which a pilot that ends again and again makes room for another trial."""


def judge(
    before: Closure, template: Template, pilots: Sequence[Pilot], now: float, refusal: str = "", idle: int = 0
) -> Closure:
    """Return the record of a template after a turn.

    Args:
        before: the record until now.
        template: the template.
        pilots: its pilots.
        now: seconds since the epoch.
        refusal: why the API server refused the last pilot, in words; empty if it did not.
        idle: idle jobs that match the template.
    """
    pilots = [pilot for pilot in pilots if pilot.template_version == template.version]
    if max(before.until - before.pause, before.last) > now + _SKEW_SECONDS:  # the clock was wrong
        before = Closure(version=before.version)
    if before.version != template.version:
        before = Closure(version=template.version)
    elif not refusal and any(_proves(pilot, before) for pilot in pilots):
        before = Closure(version=template.version, last=before.last)  # pods that failed before may still be there
    failed = [
        pilot for pilot in pilots if pilot.state in (PilotState.FAILED, PilotState.FAILING) and not pilot.has_worked
    ]
    latest = max(failed, key=_failed_at, default=None)
    if latest is not None and _failed_at(latest) > before.last:
        return _closed(before, _failed_at(latest), now, f"the pilot {latest.name} failed: {latest.trouble}")
    if idle and (ends := _in_vain(pilots, before)):
        reason = (
            f"the last {len(ends)} pilots ended without a job, though {idle} idle jobs match; ask condor_q "
            "-better-analyze why these jobs do not start"
        )
        return replace(_closed(before, max(ends), now, reason), needs_job=True)
    if now < before.until:
        return before
    if words := refusal or next(_without_room(pilots, now), ""):
        return _closed(before, now, now, words, LONGEST_WAIT_SECONDS)
    if words := next(_standing(pilots, now), ""):
        return _closed(before, now, now, words)
    return before


def is_stuck(pilot: Pilot, now: float) -> bool:
    """Return whether a pilot does not come into the pool, so that no job should be left to it."""
    if pilot.state not in PENDING:
        return False
    if pilot.state is PilotState.STARTING and not pilot.trouble:
        return now - max(pilot.started, pilot.created) > LATE_SECONDS
    return bool(pilot.trouble) and now - max(pilot.trouble_since, pilot.created) > STUCK_SECONDS


def probes(record: Closure) -> bool:
    """Return whether one pilot at a time is tried, because the last ones failed."""
    return record.failures > 0


def _closed(before: Closure, when: float, now: float, reason: str, longest: float = LONGEST_SECONDS) -> Closure:
    failures = before.failures + 1
    pause = min(FIRST_SECONDS * 2 ** min(failures - 1, 20), longest)
    return Closure(failures, now + pause, reason, max(when, before.last), before.version, pause=pause)


def _failed_at(pilot: Pilot) -> float:
    """Return when a pilot failed; of one that ends again and again only the first time counts."""
    return pilot.created if pilot.state is PilotState.FAILING else pilot.trouble_since


def _in_vain(pilots: Sequence[Pilot], record: Closure) -> list[float]:
    """Return the times at which pilots ended without ever having a job, if that is so of all the last ones."""
    if any(pilot.had_job for pilot in pilots):
        return []
    ends = [
        pilot.trouble_since
        for pilot in pilots
        if pilot.state is PilotState.SUCCEEDED and pilot.has_worked and pilot.trouble_since > record.last
    ]
    return ends if len(ends) >= (1 if record.needs_job else IN_VAIN) else []


def _proves(pilot: Pilot, record: Closure) -> bool:
    """Return whether the pilot shows that the template works again."""
    works = pilot.had_job or not record.needs_job
    return pilot.state in IN_POOL and works and not pilot.is_black_hole and pilot.started > record.last > 0


def _without_room(pilots: Sequence[Pilot], now: float) -> Iterator[str]:
    """Yield why no node has room for pilots."""
    for pilot in pilots:
        if is_stuck(pilot, now) and pilot.trouble.startswith(UNSCHEDULABLE):
            yield f"the pilot {pilot.name} does not start: {pilot.trouble}"


def _standing(pilots: Sequence[Pilot], now: float) -> Iterator[str]:
    """Yield troubles that last."""
    for pilot in pilots:
        if is_stuck(pilot, now):
            late = f"it has run for more than {LATE_SECONDS / 60:.0f} minutes and is not in the pool; look at its log"
            yield f"the pilot {pilot.name} does not start: {pilot.trouble or late}"
    in_pool = [pilot for pilot in pilots if pilot.state in IN_POOL]
    black_holes = [pilot for pilot in in_pool if pilot.is_black_hole]
    if black_holes and 2 * len(black_holes) >= len(in_pool):
        yield (
            f"jobs of several users fail one after another in {len(black_holes)} of {len(in_pool)} pilots, such as "
            f"{black_holes[0].name}; look at its Event BlackHole"
        )
