"""How many pilots of a template may be made in a turn."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from k8spilot.provisioner import backoff
from k8spilot.provisioner.model import EXISTING, PENDING, Closure, Pilot, Template


@dataclass(slots=True)
class Budget:
    """Pilots that may still be made."""

    left: int
    limit: str
    """The limit that is reached when nothing is left, as a sentence."""


def of(template: Template, pilots: Sequence[Pilot], record: Closure, now: float) -> Budget:
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
    elif backoff.probes(record):
        choices.append((1 - pending, f"one pilot is tried at a time, because {record.reason}"))
    left, limit = min(choices, key=lambda choice: choice[0])
    return Budget(max(left, 0), limit)


def closed(record: Closure) -> str:
    """Return until when a template is closed, and why."""
    opens = time.strftime("%H:%M:%S", time.gmtime(record.until))
    return f"closed until {opens} UTC, because {record.reason}"


def minute(now: float) -> str:
    """Return the minute of the clock that is in the names of pilots, so that they sort by age."""
    return time.strftime("%Y%m%d-%H%M", time.gmtime(now))


def minute_of(name: str) -> str:
    """Return the minute in the name of a pilot (actuator.py)."""
    return "-".join(name.split("-")[-3:-1])
