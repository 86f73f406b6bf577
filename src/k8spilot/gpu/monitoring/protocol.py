"""What the sampler says to the engine, checked: it stands in a container with drivers of others in it.

A message is one packet of JSON. Nothing in it is taken on trust: sizes have bounds, numbers have ranges, names have a
form in which they can stand in HTCondor's configuration and in a metric's label.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from k8spilot.common.untrusted_json import read_json
from k8spilot.gpu.monitoring.vendor import GpuProcess

T = TypeVar("T")

SIZE: Final = 64 * 1024
"""Bytes of a message, at most."""
_DEVICES: Final = 128
_PROCESSES: Final = 64
_LONGEST_SECONDS: Final = 7 * 86400.0
"""A sampler tells of the time since it was heard last."""
_BYTES: Final = 2**50
_PIDS: Final = 2**31
_WORDS: Final = 400

UUID: Final = re.compile(r"(GPU|MIG)-[0-9A-Za-z-]{1,64}(/[0-9]{1,4}/[0-9]{1,4})?")
"""As NVML names devices; before driver 470 a MIG device was MIG-GPU-<uuid>/<instance>/<instance>."""


class Nonsense(Exception):
    """A message that a sampler of ours does not send."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The first one: what the sampler sees."""

    driver: str | None
    devices: tuple[str, ...]
    fault: str
    """Why it sees nothing, in the words of the vendor's library."""


@dataclass(frozen=True, slots=True)
class DeviceFigures:
    """One device since the message before; None is what is not known."""

    busy: float | None = None
    """Seconds in which it was busy, of the `known` ones."""
    known: float = 0.0
    memory: int | None = None
    """Bytes in use now."""
    peak: int | None = None
    """The most since the message before."""
    total: int | None = None
    processes: tuple[GpuProcess, ...] | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured since the message before."""

    seconds: float
    fault: str
    devices: Mapping[str, DeviceFigures]


def hello(data: bytes) -> Hello:
    """Read the first message. Raises Nonsense."""
    found = _object(data, "hello", "driver", "devices", "fault")
    if found["hello"] != 1:
        raise Nonsense(f"it speaks version {str(found['hello'])[:20]}")
    return Hello(_or_none(_words)(found["driver"]), _several(_uuid, _DEVICES)(found["devices"]), _words(found["fault"]))


def figures(data: bytes) -> Figures:
    """Read one of the others. Raises Nonsense."""
    found = _object(data, "seconds", "fault", "devices")
    devices = found["devices"]
    if not isinstance(devices, dict) or len(devices) > _DEVICES:
        raise Nonsense("devices are no object, or too many")
    read = Figures(
        _seconds(found["seconds"]), _words(found["fault"]), {_uuid(k): _device(v) for k, v in devices.items()}
    )
    for uuid, one in read.devices.items():
        # What a driver's own clock says may be a little more than has passed.
        if one.known > read.seconds * 1.2 + 3 or (one.busy or 0) > one.known + 1e-6:
            raise Nonsense(f"{uuid} was busy for {one.busy} s of {one.known} s in {read.seconds} s")
    return read


def _object(data: bytes, *fields: str) -> dict[str, Any]:
    try:
        found = read_json(data)
    except ValueError:
        raise Nonsense("it is no JSON") from None
    return _fields(found, *fields)


def _fields(found: Any, *fields: str) -> dict[str, Any]:
    if not isinstance(found, dict) or set(found) != set(fields):
        raise Nonsense(f"it is no object of {', '.join(fields)}")
    return found


def _device(found: Any) -> DeviceFigures:
    found = _fields(found, *DeviceFigures.__slots__)
    return DeviceFigures(
        busy=_or_none(_seconds)(found["busy"]),
        known=_seconds(found["known"]),
        memory=_or_none(_bytes)(found["memory"]),
        peak=_or_none(_bytes)(found["peak"]),
        total=_or_none(_bytes)(found["total"]),
        processes=_or_none(_several(_process, _PROCESSES))(found["processes"]),
        fault=_words(found["fault"]),
    )


def _process(found: Any) -> GpuProcess:
    if not isinstance(found, list) or len(found) != 3:
        raise Nonsense("a process is no list of three")
    pid, memory, share = found
    return GpuProcess(_whole(pid, _PIDS), _or_none(_bytes)(memory), _or_none(_share)(share))


def _or_none(read: Callable[[Any], T]) -> Callable[[Any], T | None]:
    return lambda value: None if value is None else read(value)


def _several(read: Callable[[Any], T], most: int) -> Callable[[Any], tuple[T, ...]]:
    def of(value: Any) -> tuple[T, ...]:
        if not isinstance(value, list) or len(value) > most:
            raise Nonsense(f"it is no list of {most} at most")
        return tuple(read(one) for one in value)

    return of


def _uuid(value: Any) -> str:
    if not isinstance(value, str) or not UUID.fullmatch(value):
        raise Nonsense("a device has no name such as NVML gives")
    return value


def _words(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _WORDS:
        raise Nonsense(f"words are no text of {_WORDS} characters at most")
    return "".join(one if one.isprintable() else " " for one in value)


def _whole(value: Any, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise Nonsense(f"a number is not whole, or not from 0 to {most}")
    return value


def _bytes(value: Any) -> int:
    return _whole(value, _BYTES)


def _number(value: Any, most: float) -> float:
    if type(value) not in (int, float) or not (math.isfinite(value) and 0 <= value <= most):
        raise Nonsense(f"a number is not from 0 to {most:g}")
    return float(value)


def _seconds(value: Any) -> float:
    return _number(value, _LONGEST_SECONDS)


def _share(value: Any) -> float:
    return _number(value, 1.0)
