"""Templates, jobs and pilots for tests of the plan."""

import itertools
from typing import Any

from k8spilot.provisioner.limits import Limits
from k8spilot.provisioner.planning.model import Demand, JobGroup, Pilot, PilotState, SlotKind, SlotSpace, Template
from k8spilot.provisioner.planning.resources import Resources

NOW = 1_800_000_000.0
"""A time at the beginning of a minute."""
ONE = Resources(1, 1024, 2**20)
_numbers = itertools.count()


def template(name: str = "cpu", *kinds: SlotKind, **limits: Any) -> Template:
    """A template of pilots with one slot for one job of the size ONE, unless `kinds` says otherwise."""
    return Template(
        name,
        Limits(**{"max_pilots": 100, "max_pending": 100, "max_new_per_minute": 100, **limits}),
        kinds or (SlotKind(1, ONE, 1),),
    )


def jobs(
    idle: int, *names: str, user: str = "alice", wanted: Resources = ONE, kinds: tuple[int, ...] = (0,)
) -> JobGroup:
    """Idle jobs of a user that match the templates `names`."""
    return JobGroup(user, idle, wanted, dict.fromkeys(names or ("cpu",), kinds))


def demand(*groups: JobGroup, missing: tuple[str, ...] = ()) -> Demand:
    """All idle jobs."""
    return Demand(groups, 0, missing, is_complete=not missing)


def pilot(state: PilotState, of: str = "cpu", age: float = 30.0, **more: Any) -> Pilot:
    """A pilot of a template; an idle one has room for one job of the size ONE."""
    number = next(_numbers)
    room = (SlotSpace(0, ONE, 1),) if state is PilotState.IDLE else ()
    return Pilot(
        **{
            "name": f"{of}-{number}",
            "uid": f"uid-{number}",
            "template": of,
            "state": state,
            "created": NOW - age,
            "room": room,
            **more,
        }
    )


def several(number: int, state: PilotState, of: str = "cpu", age: float = 30.0, **more: Any) -> list[Pilot]:
    """So many of them, each a second older than the one before."""
    return [pilot(state, of, age + place, **more) for place in range(number)]
