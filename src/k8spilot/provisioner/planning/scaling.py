"""Scaling of one template: how many pilots may be created in a turn, and which ones are deleted. Pure."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from k8spilot.provisioner.planning import template_closure
from k8spilot.provisioner.planning.model import (
    EXISTING,
    NOT_STARTED,
    PENDING,
    Pilot,
    PilotState,
    Template,
    TemplateClosure,
)

_PENDING_SECONDS: Final = 60.0
"""Age from which a pending pilot that no job needs is deleted: jobs between two others are idle for a moment."""
_STUCK_SECONDS: Final = 180.0
"""The same for a pilot that cannot start: it costs nothing while it waits, and the next jobs may come soon."""


@dataclass(slots=True)
class Budget:
    """Pilots that may still be created."""

    left: int
    limit: str
    """The limit that is reached when nothing is left, as a sentence."""


def budget_of(template: Template, pilots: Sequence[Pilot], record: TemplateClosure, now: float) -> Budget:
    """Return the number of pilots that all limits allow, and the tightest of the limits."""
    limits = template.limits
    exist = sum(pilot.state in EXISTING for pilot in pilots)
    pending = sum(pilot.state in PENDING for pilot in pilots)
    this_minute = sum(minute_of(pilot.name) == minute(now) for pilot in pilots)
    choices = [
        (limits.max_pilots - exist, f"max-pilots ({limits.max_pilots}) is reached"),
        (limits.max_pending - pending, f"max-pending ({limits.max_pending}) is reached"),
        (
            limits.max_new_per_minute - this_minute,
            f"max-new-per-minute ({limits.max_new_per_minute}) is reached",
        ),
    ]
    if now < record.until:
        choices.append((0, closed(record)))
    elif template_closure.probes(record):
        choices.append((1 - pending, f"one pilot is tried at a time, because {record.reason}"))
    left, limit = min(choices, key=lambda choice: choice[0])
    return Budget(max(left, 0), limit)


def closed(record: TemplateClosure) -> str:
    """Return until when a template is closed, and why."""
    opens = time.strftime("%H:%M:%S", time.gmtime(record.until))
    return f"closed until {opens} UTC, because {record.reason}"


def minute(now: float) -> str:
    """Return the minute of the clock that is in the names of pilots, so that they sort by age."""
    return time.strftime("%Y%m%d-%H%M", time.gmtime(now))


def minute_of(name: str) -> str:
    """Return the minute in the name of a pilot (actuator.py)."""
    return "-".join(name.split("-")[-3:-1])


def surplus(unused: Sequence[Pilot], idle_jobs: int, most: int, now: float) -> list[tuple[Pilot, str]]:
    """Return the pending pilots to delete, with the reason, the newest first.

    Args:
        unused: the template's pending pilots that no job needs.
        idle_jobs: idle jobs that match the template. As many pilots that cannot start stay, the oldest ones: each is a
            trial that goes on, and another pod would wait as well.
        most: most pilots that may go.
        now: seconds since the epoch.
    """
    newest_first = sorted(unused, key=lambda pilot: -pilot.created)
    stuck = [pilot.uid for pilot in newest_first if template_closure.is_stuck(pilot, now)]
    trials = set(stuck[max(len(stuck) - idle_jobs, 0) :])
    ages = {**dict.fromkeys((pilot.uid for pilot in unused), _PENDING_SECONDS), **dict.fromkeys(stuck, _STUCK_SECONDS)}
    going = [pilot for pilot in newest_first if pilot.uid not in trials and now - pilot.created > ages[pilot.uid]]
    return [(pilot, "it has not started, and no idle job needs it any more") for pilot in going[:most]]


def ended(template: Template | None, pilots: Sequence[Pilot], now: float) -> list[tuple[Pilot, str]]:
    """Return the pilots that have ended, or will not begin, and need not be kept.

    `template` is None if the template cannot be used.
    """
    found = []
    failed = sorted(
        (pilot for pilot in pilots if pilot.state is PilotState.FAILED), key=lambda pilot: -pilot.trouble_since
    )
    for place, pilot in enumerate(failed):
        if place >= template_closure.KEPT or now - pilot.trouble_since > template_closure.KEPT_SECONDS:
            found.append((pilot, "it has failed, and later ones are kept to look at"))
    for pilot in pilots:
        if pilot.state is PilotState.SUCCEEDED and now - pilot.trouble_since > template_closure.ENDED_SECONDS:
            found.append((pilot, "it has come to its end"))
        elif pilot.state is PilotState.FAILING and now - pilot.failing_since > template_closure.FAILING_SECONDS:
            found.append((pilot, f"it ends again and again: {pilot.trouble}"))
        elif template is None or pilot.template_version == template.version:
            continue
        elif pilot.state in NOT_STARTED and pilot.trouble:
            found.append((pilot, "it does not start, and its template has changed"))
    return found
