"""How fast the slots of a template take new jobs: from the jobs that ended in them lately. Pure.

A slot that works is free when its job ends, and takes the next one at once. So jobs per second of work tell how many
of the idle jobs the pilots that exist will take.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from k8spilot.provisioner.planning.model import IN_POOL, Pilot, PilotState, Template

HORIZON_SECONDS: Final = 120.0
"""Time within which a pilot that exists should take an idle job. Otherwise another pilot is made for it."""
WORTH_SECONDS: Final = 3600.0
"""Work that makes a new pilot worth its start and its idle end, which take some minutes of a node."""
FEW: Final = 4
"""Jobs for which pilots are made at once, however short they may be."""
COMING_SECONDS: Final = 60.0
"""Age up to which a pilot that is not in the pool yet is on its way. More pilots do not wait for an older one."""
_MOST: Final = 8
"""Most jobs that are left to one slot: even very short ones should not wait for few pilots."""
_UNKNOWN_SECONDS: Final = 60.0
"""Duration of a job, as long as none has ended: short, since users remove jobs and jobs fail at their start."""


@dataclass(frozen=True, slots=True)
class JobRate:
    """Jobs that the slots of a template take."""

    taken: int = 0
    """Idle jobs that slots with a job take within the horizon."""
    each: int = 1
    """Jobs that a slot without a job takes within the horizon."""
    jobs_per_slot: int = _MOST
    """Jobs that are left to each slot that is on its way."""


def of(template: Template, pilots: Sequence[Pilot]) -> JobRate:
    """Return the rate at which a template's pilots take jobs."""
    in_pool = [pilot for pilot in pilots if pilot.state in IN_POOL]
    ended = sum(pilot.ended_jobs for pilot in in_pool)
    seconds = sum(pilot.busy_seconds for pilot in in_pool)
    per_second = ended / seconds if seconds > 0 else 0.0
    places = sum(kind.number * kind.jobs for kind in template.kinds)
    busy = sum(places - sum(room.jobs for room in pilot.room) for pilot in in_pool if pilot.state is PilotState.BUSY)
    duration = (seconds + _UNKNOWN_SECONDS) / (ended + 1)
    soon = min(per_second * HORIZON_SECONDS, _MOST)
    return JobRate(
        taken=int(busy * soon),
        each=1 + int(soon),
        jobs_per_slot=min(1 + int(WORTH_SECONDS / duration), _MOST),
    )
