"""Amounts of a slot's resources, as HTCondor counts them."""

from dataclasses import dataclass
from typing import Final, Self

UNLIMITED_KIB: Final = 2**40
"""Disk of a slot without a limit: what its node has is not known."""
_FIELDS: Final = ("cpus", "memory", "disk", "gpus")


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of a slot, or of a job's request."""

    cpus: float = 0
    memory: int = 0
    """MiB."""
    disk: int = 0
    """KiB."""
    gpus: int = 0

    def fits_in(self, room: Self) -> bool:
        """Return whether `room` has as much of everything."""
        return (
            self.cpus <= room.cpus and self.memory <= room.memory and self.disk <= room.disk and self.gpus <= room.gpus
        )

    def times_in(self, room: Self, most: int) -> int:
        """Return how many requests of this size `room` has space for, at most `most`."""
        for field in _FIELDS:
            if (wanted := getattr(self, field)) > 0:
                most = min(most, int(getattr(room, field) // wanted))
        return max(most, 0)

    def minus(self, other: Self, times: int = 1) -> "Resources":
        """Return what is left after so many requests of the size `other`."""
        return Resources(
            self.cpus - other.cpus * times,
            self.memory - other.memory * times,
            self.disk - other.disk * times,
            self.gpus - other.gpus * times,
        )

    def __str__(self) -> str:
        words = [f"{self.cpus:g} CPU{'' if self.cpus == 1 else 's'}", f"{self.memory} MiB of memory"]
        if self.disk < UNLIMITED_KIB:
            words.append(f"{self.disk // 1024} MiB of disk")
        return ", ".join([*words, f"{self.gpus} GPUs"] if self.gpus else words)
