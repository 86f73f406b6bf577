"""Signals, frames, times, and the text of stats."""

import json
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any, cast

import pytest

from k8spilot.common.errors import Refused
from k8spilot.docker import serializers
from k8spilot.docker.container import Container
from k8spilot.docker.hijack import frame
from k8spilot.docker.signals import signal_number
from k8spilot.docker.stats import figures
from k8spilot.model.outcome import Outcome
from k8spilot.payload.usage import Traffic, Usage


@pytest.mark.parametrize(
    ("text", "number"), [("9", 9), ("15", 15), ("KILL", 9), ("SIGTERM", 15), ("sigusr1", 10), ("hup", 1), ("64", 64)]
)
def test_a_signal_is_known_by_number_and_name(text: str, number: int) -> None:
    assert signal_number(text) == number


@pytest.mark.parametrize("text", ["", "0", "65", "-9", "9.0", "TERMINATE", "SIG", "SIG_DFL", "²", "x" * 1000])
def test_what_is_no_signal_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="is not a signal"):
        signal_number(text)


@pytest.mark.parametrize(
    ("stream", "data", "expected"),
    [
        (1, b"abc", b"\1\0\0\0\0\0\0\3abc"),
        (2, b"", b"\2\0\0\0\0\0\0\0"),
        (1, b"x" * 66000, b"\1\0\0\0\0\1\1\xd0" + b"x" * 66000),
    ],
)
def test_a_frame_is_a_header_of_eight_bytes_and_the_data(stream: int, data: bytes, expected: bytes) -> None:
    assert frame(stream, data) == expected


def test_times_are_rfc_3339_in_utc() -> None:
    east = datetime(2026, 1, 2, 3, 4, 5, 678900, tzinfo=timezone(timedelta(hours=2)))
    assert serializers.stamp(east) == "2026-01-02T01:04:05.678900Z"
    assert serializers.stamp(None) == "0001-01-01T00:00:00Z"
    assert serializers.stamp(datetime(2026, 1, 2, tzinfo=UTC)) < serializers.stamp(datetime(2026, 1, 3, tzinfo=UTC))


def container(**fields: Any) -> Container:
    """As much of a container as a view needs."""
    return cast("Container", SimpleNamespace(name="rss", identifier="anon", **fields))


def test_stats_have_each_figure_where_htcondor_looks_for_it() -> None:
    usage = Usage(user_ns=11, system_ns=22, resident=33, oom_kills=0)
    text = json.dumps(figures(container(), usage, Traffic(44, 55)), separators=(",", ":"))
    expected = {"rss": 33, "usage_in_usermode": 11, "usage_in_kernelmode": 22, "rx_bytes": 44, "tx_bytes": 55}
    for name, value in expected.items():
        assert int(text.split(f'"{name}":', 1)[1].split(",")[0].rstrip("}")) == value, name
    assert text.index('"cpu_stats"') < text.index('"precpu_stats"') < text.index('"memory_stats"')


def test_stats_of_an_unknown_usage_are_zeros() -> None:
    shown = figures(container(), Usage(), Traffic())
    assert shown["memory_stats"]["usage"] == 0
    assert shown["cpu_stats"]["cpu_usage"]["total_usage"] == 0


ENDS = {
    **{f"exit {code}": code << 8 for code in range(256)},
    **{f"signal {number}": number for number in range(1, 65)},
    **{f"signal {number}, core dumped": number | 0x80 for number in range(1, 65)},
}
"""Every way for a process to end -> its wait status (waitpid(2))."""


def in_htcondor(code: int) -> tuple[str, int]:
    """Return the end that HTCondor's docker universe reads in an exit code (docker_proc.cpp, user_proc.cpp)."""
    status = code - 128 if code > 128 else code << 8
    return ("signal", status) if 0 < status < 127 else ("exit", status >> 8)


def test_however_a_job_ends_it_is_told_as_that_and_only_exit_0_as_a_success() -> None:
    told = {}
    for end, status in ENDS.items():
        outcome = Outcome.of(status)
        shown = serializers.state(container(outcome=outcome, run=None, running=False, paused=False, error=""))
        told[end] = in_htcondor(shown["ExitCode"])
    expected = {f"exit {code}": ("exit", code) for code in range(129)}
    expected |= {f"exit {code}": ("signal", code - 128) for code in range(129, 255)}
    expected |= {"exit 255": ("exit", 128)}
    expected |= {end: ("signal", int(end.split(",")[0].split()[1])) for end in ENDS if end.startswith("signal")}
    assert told == expected
    assert [end for end, one in told.items() if one == ("exit", 0)] == ["exit 0"]
