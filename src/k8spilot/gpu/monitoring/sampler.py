"""The program of the ephemeral container: reads the GPUs' figures all the time, and tells the engine now and then.

It has a uid of its own, no rights, and nothing but the GPUs and one socket of the engine's, to which it sends JSON
(messages.py), a message a packet. Utilisation and memory are read every second, so that no short peak is missed; the
engine is told every five, which costs little. While the engine is away, it goes on, and tells later.

Stands on the standard library and the vendor's, so that it is small.
"""

import json
import logging
import os
import socket
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from k8spilot.gpu.monitoring.vendor import GpuProcess, Reading, ReadingFault, Vendor

logger = logging.getLogger("k8spilot.gpu.monitoring.sampler")  # it is run as __main__

SOCKET: Final = "sampler.sock"
"""Name of the engine's socket in the volume."""
GO: Final = b"go"
END: Final = b"end"
"""What the engine says to a hello: go on, or that it has no use for this sampler."""
RENEW: Final = b"renew"
"""What it says later to one that has no figures for it any more: it shall end, for another one like it."""

UNWANTED: Final = 3
"""Exit status of a sampler for which the engine has no use."""
_LAST_WORDS: Final = {END: UNWANTED, RENEW: 0}
TICK_SECONDS: Final = 1.0
_TICKS_A_MESSAGE: Final = 5
_AGAIN_SECONDS: Final = 5.0
_AGAIN_MOST_SECONDS: Final = 60.0
_FIRST_SECONDS: Final = 30.0
"""How long devices that are not to be had are looked for before the engine is told so."""
_ANSWER_SECONDS: Final = 3.0
_WORDS: Final = 200
_PROCESSES: Final = 64


@dataclass(slots=True)
class Tally:
    """A device since the engine was told last."""

    busy: float | None = None
    known: float = 0.0
    memory: int | None = None
    peak: int | None = None
    total: int | None = None
    processes: list[GpuProcess] | None = None
    fault: str = ""

    def add(self, one: Reading) -> None:
        """Add what was read."""
        self.fault = one.fault[:_WORDS]
        if one.busy is not None:
            self.busy = (self.busy or 0.0) + one.busy
            self.known += one.known
        self.memory, self.total = one.memory, one.total
        if one.memory is not None:
            self.peak = max(self.peak or 0, one.memory)
        if one.processes is not None or one.fault:
            self.processes = one.processes

    def begin(self) -> "Tally":
        """The next one: what is known of this moment stays."""
        return Tally(memory=self.memory, total=self.total, processes=self.processes, fault=self.fault)

    def json(self) -> dict[str, Any]:
        """For the engine."""
        found = asdict(self)
        if self.processes is not None:
            # A part of them would look like all of them.
            fits = len(self.processes) <= _PROCESSES
            found["processes"] = [[one.pid, one.memory, one.share] for one in self.processes] if fits else None
        return found


