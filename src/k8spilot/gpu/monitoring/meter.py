"""What the GPUs did, added up from what the sampler tells; and what HTCondor and Prometheus get of it.

Unknown is never zero. Time of which the driver said nothing counts as the time around it of which it did, and a figure
that is not known at all is not told. Pure: the clock is the caller's.
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
"""What was said longer ago than this is not so any more."""
_PARTS: Final = 720
"""Messages that are kept for a reader that does not ask: an hour's."""


@dataclass
class Gpu:
    """One device of the pod's, since the engine's start."""

    uuid: str
    busy: float = 0.0
    """Seconds in which it was busy, of the `known` ones."""
    known: float = 0.0
    last: DeviceFigures | None = None
    """What was said last, while that is so."""
    heard: float = 0.0

    @property
    def total(self) -> int | None:
        """Bytes that it has."""
        return None if self.last is None else self.last.total


class Meter:
    """The pod's devices. Others, which a sampler may see too, are somebody else's."""

    def __init__(self, uuids: Sequence[str], clock: Callable[[], float]) -> None:
        self.gpus = {uuid: Gpu(uuid) for uuid in uuids}
        self._clock = clock
        self._readers: WeakSet[Reader] = WeakSet()

    def take(self, figures: Figures) -> None:
        """Add what the sampler says."""
        now = self._clock()
        for uuid, gpu in self.gpus.items():
            one = figures.devices.get(uuid)
            gpu.last, gpu.heard = one, now
            if one is None:
                continue
            if one.busy is not None:
                gpu.busy += one.busy
                gpu.known += one.known
            for reader in self._readers:
                reader.see(uuid, _Part(now - figures.seconds, one.busy, one.known, one.peak))

    def lose(self) -> None:
        """Nothing is known of this moment: the sampler is gone."""
        for gpu in self.gpus.values():
            gpu.last = None

    def now(self) -> Iterator[Gpu]:
        """All devices, with what is known of them now."""
        for gpu in self.gpus.values():
            if gpu.last is not None and self._clock() - gpu.heard > _STALE_SECONDS:
                gpu.last = None
            yield gpu

    def reader(self) -> "Reader":
        """Somebody who wants to know of the time since he asked last."""
        reader = Reader(self, self._clock)
        self._readers.add(reader)
        return reader


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """One device in an interval; None is what is not known."""

    uuid: str
    busy: float | None
    """Seconds."""
    peak: int | None
    """Bytes of memory."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A device in the time of one message."""

    began: float
    busy: float | None
    known: float
    peak: int | None


@dataclass
class _Since:
    """What is to be told of a device."""

    when: float
    """Until then its use has been told."""
    parts: deque[_Part] = field(default_factory=lambda: deque(maxlen=_PARTS))


@dataclass(eq=False)
class Reader:
    """Asks now and then."""

    _meter: Meter
    _clock: Callable[[], float]
    _since: dict[str, _Since] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._asked = self._clock()
        for uuid in self._meter.gpus:
            self._since[uuid] = _Since(self._asked)

    def see(self, uuid: str, part: _Part) -> None:
        """Remember what was said."""
        self._since[uuid].parts.append(part)

    def read(self, age: float | None = None) -> list[GpuUsage]:
        """What the devices did since this was asked last; those of which nothing is known are left out.

        A job's average is what it is told of, divided by the time since HTCondor was told last before the job began
        (startd_named_classad.cpp, AggregateFrom: FirstUpdate). So what was measured while the job ran is told as if it
        had been so for all of that time; then the quotient is the job's own, whenever it began. Messages that are in
        part of the time before the job, of another one for instance, are left out. Where nothing is known of the whole
        interval it becomes part of the next one.

        Args:
            age: of the job in seconds; None where none runs.
        """
        now, found = self._clock(), []
        began = -math.inf if age is None else now - age
        for uuid, since in self._since.items():
            parts = [one for one in since.parts if one.began >= began]
            since.parts.clear()
            known = sum(one.known for one in parts if one.busy is not None)
            busy = None
            if known > 0:
                # Time before the last reading, of which nothing was known and in which no job began, is left out.
                passed = now - (since.when if age is not None else max(since.when, self._asked))
                busy = sum(one.busy for one in parts if one.busy is not None) / known * passed
                since.when = now
            peak = max((one.peak for one in parts if one.peak is not None), default=None)
            if busy is not None or peak is not None:
                found.append(GpuUsage(uuid, busy, peak))
        self._asked = now
        return found
