"""When a template is closed: pilots of it fail, are stuck, or run jobs that fail.

A template is closed after a failure for a time that doubles. Then one pilot is tried. A pilot that reaches the pool
opens the template, and so does a change of the template. A record without a later trial is forgotten.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from k8spilot.provisioner.planning.model import (
    EXISTING,
    IN_POOL,
    PENDING,
    Pilot,
    PilotState,
    Template,
    TemplateClosure,
    Waiting,
)

FIRST_SECONDS: Final = 30.0
LONGEST_SECONDS: Final = 3600.0
LONGEST_WAIT_SECONDS: Final = 60.0
"""Longest time for which a template is closed for want of room or quota: both come and go, and a trial costs little."""
STUCK_SECONDS: Final = 60.0
"""Seconds after which a pending pilot with a trouble counts as stuck: a scheduler and a registry need their time."""
LATE_SECONDS: Final = 600.0
"""Seconds after which a pilot that has a node and is not in the pool counts as stuck, whatever it waits for."""
UNSCHEDULABLE: Final = "Unschedulable"
"""Reason of the condition PodScheduled where no node has room."""
IN_VAIN: Final = 3
"""Number of pilots in a row that ended without a job; then the template is closed."""
_SKEW_SECONDS: Final = 60.0
"""Most by which the clocks of provisioner, API server and nodes are taken to differ."""
NOBODY: Final = Waiting(0, 0.0)
"""No idle jobs."""
KEPT: Final = 3
"""Failed pilots of a template that are kept, to be looked at."""
KEPT_SECONDS: Final = 24 * 3600.0
ENDED_SECONDS: Final = 300.0
"""Seconds for which a pilot that came to its end is kept."""
FAILING_SECONDS: Final = 600.0
"""Seconds after which a pilot that ends again and again makes room for another trial."""


def judge(
    before: TemplateClosure,
    template: Template,
    pilots: Sequence[Pilot],
    now: float,
    refusal: str = "",
    waiting: Waiting = NOBODY,
) -> TemplateClosure:
    """Return the record of a template after a turn.

    Args:
        before: the record until now.
        template: the template.
        pilots: its pilots.
        now: seconds since the epoch.
        refusal: why the API server refused the last pilot, in words; empty if it did not.
        waiting: idle jobs that match the template.
    """
    pilots = [pilot for pilot in pilots if pilot.template_version == template.version]
    before = _still_true(before, template, pilots, now, is_refused=bool(refusal))
    new = [pilot for pilot in _failed(pilots, now) if _failed_at(pilot) > before.last]
    if new:
        latest = max(new, key=_failed_at)
        if not before.failures or any(pilot.created > before.closed_at for pilot in new):
            return _closed(before, _failed_at(latest), now, f"the pilot {latest.name} failed: {latest.trouble}")
        before = replace(before, last=_failed_at(latest))  # made before the template was closed: not another failure
    if ends := _in_vain(pilots, before, waiting):
        reason = (
            f"the last {len(ends)} pilots ended without a job, though {waiting.jobs} idle jobs match; ask condor_q "
            "-better-analyze why these jobs do not start"
        )
        return replace(_closed(before, max(ends), now, reason), needs_job=True)
    if now < before.until:
        return before
    if words := refusal or next(_without_room(pilots, now), ""):
        return _full(before, now, words)
    if words := next(_standing(pilots, now), ""):
        return _closed(before, now, now, words)
    return before


def is_stuck(pilot: Pilot, now: float) -> bool:
    """Return whether a pilot does not come into the pool, so that no job should be left to it."""
    if pilot.state not in PENDING:
        return False
    if pilot.trouble:
        return now - max(pilot.trouble_since, pilot.created) > STUCK_SECONDS
    return now - max(pilot.awaited_since, pilot.created) > LATE_SECONDS


def probes(record: TemplateClosure) -> bool:
    """Return whether one pilot at a time is tried, because the last ones failed."""
    return record.failures > 0


def _still_true(
    before: TemplateClosure, template: Template, pilots: Sequence[Pilot], now: float, *, is_refused: bool
) -> TemplateClosure:
    """Return the record as far as it still counts."""
    version = template.closure_version
    if before.version != version:
        return TemplateClosure(version=version)
    if max(before.closed_at, before.last) > now + _SKEW_SECONDS:  # the clock was wrong
        return TemplateClosure(version=version, last=now)
    # Pods that failed before may still be there.
    if not is_refused and any(_proves(pilot, before) for pilot in pilots):
        return TemplateClosure(version=version, last=before.last)
    is_tried = any(pilot.state in EXISTING for pilot in pilots)
    if before.failures and not is_tried and now - before.until > max(before.pause, LATE_SECONDS):
        return TemplateClosure(version=version, last=before.last)
    return before


def _failed(pilots: Sequence[Pilot], now: float) -> Iterator[Pilot]:
    """Yield the pilots whose failure says something of their template."""
    for pilot in pilots:
        is_failed = pilot.state in (PilotState.FAILED, PilotState.FAILING) and not pilot.has_worked
        if is_failed and _failed_at(pilot) <= now + _SKEW_SECONDS:  # else the clock was wrong
            yield pilot


def _closed(before: TemplateClosure, when: float, now: float, reason: str) -> TemplateClosure:
    """Return the record after a failure."""
    failures = before.failures + 1
    pause = min(FIRST_SECONDS * 2 ** min(failures - 1, 20), LONGEST_SECONDS)
    last = max(when, before.last)
    return replace(before, failures=failures, until=now + pause, reason=reason, last=last, pause=pause)


def _full(before: TemplateClosure, now: float, reason: str) -> TemplateClosure:
    """Return the record while room or quota is missing. That says nothing of the template, and adds no failure."""
    pause = LONGEST_WAIT_SECONDS if before.failures else FIRST_SECONDS
    last, failures = max(now, before.last), max(before.failures, 1)
    return replace(before, failures=failures, until=now + pause, reason=reason, last=last, pause=pause)


def _failed_at(pilot: Pilot) -> float:
    """Return when a pilot failed; of one that ends again and again only the first time counts."""
    return pilot.created if pilot.state is PilotState.FAILING else pilot.trouble_since


def _in_vain(pilots: Sequence[Pilot], record: TemplateClosure, waiting: Waiting) -> list[float]:
    """Return the times at which pilots ended without ever having a job, if that is so of all the last ones.

    A pilot that existed before jobs waited says nothing: it may have been idle because none did.
    """
    if not waiting.jobs or any(pilot.had_job for pilot in pilots):
        return []
    ends = [
        pilot.trouble_since
        for pilot in pilots
        if pilot.state is PilotState.SUCCEEDED
        and pilot.has_worked
        and pilot.created > waiting.since - _SKEW_SECONDS
        and pilot.trouble_since > record.last
    ]
    return ends if len(ends) >= (1 if record.needs_job else IN_VAIN) else []


def _proves(pilot: Pilot, record: TemplateClosure) -> bool:
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
            late = f"it has had a node for more than {LATE_SECONDS / 60:.0f} minutes and is not in the pool; look at "
            where = "its log" if pilot.started else "its Events (kubectl describe pod)"
            yield f"the pilot {pilot.name} does not start: {pilot.trouble or late + where}"
    in_pool = [pilot for pilot in pilots if pilot.state in IN_POOL]
    black_holes = [pilot for pilot in in_pool if pilot.is_black_hole]
    if black_holes and 2 * len(black_holes) >= len(in_pool):
        yield (
            f"jobs of several users fail one after another in {len(black_holes)} of {len(in_pool)} pilots, such as "
            f"{black_holes[0].name}; look at its Event BlackHole"
        )
