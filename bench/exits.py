"""The processor time of processes that end, short-lived ones included, by the kernel's own report of each end.

Linux sends the accounts of each task that ends to its listeners (taskstats; Documentation/accounting in its sources). A
look at /proc would miss most of docker's clients and of runc. It needs root in the machine's own namespaces.
"""

import math
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from lab.errors import LabError

_NETLINK_GENERIC: Final = 16
_CONTROL, _GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 16, 3, 1, 2
_NEW, _GET, _REGISTER, _STATS, _OF_TASK = 2, 1, 3, 3, 4
"""TASKSTATS_CMD_NEW, _CMD_GET, _CMD_ATTR_REGISTER_CPUMASK, _TYPE_STATS, _TYPE_AGGR_PID (linux/taskstats.h)."""
_HEADER: Final = struct.Struct("=IHHII")
_GENERIC: Final = struct.Struct("=BBH")
_ATTRIBUTE: Final = struct.Struct("=HH")
_COMMAND, _TASK, _TIMES, _GROUP = 80, 128, 152, 368
"""Offsets in struct taskstats: ac_comm; ac_pid; ac_utime and ac_stime; ac_tgid."""
_LEAST_VERSION: Final = 12
"""The first version with ac_tgid: Linux 5.17."""
_BUFFER_BYTES: Final = 64 * 2**20
_LISTEN_S: Final = 0.2
_DRAIN_S: Final = 1.0


@dataclass(frozen=True)
class Exit:
    """A task that has ended: a process, or one of its threads."""

    process: int
    task: int
    name: str
    """Name of the program, in fifteen characters."""
    seconds: float
    """Processor time, user and system."""


@dataclass
class Exits:
    """Recorder of all tasks that end while the context lasts."""

    _messages: list[bytes] = field(default_factory=list)
    _lost: bool = False

    def __enter__(self) -> Self:
        """Begin. Raises LabError: the kernel has no such reports, or does not give them to this process."""
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_GENERIC)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, 33, _BUFFER_BYTES)  # SO_RCVBUFFORCE
            self._socket.bind((0, 0))
            self._ask(_CONTROL, _GET_FAMILY, _attribute(_FAMILY_NAME, b"TASKSTATS\0"))
            answer = dict(_attributes(self._socket.recv(65536), _HEADER.size + _GENERIC.size))
            (family,) = struct.unpack("=H", answer[_FAMILY_ID][:2])
            processors = f"0-{(os.cpu_count() or 1) - 1}\0".encode()
            self._ask(family, _GET, _attribute(_REGISTER, processors))
        except (OSError, KeyError) as error:
            self._socket.close()
            raise LabError(f"the kernel does not report the ends of tasks: {error!r}") from error
        self._socket.settimeout(_LISTEN_S)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._ends.set()
        self._thread.join()
        self._socket.close()

    def seen(self) -> list[Exit]:
        """Return the tasks that have ended; to call after the context. Raises LabError: some reports were lost."""
        if self._lost:
            raise LabError("the kernel had more ends of tasks to report than could be read")
        return [found for message in self._messages for found in parse(message)]

    def _ask(self, family: int, command: int, attributes: bytes) -> None:
        body = _GENERIC.pack(command, 1, 0) + attributes
        self._socket.send(_HEADER.pack(_HEADER.size + len(body), family, 1, 1, 0) + body)

    def _listen(self) -> None:
        # The reports are read after the measurement, so that reading takes no processor time from it.
        deadline = math.inf
        while time.monotonic() < deadline:
            if self._ends.is_set():
                deadline = min(deadline, time.monotonic() + _DRAIN_S)
            try:
                self._messages.append(self._socket.recv(65536))
            except TimeoutError:
                if self._ends.is_set():  # what had come by then is read
                    return
            except OSError:  # ENOBUFS
                self._lost = True


def parse(message: bytes) -> Iterator[Exit]:
    """Yield the tasks in a message of the kernel; those of whole processes (TASKSTATS_TYPE_AGGR_TGID) have no times."""
    for kind, body in _attributes(message, _HEADER.size + _GENERIC.size):
        if kind != _OF_TASK:
            continue
        found = dict(_attributes(body, 0))
        stats = found.get(_STATS, b"")
        if len(stats) < _GROUP + 4 or struct.unpack_from("=H", stats)[0] < _LEAST_VERSION:
            continue
        name = stats[_COMMAND : _COMMAND + 16].partition(b"\0")[0].decode(errors="replace")
        user, system = struct.unpack_from("=QQ", stats, _TIMES)
        (task,) = struct.unpack_from("=I", stats, _TASK)
        (process,) = struct.unpack_from("=I", stats, _GROUP)
        yield Exit(process, task, name, (user + system) / 1e6)


def by_process(exits: Sequence[Exit]) -> dict[int, tuple[str, float]]:
    """Return the name and the seconds of each process's tasks that have ended, by process id."""
    found: dict[int, tuple[str, float]] = {}
    for one in exits:
        name, seconds = found.get(one.process, (one.name, 0.0))
        found[one.process] = (one.name if one.task == one.process else name), seconds + one.seconds
    return found


def _attribute(kind: int, data: bytes) -> bytes:
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(data), kind) + data + b"\0" * (-len(data) % 4)


def _attributes(data: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size:
            return
        yield kind & 0x3FFF, data[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3