@dataclass
class Sampler:
    """Reads, adds up, tells."""

    vendor: Vendor
    path: str
    tick: float = TICK_SECONDS
    _tallies: dict[str, Tally] = field(default_factory=dict)
    _seen: list[str] = field(default_factory=list)
    """All devices that were ever there: one that is lost now was none of somebody else's before."""
    _fault: str = ""
    _absent: bool = False
    _connection: socket.socket | None = None
    _reopen: float | None = None
    """When the vendor's library is to be opened again."""
    _pause: float = _AGAIN_SECONDS
    _told: float = 0.0

    def run(self) -> int:
        """Go on until the engine has no use for it."""
        began = self._told = time.monotonic()
        self._open()
        while not self._seen and not self._absent and time.monotonic() < began + _FIRST_SECONDS:
            time.sleep(1)
            self._open()
        ticks = 0
        due = time.monotonic()
        while True:
            self._read(processes=ticks % _TICKS_A_MESSAGE == 0)
            if ticks % _TICKS_A_MESSAGE == 0 and (status := self._tell()) is not None:
                return status
            ticks += 1
            due = max(due + self.tick, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))

    def _open(self) -> None:
        self._reopen = None
        try:
            self.vendor.open()
        except ReadingFault as error:
            self._failed(str(error)[:_WORDS])
            self._absent = error.is_absent
            return
        self._fault, self._absent = "", False
        self._seen += [uuid for uuid in self.vendor.uuids if uuid not in self._seen]

    def _failed(self, words: str) -> None:
        """A driver that is being reloaded, or a device that is lost, is looked for again: later each time."""
        if words != self._fault:
            logger.warning("%s; looking again in %.0f s.", words, self._pause)
        self._fault = words
        self.vendor.close()
        self._reopen = time.monotonic() + self._pause
        self._pause = min(self._pause * 2, _AGAIN_MOST_SECONDS)

    def _read(self, *, processes: bool) -> None:
        if self._reopen is not None and time.monotonic() >= self._reopen:
            self._open()
        if self._fault:
            return
        found = self.vendor.read(processes)
        for uuid in self._seen:
            reading = found.get(uuid, Reading(fault="the driver does not show it any more"))
            self._tallies.setdefault(uuid, Tally()).add(reading)
        broken = [one.fault for one in found.values() if one.fault]
        if len(broken) == len(found) and broken:
            self._failed(broken[0])
        elif broken or len(found) < len(self._seen):
            # One is lost, and the others are measured on. It may come back: that is seen when all are looked for again.
            if self._reopen is None:
                self._reopen = time.monotonic() + self._pause
                self._pause = min(self._pause * 2, _AGAIN_MOST_SECONDS)
        else:
            self._pause = _AGAIN_SECONDS

    def _tell(self) -> int | None:
        """Tell the engine; the exit status if it wants no more of this sampler."""
        try:
            said = self._connect() if self._connection is None else self._connection.recv(16)
            if said in _LAST_WORDS:
                return _LAST_WORDS[said]
            if said == b"":
                self._hang_up()
                return None
        except BlockingIOError:
            pass  # it has said nothing, which is well
        except OSError:
            self._hang_up()
            return None
        now = time.monotonic()
        words = {"seconds": now - self._told, "fault": self._fault, "devices": self._devices(now - self._told)}
        try:
            assert self._connection is not None
            self._connection.send(json.dumps(words).encode())
        except OSError:
            self._hang_up()
            return None
        self._told = now
        self._tallies = {uuid: one.begin() for uuid, one in self._tallies.items()}
        return None

    def _devices(self, seconds: float) -> dict[str, Any]:
        if self._fault:  # what was last known of this moment is not so any more
            for one in self._tallies.values():
                one.memory, one.processes, one.fault = None, None, self._fault
        for one in self._tallies.values():
            if one.busy is not None and one.known > seconds + 1:  # samples of a time that was told of already
                one.busy, one.known = one.busy * seconds / one.known, seconds
        return {uuid: one.json() for uuid, one in self._tallies.items()}

    def _connect(self) -> bytes:
        """Say hello; return the answer."""
        self._connection = connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        connection.settimeout(_ANSWER_SECONDS)
        connection.connect(self.path)
        hello = {
            "hello": 1,
            "driver": None if self._fault else self.vendor.driver(),
            "devices": self._seen,
            "fault": self._fault,
        }
        connection.send(json.dumps(hello).encode())
        answer = connection.recv(16)
        connection.setblocking(False)
        return answer

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def main() -> int:
    """Sample for the engine that listens in the folder that is the only argument, or the first of two: the tick."""
    from k8spilot.gpu.monitoring.nvidia import (  # noqa: PLC0415 -- where there is none, this has been said by then
        Nvidia,
    )

    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(message)s")
    folder, *more = sys.argv[1:]
    os.nice(5)  # the job's processes come first
    return Sampler(Nvidia(), f"{folder}/{SOCKET}", float(more[0]) if more else TICK_SECONDS).run()


if __name__ == "__main__":
    sys.exit(main())
