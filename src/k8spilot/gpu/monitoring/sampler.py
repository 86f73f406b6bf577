"""The sampler: the program of the GPU metrics container, which reads the GPUs' figures and sends them to the engine.

It has its own uid, no rights, and only the GPUs and one socket of the engine. It sends JSON (protocol.py), one message
per packet. It reads utilization and memory every second, so that short peaks are not missed, and reports every five
seconds, which costs little. While the engine is unavailable, the sampler continues to measure, and reports later.

To be small, the sampler uses only the standard library and the vendor's library.
"""

import json
import logging
import os
import socket
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from k8spilot.gpu.monitoring.vendor_interface import GpuProcess, Reading, ReadingFault, Vendor

logger = logging.getLogger("k8spilot.gpu.monitoring.sampler")  # this module runs as __main__

SOCKET: Final = "sampler.sock"
"""Name of the engine's socket in the volume."""
GO: Final = b"go"
END: Final = b"end"
"""The engine's answer to a hello: continue, or end because this sampler is of no use."""
RENEW: Final = b"renew"
"""The engine's later request to end, so that another sampler can replace this one."""

UNWANTED: Final = 3
"""Exit status of a sampler that the engine has rejected."""
_EXIT_STATUSES: Final = {END: UNWANTED, RENEW: 0}
TICK_SECONDS: Final = 1.0
_TICKS_A_MESSAGE: Final = 5
_RETRY_SECONDS: Final = 5.0
_LONGEST_RETRY_SECONDS: Final = 60.0
_DISCOVERY_SECONDS: Final = 30.0
"""Seconds to look for missing devices before the sampler reports them as missing."""
_ANSWER_SECONDS: Final = 3.0
_TEXT_LENGTH: Final = 200
_MOST_PROCESSES: Final = 64


@dataclass(slots=True)
class Tally:
    """Figures of a device since the last message."""

    busy: float | None = None
    known: float = 0.0
    memory: int | None = None
    peak: int | None = None
    total: int | None = None
    processes: list[GpuProcess] | None = None
    fault: str = ""

    def add(self, reading: Reading) -> None:
        """Add a reading."""
        self.fault = reading.fault[:_TEXT_LENGTH]
        if reading.busy is not None:
            self.busy = (self.busy or 0.0) + reading.busy
            self.known += reading.known
        self.memory, self.total = reading.memory, reading.total
        if reading.memory is not None:
            self.peak = max(self.peak or 0, reading.memory)
        if reading.processes is not None or reading.fault:
            self.processes = reading.processes

    def begin(self) -> "Tally":
        """Return the next tally, which keeps the current state."""
        return Tally(memory=self.memory, total=self.total, processes=self.processes, fault=self.fault)

    def json(self) -> dict[str, Any]:
        """Return the tally as JSON for the engine."""
        figures = asdict(self)
        if self.processes is not None:
            # A partial list would look like a complete one.
            fits = len(self.processes) <= _MOST_PROCESSES
            figures["processes"] = (
                [[process.pid, process.memory, process.share] for process in self.processes] if fits else None
            )
        return figures


