"""The meter: sums the sampler's figures for HTCondor and Prometheus; pure, with the caller's clock.

Unknown is never zero. An average leaves out an interval without figures. A figure that was never known is not
reported.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakSet

from k8spilot.gpu.monitoring.protocol import DeviceFigures, Figures

MIB: Final = 2**20
_STALE_SECONDS: Final = 20.0
"""Age at which figures become unknown."""
_MOST_PARTS: Final = 720
"""Messages kept for an idle reader: an hour's."""


@dataclass
class Gpu:
    """One device of the pod, since the engine's start."""

    uuid: str
    busy: float = 0.0
    """Busy seconds within the `known` ones."""
    known: float = 0.0
    last: DeviceFigures | None = None
    """Latest figures; None when they are too old."""
    heard: float = 0.0

    @property
    def total(self) -> int | None:
        """Memory in bytes; None if unknown."""
        return None if self.last is None else self.last.total


class Meter:
    """The pod's devices. Other devices that a sampler sees belong to other pods."""

    def __init__(self, uuids: Sequence[str], clock: Callable[[], float]) -> None:
        self.gpus = {uuid: Gpu(uuid) for uuid in uuids}
        self._clock = clock
        self._readers: WeakSet[Reader] = WeakSet()

    def take(self, figures: Figures) -> None:
        """Add the sampler's figures."""
        now = self._clock()
        for uuid, gpu in self.gpus.items():
            device = figures.devices.get(uuid)
            gpu.last, gpu.heard = device, now
            if device is None:
                continue
            if device.busy is not None:
                gpu.busy += device.busy
                gpu.known += device.known
            for reader in self._readers:
                reader.see(uuid, _Part(now - figures.seconds, device.busy, device.known, device.peak))

    def lose(self) -> None:
        """Mark the current figures as unknown: the sampler is gone."""
        for gpu in self.gpus.values():
            gpu.last = None

    def now(self) -> Iterator[Gpu]:
        """Yield all devices with their current figures."""
        for gpu in self.gpus.values():
            if gpu.last is not None and self._clock() - gpu.heard > _STALE_SECONDS:
                gpu.last = None
            yield gpu

    def reader(self) -> "Reader":
        """Return a new reader with its own position."""
        reader = Reader(self, self._clock)
        self._readers.add(reader)
        return reader


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """Utilization of one device in an interval; None if unknown."""

    uuid: str
    busy: float | None
    """Busy seconds."""
    peak: int | None
    """Peak of the memory in use, in bytes."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One device in the interval of one message."""

    began: float
    busy: float | None
    known: float
    peak: int | None


@dataclass
class _Since:
    """Unreported figures of a device."""

    when: float
    """End of the reported interval."""
    parts: deque[_Part] = field(default_factory=lambda: deque(maxlen=_MOST_PARTS))


@dataclass(eq=False)
class Reader:
    """Sums the utilization since its last read."""

    _meter: Meter
    _clock: Callable[[], float]
    _since: dict[str, _Since] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._read_at = self._clock()
        for uuid in self._meter.gpus:
            self._since[uuid] = _Since(self._read_at)

    def see(self, uuid: str, part: _Part) -> None:
        """Add the figures of one message."""
        self._since[uuid].parts.append(part)

    def read(self, age_on: Callable[[str], float | None] = lambda _: None) -> list[GpuUsage]:
        """Return the utilization since the last read, without devices of unknown utilization.

        HTCondor computes a job's average as the reported sum, divided by the time since the last report before the
        job's start (startd_named_classad.cpp, AggregateFrom: FirstUpdate). Therefore a measurement within the job's
        time is scaled to the whole interval. The quotient is then the job's own utilization, whenever the job started.
        A message that is partly from before the job is left out: it may be from another job. An interval without
        figures becomes a part of the next interval.

        Args:
            age_on: returns the age of the job on a device, in seconds; None without a job.
        """
        now, usages = self._clock(), []
        for uuid, since in self._since.items():
            age = age_on(uuid)
            began = -math.inf if age is None else now - age
            parts = [part for part in since.parts if part.began >= began]
            since.parts.clear()
            known = sum(part.known for part in parts if part.busy is not None)
            busy = None
            if known > 0:
                # Time before the last read is left out if it has no figures and no job started in it.
                passed = now - (since.when if age is not None else max(since.when, self._read_at))
                busy = sum(part.busy for part in parts if part.busy is not None) / known * passed
                since.when = now
            peak = max((part.peak for part in parts if part.peak is not None), default=None)
            if busy is not None or peak is not None:
                usages.append(GpuUsage(uuid, busy, peak))
        self._read_at = now
        return usages
