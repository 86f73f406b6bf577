"""Interface of a vendor's GPUs for the sampler (nvidia.py implements it)."""

from dataclasses import dataclass
from typing import Protocol


class ReadingFault(Exception):
    """Raised when the vendor's library cannot work; the text is the library's message."""

    def __init__(self, message: str, *, is_absent: bool = False) -> None:
        super().__init__(message)
        self.is_absent = is_absent
        """Whether the library is missing, so that this container has no GPUs of the vendor."""


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that uses a device."""

    pid: int
    memory: int | None
    """Device memory in use, in bytes."""
    share: float | None
    """Utilization of the device, 0 to 1."""


@dataclass(slots=True)
class Reading:
    """Figures of one device since the last reading; None if unknown."""

    busy: float | None = None
    """Busy seconds within the `known` ones."""
    known: float = 0.0
    """Seconds with known utilization."""
    memory: int | None = None
    """Memory in use now, in bytes."""
    total: int | None = None
    """Total memory, in bytes."""
    processes: list[GpuProcess] | None = None
    fault: str = ""
    """Reason of a failed reading, as the library reports it."""


class Vendor(Protocol):
    """Devices of a vendor."""

    def open(self) -> None:
        """Find the devices, also again after a fault.

        Raises:
            ReadingFault: the library cannot work.
        """

    def close(self) -> None:
        """Release the devices."""

    @property
    def uuids(self) -> list[str]:
        """UUIDs of the devices."""

    def driver(self) -> str | None:
        """Return the driver's version."""

    def read(self, processes: bool) -> dict[str, Reading]:
        """Read all devices. `processes`: also read the processes that use them."""
