"""Watch of the disk that a job uses: a job that uses more than it may is ended before the kubelet evicts the pod.

The kubelet measures every ten seconds or more rarely, and then evicts the pod: the pilot ends, the job goes back to the
queue, and would do the same to the next pilot. Nothing reports the growth of a folder. So the watch reads the free
space of the file systems four times a second, and measures the job's files when that has fallen by a part of its room.
"""

import asyncio
import logging
import os
import subprocess
import time
from dataclasses import dataclass
from typing import Final

from k8spilot.common.errors import PilotError
from k8spilot.model.disk import LONGEST_SECONDS, MIB, DiskLimits, Measurement, is_due
from k8spilot.payload.disk_meter import DiskMeter, root_of
from k8spilot.payload_init.channel import Channel

logger = logging.getLogger(__name__)

_TICK_SECONDS: Final = 0.25
_AGAIN_SECONDS: Final = 10.0
"""Seconds after a failed measurement."""
_UNEXPLAINED_BYTES: Final = 16 * MIB
"""A loss of free space that the volumes do not explain, from which the image's file system is measured."""
_SHARE: Final = 0.25
"""The same threshold as a part of the room that the job has left. The larger of the two applies."""
_FAR: Final = 0.5
"""Part of its limit below which a job that has just ended is not measured once more."""
_IMAGE_SECONDS: Final = 60.0
"""Longest time between two measurements of the image's file system, if no free space is missed there: others may have
released as much as the job has written."""
_IMAGE_WAITS: Final = 20
"""Least time between two measurements of the image's file system, in durations of one: an image has many files."""


@dataclass(frozen=True, slots=True)
class DiskShare:
    """The disk that a job may use."""

    meter: DiskMeter
    """Measures what it uses."""
    limits: DiskLimits
    hold_seconds: float = 0.0
    """Seconds to wait until HTCondor holds a job that uses more; without that, the job's end has the reason."""


class DiskWatch:
    """Watches one job."""

    def __init__(self, share: DiskShare, channel: Channel) -> None:
        self._meter = meter = share.meter
        self._limits = share.limits
        self._hold_seconds = share.hold_seconds
        self._channel = channel
        self._root = root_of(channel)
        self._began = time.time()
        """Time of the job's start: what is changed in the image's file system after it, the job has changed."""
        self._free = self._first_free = meter.free(self._root)
        self._last = Measurement(time.monotonic(), 0.0, 0)
        self._first_volumes: int | None = None
        """Bytes that the volumes had at the job's start: its input files. None before the first measurement."""
        self._image = Measurement(time.monotonic(), 0.0, 0)
        """Last measurement of the image's file system."""
        self._going = asyncio.Event()
        """Set while the job is not paused."""
        self._going.set()

    async def until_exceeded(self) -> str:
        """Wait until the job uses more than it may, and return the sentence for its owner."""
        limit = self._limits.least
        if limit is None:
            await asyncio.Event().wait()  # until the job ends
        assert limit is not None
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            await self._going.wait()
            try:
                is_first = self._first_volumes is None
                is_time = is_first or is_due(self._last, time.monotonic(), self._fallen(), limit)
                if is_time and (words := await self._measure()):
                    return words
            except (OSError, subprocess.SubprocessError, TimeoutError, PilotError) as error:
                if not self._going.is_set():  # the pause has stopped the program that measures in the container, too
                    continue
                logger.warning("The job's use of the disk cannot be measured: %s.", str(error) or "it takes too long")
                await asyncio.sleep(_AGAIN_SECONDS)

    def pause(self) -> None:
        """Pause the measurements: a paused job writes nothing, and payload-init has stopped the measuring program."""
        self._going.clear()

    def resume(self) -> None:
        """Measure again."""
        self._going.set()

    async def measure_at_end(self) -> str:
        """Measure once more after the job's end, unless the job is known to be far from its limit."""
        limit, waited = self._limits.least, time.monotonic() - self._last.at
        if limit is None or (self._last.used + self._fallen() < limit * _FAR and waited < LONGEST_SECONDS):
            return ""
        try:
            return await self._measure()
        except (OSError, subprocess.SubprocessError, TimeoutError, PilotError) as error:
            logger.warning("The job's use of the disk was not measured at its end: %s.", str(error) or "no answer")
            return ""

    @property
    def hold_seconds(self) -> float:
        """Seconds to wait until HTCondor holds the job: none if the kubelet may evict the pod at any moment."""
        pod = self._limits.pod
        return 0.0 if pod is not None and self._last.used > pod else self._hold_seconds

    def close(self) -> None:
        """Close the descriptor, which keeps the container's file system."""
        if self._root is not None:
            os.close(self._root)
            self._root = None

    def _fallen(self) -> int:
        """Return the bytes by which the free space has fallen since the last measurement."""
        now = self._meter.free(self._root)
        return max((before - after for before, after in zip(self._free, now, strict=True)), default=0)

    async def _measure(self) -> str:
        self._free = self._meter.free(self._root)
        began = time.monotonic()
        volumes = await self._meter.volumes(self._channel)
        if self._first_volumes is None:
            self._first_volumes = max(volumes - max(self._first_free[0] - self._free[0], 0), 0)
        await self._measure_image(volumes)
        used = volumes + self._image.used
        self._last = Measurement(time.monotonic(), time.monotonic() - began, used)
        return self._limits.excess(used)

    async def _measure_image(self, volumes: int) -> None:
        """Measure the image's file system if the volumes do not explain the loss of free space there, or it is time."""
        limit = self._limits.least
        if self._root is None or limit is None:
            return
        grown = volumes - (self._first_volumes or 0) + self._image.used
        unexplained = self._first_free[-1] - self._free[-1] - grown
        room = max(limit - volumes - self._image.used, 0)
        is_missed = unexplained >= max(room * _SHARE, _UNEXPLAINED_BYTES)
        began = time.monotonic()
        waits = self._image.seconds * _IMAGE_WAITS
        if began - self._image.at >= (waits if is_missed else max(waits, _IMAGE_SECONDS)):
            used = await self._meter.image(self._root, self._began)
            self._image = Measurement(time.monotonic(), time.monotonic() - began, used)
