"""Sizes of the payload containers that share the resources of one partitionable slot; no I/O.

All containers together never have more than the pod's room for them. A container without a job keeps its size until
another one needs the room, or until it returns to the idle image: consecutive jobs of one size need no change.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Size:
    """CPU and memory of a container."""

    cpu: int
    """Thousandths of a CPU."""
    memory: int
    """MiB."""

    def __add__(self, other: "Size") -> "Size":
        return Size(self.cpu + other.cpu, self.memory + other.memory)

    def __sub__(self, other: "Size") -> "Size":
        return Size(self.cpu - other.cpu, self.memory - other.memory)

    def fits_in(self, room: "Size") -> bool:
        """Return whether neither figure exceeds that of `room`."""
        return self.cpu <= room.cpu and self.memory <= room.memory

    def __str__(self) -> str:
        return f"{self.cpu / 1000:g} CPUs and {self.memory} MiB"


NOTHING: Final = Size(0, 0)
IDLE: Final = Size(10, 32)
"""Smallest size of a container without a job: payload-init, and the runtime's own program when the container starts."""


def total(sizes: Iterable[Size]) -> Size:
    """Return the sum of sizes."""
    return sum(sizes, NOTHING)


def resized(now: Mapping[str, Size], reserved: Mapping[str, Size], room: Size) -> dict[str, Size] | None:
    """Return the changes that give each container with a job its size; None if there is no room for that.

    Args:
        now: the present size of each container.
        reserved: sizes of the containers that have a job. The others may be made smaller.
        room: what all containers may have together.
    """
    after = {**now, **reserved}
    candidates = [name for name in now if name not in reserved and now[name] != IDLE]
    while not total(after.values()).fits_in(room):
        missing = total(after.values()) - room
        # The one that gives most of what is missing, so that few containers change.
        best = max(candidates, key=lambda name: _given(now[name], missing), default=None)
        if best is None:
            return None
        candidates.remove(best)
        after[best] = IDLE
    return {name: size for name, size in after.items() if size != now[name]}


def _given(size: Size, missing: Size) -> float:
    """Return how much of what is missing a container gives when it becomes idle: 2 if it gives all of both."""
    return _part(size.cpu - IDLE.cpu, missing.cpu) + _part(size.memory - IDLE.memory, missing.memory)


def _part(given: int, missing: int) -> float:
    return min(given / missing, 1.0) if missing > 0 else 0.0
