"""Messages of the sampler to the engine, and their validation.

The sampler's container also has driver code of others. A message is one packet of JSON. The engine trusts nothing in
it: sizes have bounds, numbers have ranges, and names have a form that is safe in HTCondor's configuration and in a
metric's label.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from k8spilot.common.untrusted_json import read_json
from k8spilot.gpu.monitoring.vendor_interface import GpuProcess

SIZE: Final = 64 * 1024
"""Limit of a message, in bytes."""
_MOST_DEVICES: Final = 128
_MOST_PROCESSES: Final = 64
_LONGEST_SECONDS: Final = 7 * 86400.0
"""Longest interval of a message: a sampler reports on the time since its last message."""
_MOST_BYTES: Final = 2**50
_MOST_PIDS: Final = 2**31
_TEXT_LENGTH: Final = 400

UUID: Final = re.compile(r"(GPU|MIG)-[0-9A-Za-z-]{1,64}(/[0-9]{1,4}/[0-9]{1,4})?")
"""Names of devices in NVML. Before driver 470 a MIG device was MIG-GPU-<uuid>/<instance>/<instance>."""


class Nonsense(Exception):
    """Raised when a message does not have the form of a sampler's message."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message: the devices that the sampler sees."""

    driver: str | None
    devices: tuple[str, ...]
    fault: str
    """Reason why it sees no devices, as the vendor's library reports it."""


@dataclass(frozen=True, slots=True)
class DeviceFigures:
    """Figures of one device since the last message; None if unknown."""

    busy: float | None = None
    """Busy seconds within the `known` ones."""
    known: float = 0.0
    memory: int | None = None
    """Memory in use now, in bytes."""
    peak: int | None = None
    """Peak of the memory in use since the last message, in bytes."""
    total: int | None = None
    processes: tuple[GpuProcess, ...] | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Figures:
    """Measurements since the last message."""

    seconds: float
    fault: str
    devices: Mapping[str, DeviceFigures]


def hello(data: bytes) -> Hello:
    """Read the first message.

    Raises:
        Nonsense: the message is invalid.
    """
    value = _object(data, "hello", "driver", "devices", "fault")
    if value["hello"] != 1:
        raise Nonsense(f"it speaks version {str(value['hello'])[:20]}")
    return Hello(
        _optional(_text)(value["driver"]), _list_of(_uuid, _MOST_DEVICES)(value["devices"]), _text(value["fault"])
    )


def figures(data: bytes) -> Figures:
    """Read one of the later messages.

    Raises:
        Nonsense: the message is invalid.
    """
    value = _object(data, "seconds", "fault", "devices")
    devices = value["devices"]
    if not isinstance(devices, dict) or len(devices) > _MOST_DEVICES:
        raise Nonsense("devices are not an object, or there are too many")
    read = Figures(
        _seconds(value["seconds"]), _text(value["fault"]), {_uuid(k): _device(v) for k, v in devices.items()}
    )
    for uuid, device in read.devices.items():
        # The driver's clock may run slightly faster.
        if device.known > read.seconds * 1.2 + 3 or (device.busy or 0) > device.known + 1e-6:
            raise Nonsense(f"{uuid} was busy for {device.busy} s of {device.known} s in {read.seconds} s")
    return read


def _object(data: bytes, *fields: str) -> dict[str, Any]:
    try:
        value = read_json(data)
    except ValueError:
        raise Nonsense("it is not JSON") from None
    return _fields(value, *fields)


def _fields(value: Any, *fields: str) -> dict[str, Any]:
    if not isinstance(value, dict) or set(value) != set(fields):
        raise Nonsense(f"it is not an object of {', '.join(fields)}")
    return value


def _device(value: Any) -> DeviceFigures:
    value = _fields(value, *DeviceFigures.__slots__)
    return DeviceFigures(
        busy=_optional(_seconds)(value["busy"]),
        known=_seconds(value["known"]),
        memory=_optional(_bytes)(value["memory"]),
        peak=_optional(_bytes)(value["peak"]),
        total=_optional(_bytes)(value["total"]),
        processes=_optional(_list_of(_process, _MOST_PROCESSES))(value["processes"]),
        fault=_text(value["fault"]),
    )


def _process(value: Any) -> GpuProcess:
    if not isinstance(value, list) or len(value) != 3:
        raise Nonsense("a process is not a list of three")
    pid, memory, share = value
    return GpuProcess(_whole(pid, _MOST_PIDS), _optional(_bytes)(memory), _optional(_share)(share))


def _optional[T](read: Callable[[Any], T]) -> Callable[[Any], T | None]:
    return lambda value: None if value is None else read(value)


def _list_of[T](read: Callable[[Any], T], most: int) -> Callable[[Any], tuple[T, ...]]:
    def of(value: Any) -> tuple[T, ...]:
        if not isinstance(value, list) or len(value) > most:
            raise Nonsense(f"it is not a list of at most {most}")
        return tuple(read(item) for item in value)

    return of


def _uuid(value: Any) -> str:
    if not isinstance(value, str) or not UUID.fullmatch(value):
        raise Nonsense("a device's name is not an NVML name")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _TEXT_LENGTH:
        raise Nonsense(f"a text is not a string of at most {_TEXT_LENGTH} characters")
    return "".join(item if item.isprintable() else " " for item in value)


def _whole(value: Any, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise Nonsense(f"a number is not whole, or not from 0 to {most}")
    return value


def _bytes(value: Any) -> int:
    return _whole(value, _MOST_BYTES)


def _number(value: Any, most: float) -> float:
    if type(value) not in (int, float) or not (math.isfinite(value) and 0 <= value <= most):
        raise Nonsense(f"a number is not from 0 to {most:g}")
    return float(value)


def _seconds(value: Any) -> float:
    return _number(value, _LONGEST_SECONDS)


def _share(value: Any) -> float:
    return _number(value, 1.0)
