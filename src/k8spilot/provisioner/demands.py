"""Groups of idle jobs, as the plan takes them. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from k8spilot.provisioner.model import JobGroup
from k8spilot.provisioner.resources import Resources


def merged(groups: Iterable[JobGroup]) -> list[JobGroup]:
    """Return the groups that match a template; those that differ in nothing that counts for the plan are one."""
    found: dict[tuple[object, ...], JobGroup] = {}
    for group in groups:
        if group.matches:
            key = (group.user, group.wanted, tuple(group.matches.items()))
            before = found.get(key)
            found[key] = group if before is None else replace(before, idle=before.idle + group.idle)
    return list(found.values())


def smallest(groups: Sequence[JobGroup]) -> Resources:
    """Return the least that a job of any group wants, of each resource."""
    wanted = [group.wanted for group in groups]
    return Resources(
        min((one.cpus for one in wanted), default=0),
        min((one.memory for one in wanted), default=0),
        min((one.disk for one in wanted), default=0),
        min((one.gpus for one in wanted), default=0),
    )
