"""The disk that a job may use, and the time at which its use is measured again; no I/O."""

from dataclasses import dataclass
from typing import Final

MIB: Final = 2**20

LONGEST_SECONDS: Final = 5.0
"""Longest time in seconds between two measurements, if nothing seems to be written."""
_SHARE: Final = 0.25
"""Part of the room that may be filled between two measurements."""
_LEAST_BYTES: Final = MIB
"""Change of the free space that is no reason to measure: others write to the node's disk, too."""
_COUNTED: Final = "its sandbox, /tmp, /var/tmp and its changes of the image count"
_QUIET: Final = 10
"""Least time between two measurements, in durations of a measurement, while there is room."""
_PRESSING: Final = 3
"""The same when the job may have used all of its room since the last measurement."""


@dataclass(frozen=True, slots=True)
class DiskLimits:
    """Limits of one job, in bytes; None where there is none."""

    slot: int | None = None
    """Disk that the slot promises."""
    requested: int | None = None
    """Disk that the job asked for (request_disk)."""
    pod: int | None = None
    """Limit above which the kubelet evicts the pod."""

    @property
    def least(self) -> int | None:
        """The limit that counts."""
        return min((limit for limit in (self.slot, self.requested) if limit is not None), default=None)

    def excess(self, used: int) -> str:
        """Return the sentence for a job that uses more than it may, or an empty string."""
        if self.requested is not None and used > self.requested:
            return (
                f"the job has used {_mib(used)} of disk, and requested {_mib(self.requested)}; set request_disk to "
                f"more, or write less ({_COUNTED})"
            )
        if self.slot is not None and used > self.slot:
            return (
                f"the job has used {_mib(used)} of disk, and the slot has {_mib(self.slot)}; set request_disk to what "
                f"the job needs, or write less ({_COUNTED})"
            )
        return ""


@dataclass(frozen=True, slots=True)
class LastRun:
    """Last run of a job that was vacated, as the job's ad has it; times are in seconds since the epoch."""

    host: str
    """Name of the slot's machine."""
    vacated: int
    began: int | None
    """Its begin; None if unknown."""
    is_first: bool
    """Whether the job had not run before."""
    slot: str = ""
    """HTCondor's name of the slot; empty if unknown."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement of the disk that a job uses."""

    at: float
    """Its time, in seconds of a monotonic clock."""
    seconds: float
    """How long it took."""
    used: int
    """Bytes that the job occupied."""


def is_due(last: Measurement, now: float, fallen: int, limit: int) -> bool:
    """Return whether it is time for another measurement.

    Args:
        last: the last measurement.
        now: the present time.
        fallen: bytes by which the free space of the disk has fallen since. Others write there, too, so that this is
            only a hint.
        limit: the limit of the job in bytes.
    """
    room = max(limit - last.used, 0)
    waited = now - last.at
    if waited < last.seconds * (_PRESSING if fallen >= room else _QUIET):
        return False
    return waited >= LONGEST_SECONDS or fallen >= max(room * _SHARE, _LEAST_BYTES)


def _mib(count: int) -> str:
    return f"{-(-count // MIB)} MiB"
