"""The pods of a soak: their deployment, and the choice of the payload container that a fault hits."""

import random
import re
from dataclasses import dataclass
from typing import Final

from lab import pilot
from lab.api import Lab
from lab.errors import NothingToHitError
from lab.pod_processes import command_lines

SLOT: Final = re.compile(r"(?<![^\W_])slot1_(\d+)(?![^\W_])")
"""Pattern of a dynamic slot in a command line or in a name. Its number is that of the payload container."""
CPUS_EACH: Final = 2
MEMORY_MB_EACH: Final = 512
"""MiB of each payload container if all have equal parts of the pod. One job may request more."""


@dataclass(frozen=True)
class Target:
    """A pod that faults hit."""

    lab: Lab
    name: str
    slots: int = 1
    """Number of payload containers. With several, the pod has a partitionable slot."""

    def deploy(self) -> None:
        """Deploy the pod. An existing one is deleted as by kubectl, and has ended before."""
        if self.slots == 1:
            pilot.deploy(self.lab, self.name)
            return
        limits = {
            "cpu": str(CPUS_EACH * self.slots),
            "memory": f"{MEMORY_MB_EACH * self.slots}Mi",
            "ephemeral-storage": f"{1300 * self.slots}Mi",
        }
        # The node of the lab is small: the pod requests a small part of what it may use.
        requests = {"cpu": f"{20 * self.slots}m", "memory": f"{64 * self.slots}Mi", "ephemeral-storage": "400Mi"}
        sizes = {
            "op": "replace",
            "path": "/spec/initContainers/1/resources",
            "value": {"limits": limits, "requests": requests},
        }
        pilot.deploy(self.lab, self.name, overlay={"patches": [pilot.change(sizes)]}, slots=self.slots)

    def container(self, number: int) -> str:
        """Return the name of a payload container."""
        return "payload" if self.slots == 1 else f"payload-{number}"

    def slot(self, number: int) -> str:
        """Return HTCondor's name of the slot of a payload container, without the machine's."""
        return f"slot1_{number}" if self.slots > 1 else "slot1"

    def any_number(self, draw: random.Random) -> int:
        """Choose a payload container, mostly one whose slot has a starter."""
        busy = sorted(self.with_process(r"^\S*condor_starter ")) if draw.random() < 0.8 else []
        return draw.choice(busy or range(1, self.slots + 1))

    def with_process(self, pattern: str) -> dict[int, int]:
        """Return one matching process of each slot that a command line names: its id by the container's number."""
        found = {}
        for process, line in command_lines(self.lab, self.name, pattern).items():
            if (slot := SLOT.search(line)) is not None:
                found[int(slot[1])] = process
        return found

    def chosen_process(self, pattern: str, draw: random.Random) -> tuple[int, int]:
        """Choose a process of `with_process`; return the number of its payload container, and its process id.

        Raises:
            NothingToHitError: there is none.
        """
        found = self.with_process(pattern)
        if not found:
            raise NothingToHitError(f"no slot of pod {self.name} has a process with {pattern!r} in its command line")
        number = draw.choice(sorted(found))
        return number, found[number]
