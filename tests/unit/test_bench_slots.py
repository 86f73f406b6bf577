"""The benchmark's part `slots`: rates, waves, and the kernel's reports of tasks that end."""

import struct
import subprocess
from typing import Any

import pytest

from bench.exits import Exit, Exits, by_process, parse
from bench.parts.slot_requests import _rests
from bench.parts.slots import SLOTS, halves, rate
from lab.errors import LabError


def test_a_rate_begins_with_the_end_of_the_eighth_job() -> None:
    first = [100.0 + number for number in range(SLOTS)]
    then = [107.0 + 0.25 * number for number in range(1, 41)]
    assert rate([*reversed(then), *first]) == 4


def test_the_first_eight_are_those_that_began_first() -> None:
    job_times = [{"start": float(number % 16)} for number in range(5, 21)]
    first, second = halves(job_times)
    assert [one["start"] for one in first] == list(range(8))
    assert [one["start"] for one in second] == list(range(8, 16))


def _pod(*images: str, status: str | None = None, running: bool = True) -> dict[str, Any]:
    pilot = {"name": "pilot", "image": "registry/k8spilot:1"}
    payloads = [{"name": f"payload-{number}", "image": image} for number, image in enumerate(images, 1)]
    state: dict[str, Any] = {"running": {}} if running else {"waiting": {}}
    statuses = [{"name": one["name"], "image": status or one["image"], "state": state} for one in payloads]
    return {
        "spec": {"initContainers": [{"name": "install", "image": "x"}, *payloads], "containers": [pilot]},
        "status": {"initContainerStatuses": statuses},
    }


def test_a_pilot_rests_when_all_its_payload_containers_run_its_own_image() -> None:
    idle = f"registry/k8spilot:idle-1@sha256:{'0' * 64}"
    assert _rests(_pod(idle, idle))
    assert _rests(_pod(idle, idle, status="registry/k8spilot:1"))
    assert not _rests(_pod(idle, "registry/bench:1"))
    assert not _rests(_pod(idle, idle, status="registry/bench:1"))
    assert not _rests(_pod(idle, idle, running=False))


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), kind) + data + b"\0" * (-len(data) % 4)


def _report(kind: int, version: int = 13) -> bytes:
    stats = bytearray(416)
    struct.pack_into("=H", stats, 0, version)
    stats[80:86] = b"docker"
    struct.pack_into("=I", stats, 128, 12)
    struct.pack_into("=QQ", stats, 152, 30_000, 12_000)
    struct.pack_into("=I", stats, 368, 11)
    body = _attribute(1, struct.pack("=I", 12)) + _attribute(3, bytes(stats))
    return bytes(20) + _attribute(kind, body)


def test_a_report_of_a_task_is_read_and_that_of_its_process_is_not() -> None:
    assert list(parse(_report(4))) == [Exit(11, 12, "docker", 0.042)]
    assert not list(parse(_report(5)))
    assert not list(parse(_report(4, version=11)))
    assert not list(parse(b"short"))


def test_a_process_has_the_name_of_its_first_task_and_the_times_of_all() -> None:
    found = by_process([Exit(5, 6, "thread", 1.0), Exit(5, 5, "program", 2.0), Exit(7, 8, "lonely", 3.0)])
    assert found == {5: ("program", 3.0), 7: ("lonely", 3.0)}


def test_the_kernel_reports_a_program_that_ends() -> None:
    try:
        with Exits() as exits:
            program = subprocess.Popen(["/bin/sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"])
            program.wait()
    except LabError as error:
        pytest.skip(str(error))
    assert by_process(exits.seen())[program.pid][1] > 0
