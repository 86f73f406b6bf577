"""What a sampler reads of a device, whoever made it: the seam for vendors (nvidia_readings.py is one)."""

from dataclasses import dataclass
from typing import Protocol


class ReadingFault(Exception):
    """The vendor's library says that it cannot work; its words."""

    def __init__(self, words: str, *, is_absent: bool = False) -> None:
        super().__init__(words)
        self.is_absent = is_absent
        """There is no such library: nothing of the vendor's is in this container."""


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that uses a device."""

    pid: int
    memory: int | None
    """Bytes of the device's memory."""
    share: float | None
    """How busy it kept the device, 0 to 1."""


@dataclass(slots=True)
class Reading:
    """One device, since it was read last. None is what is not known."""

    busy: float | None = None
    """Seconds in which it was busy, of the `known` ones."""
    known: float = 0.0
    """Seconds of which it is known whether it was busy."""
    memory: int | None = None
    """Bytes in use now."""
    total: int | None = None
    """Bytes that it has."""
    processes: list[GpuProcess] | None = None
    fault: str = ""
    """Why it could not be read, in the library's words."""


class Vendor(Protocol):
    """A vendor's devices."""

    def open(self) -> None:
        """Find them, also again after a fault. Raises ReadingFault."""

    def close(self) -> None:
        """Let go of them."""

    @property
    def uuids(self) -> list[str]:
        """Their names."""

    def driver(self) -> str | None:
        """The driver's version."""

    def read(self, processes: bool) -> dict[str, Reading]:
        """All of them."""