@dataclass
class Sampler:
    """Reads the devices, sums their figures, and reports them."""

    vendor: Vendor
    path: str
    tick: float = TICK_SECONDS
    _tallies: dict[str, Tally] = field(default_factory=dict)
    _seen: list[str] = field(default_factory=list)
    """All devices that were seen: a lost device still belongs to this pod."""
    _fault: str = ""
    _absent: bool = False
    _connection: socket.socket | None = None
    _reopen: float | None = None
    """Next time to open the vendor's library again."""
    _pause: float = _RETRY_SECONDS
    _reported_at: float = 0.0

    def run(self) -> int:
        """Run until the engine rejects this sampler. Return the exit status."""
        began = self._reported_at = time.monotonic()
        self._open()
        while not self._seen and not self._absent and time.monotonic() < began + _DISCOVERY_SECONDS:
            time.sleep(1)
            self._open()
        ticks = 0
        due = time.monotonic()
        while True:
            self._read(processes=ticks % _TICKS_A_MESSAGE == 0)
            if ticks % _TICKS_A_MESSAGE == 0 and (status := self._report()) is not None:
                return status
            ticks += 1
            due = max(due + self.tick, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))

    def _open(self) -> None:
        self._reopen = None
        try:
            self.vendor.open()
        except ReadingFault as error:
            self._failed(str(error)[:_TEXT_LENGTH])
            self._absent = error.is_absent
            return
        self._fault, self._absent = "", False
        self._seen += [uuid for uuid in self.vendor.uuids if uuid not in self._seen]

    def _failed(self, message: str) -> None:
        """Close the library until a later retry: a driver may be reloading, or a device may be lost."""
        if message != self._fault:
            logger.warning("%s; retrying in %.0f s.", message, self._pause)
        self._fault = message
        self.vendor.close()
        self._reopen = time.monotonic() + self._pause
        self._pause = min(self._pause * 2, _LONGEST_RETRY_SECONDS)

    def _read(self, *, processes: bool) -> None:
        if self._reopen is not None and time.monotonic() >= self._reopen:
            self._open()
        if self._fault:
            return
        readings = self.vendor.read(processes)
        for uuid in self._seen:
            reading = readings.get(uuid, Reading(fault="the driver no longer lists it"))
            self._tallies.setdefault(uuid, Tally()).add(reading)
        broken = [reading.fault for reading in readings.values() if reading.fault]
        if len(broken) == len(readings) and broken:
            self._failed(broken[0])
        elif broken or len(readings) < len(self._seen):
            # One device is lost, and the others are measured. The device may return, which is seen at the next opening.
            if self._reopen is None:
                self._reopen = time.monotonic() + self._pause
                self._pause = min(self._pause * 2, _LONGEST_RETRY_SECONDS)
        else:
            self._pause = _RETRY_SECONDS

    def _report(self) -> int | None:
        """Report to the engine. Return the exit status if the engine rejects this sampler."""
        try:
            answer = self._connect() if self._connection is None else self._connection.recv(16)
            if answer in _EXIT_STATUSES:
                return _EXIT_STATUSES[answer]
            if answer == b"":
                self._hang_up()
                return None
        except BlockingIOError:
            pass  # no message: continue
        except OSError:
            self._hang_up()
            return None
        now = time.monotonic()
        message = {
            "seconds": now - self._reported_at,
            "fault": self._fault,
            "devices": self._devices(now - self._reported_at),
        }
        try:
            assert self._connection is not None
            self._connection.send(json.dumps(message).encode())
        except OSError:
            self._hang_up()
            return None
        self._reported_at = now
        self._tallies = {uuid: tally.begin() for uuid, tally in self._tallies.items()}
        return None

    def _devices(self, seconds: float) -> dict[str, Any]:
        if self._fault:  # the latest state is no longer valid
            for tally in self._tallies.values():
                tally.memory, tally.processes, tally.fault = None, None, self._fault
        for tally in self._tallies.values():
            if tally.busy is not None and tally.known > seconds + 1:  # samples of an interval that is already reported
                tally.busy, tally.known = tally.busy * seconds / tally.known, seconds
        return {uuid: tally.json() for uuid, tally in self._tallies.items()}

    def _connect(self) -> bytes:
        """Send a hello. Return the answer."""
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
    """Run the sampler. Arguments: the folder of the engine's socket, and optionally the seconds between readings."""
    from k8spilot.gpu.monitoring.nvidia import (  # noqa: PLC0415 -- only this program needs it
        Nvidia,
    )

    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(message)s")
    folder, *more = sys.argv[1:]
    os.nice(5)  # the job's processes have priority
    return Sampler(Nvidia(), f"{folder}/{SOCKET}", float(more[0]) if more else TICK_SECONDS).run()


if __name__ == "__main__":
    sys.exit(main())
