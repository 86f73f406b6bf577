"""When a template is closed: pilots of it fail, are stuck, or run jobs that fail.

A template is closed after a failure for a time that doubles. Then one pilot is tried. A pilot that reaches the pool
opens the template, and so does a change of the template.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from k8spilot.provisioner.model import IN_POOL, PENDING, Closure, Pilot, PilotState, Template

FIRST_SECONDS: Final = 30.0
LONGEST_SECONDS: Final = 3600.0
STUCK_SECONDS: Final = 60.0
"""Seconds after which a pending pilot with a trouble counts as stuck: a scheduler and a registry need their time."""
KEPT: Final = 3
"""Failed pilots of a template that are kept, to be looked at."""
KEPT_SECONDS: Final = 24 * 3600.0
ENDED_SECONDS: Final = 300.0
"""Seconds for which a pilot that came to its end is kept."""
FAILING_SECONDS: Final = 600.0
"""Seconds after which a pilot that ends again and again makes room for another trial."""


def judge(before: Closure, template: Template, pilots: Sequence[Pilot], now: float, refusal: str = "") -> Closure:
    """Return the record of a template after a turn.

    Args:
        before: the record until now.
        template: the template.
        pilots: its pilots.
        now: seconds since the epoch.
        refusal: why the API server refused the last pilot, in words; empty if it did not.
    """
    pilots = [pilot for pilot in pilots if pilot.template_version == template.version]
    if before.version != template.version or (not refusal and any(_proves(pilot, before) for pilot in pilots)):
        before = Closure(version=template.version)
    failed = [
        pilot for pilot in pilots if pilot.state in (PilotState.FAILED, PilotState.FAILING) and not pilot.has_worked
    ]
    latest = max(failed, key=lambda pilot: pilot.trouble_since, default=None)
    if latest is not None and latest.trouble_since > before.last:
        return _closed(before, latest.trouble_since, now, f"the pilot {latest.name} failed: {latest.trouble}")
    if now < before.until:
        return before
    if words := refusal or next(_standing(pilots, now), ""):
        return _closed(before, now, now, words)
    return before


def probes(record: Closure) -> bool:
    """Return whether one pilot at a time is tried, because the last ones failed."""
    return record.failures > 0


def _closed(before: Closure, when: float, now: float, reason: str) -> Closure:
    failures = before.failures + 1
    pause = min(FIRST_SECONDS * 2 ** min(failures - 1, 20), LONGEST_SECONDS)
    return Closure(failures, now + pause, reason, max(when, before.last), before.version)


def _proves(pilot: Pilot, record: Closure) -> bool:
    """Return whether the pilot shows that the template works again."""
    return pilot.state in IN_POOL and not pilot.is_black_hole and pilot.started > record.last > 0


def _standing(pilots: Sequence[Pilot], now: float) -> Iterator[str]:
    """Yield troubles that last."""
    for pilot in pilots:
        if pilot.state in PENDING and pilot.trouble and now - max(pilot.trouble_since, pilot.created) > STUCK_SECONDS:
            yield f"the pilot {pilot.name} does not start: {pilot.trouble}"
    in_pool = [pilot for pilot in pilots if pilot.state in IN_POOL]
    black_holes = [pilot for pilot in in_pool if pilot.is_black_hole]
    if black_holes and 2 * len(black_holes) >= len(in_pool):
        yield (
            f"jobs of several users fail one after another in {len(black_holes)} of {len(in_pool)} pilots, such as "
            f"{black_holes[0].name}; look at its Event BlackHole"
        )
