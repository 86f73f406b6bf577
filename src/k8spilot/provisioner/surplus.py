"""Which pilots are deleted, and why: pending ones that no job needs, and those that have ended. Pure."""

from collections.abc import Sequence
from typing import Final

from k8spilot.provisioner import backoff
from k8spilot.provisioner.model import NOT_STARTED, Pilot, PilotState, Template

_SECONDS: Final = 60.0
"""Age from which a pending pilot that no job needs is deleted: jobs between two others are idle for a moment."""
_STUCK_SECONDS: Final = 180.0
"""The same for one that cannot start: it costs nothing while it waits, and the next jobs may come soon."""


def pending(unused: Sequence[Pilot], idle_jobs: int, most: int, now: float) -> list[tuple[Pilot, str]]:
    """Return the pilots to delete, with the reason, the newest first.

    Args:
        unused: the template's pending pilots that no job needs.
        idle_jobs: idle jobs that match the template. As many pilots that cannot start stay, the oldest ones: each is a
            trial that goes on, and another pod would wait as well.
        most: most pilots that may go.
        now: seconds since the epoch.
    """
    newest_first = sorted(unused, key=lambda pilot: -pilot.created)
    stuck = [pilot.uid for pilot in newest_first if backoff.is_stuck(pilot, now)]
    trials = set(stuck[max(len(stuck) - idle_jobs, 0) :])
    ages = {**dict.fromkeys((pilot.uid for pilot in unused), _SECONDS), **dict.fromkeys(stuck, _STUCK_SECONDS)}
    going = [pilot for pilot in newest_first if pilot.uid not in trials and now - pilot.created > ages[pilot.uid]]
    return [(pilot, "it has not started, and no idle job needs it any more") for pilot in going[:most]]


def ended(template: Template | None, pilots: Sequence[Pilot], now: float) -> list[tuple[Pilot, str]]:
    """Return the pilots that have ended, or will not begin, and need not be kept. None is a template of no use."""
    found = []
    failed = sorted(
        (pilot for pilot in pilots if pilot.state is PilotState.FAILED), key=lambda pilot: -pilot.trouble_since
    )
    for place, pilot in enumerate(failed):
        if place >= backoff.KEPT or now - pilot.trouble_since > backoff.KEPT_SECONDS:
            found.append((pilot, "it has failed, and later ones are kept to look at"))
    for pilot in pilots:
        if pilot.state is PilotState.SUCCEEDED and now - pilot.trouble_since > backoff.ENDED_SECONDS:
            found.append((pilot, "it has come to its end"))
        elif pilot.state is PilotState.FAILING and now - pilot.failing_since > backoff.FAILING_SECONDS:
            found.append((pilot, f"it ends again and again: {pilot.trouble}"))
        elif template is None or pilot.template_version == template.version:
            continue
        elif pilot.state in NOT_STARTED and pilot.trouble:
            found.append((pilot, "it does not start, and its template has changed"))
    return found
