"""The Docker Engine API: whole requests, against an engine that runs."""

import asyncio
import contextlib
import gc
import json
import re
import socket
import string
from pathlib import Path

import pytest
from hypothesis import strategies as st

from k8spilot.common.http_limits import LimitedRequestHandler
from tests.engine.rings import eventually, simulated
from tests.fuzz.drawing import JSON, drawn
from tests.fuzz.test_texts import OPTIONS, VALUES
from tests.simulator.programs import Programs

METHODS = st.sampled_from(["GET", "POST", "DELETE", "HEAD", "PUT", "OPTIONS", "CONNECT", "G\0T", "PRI"])
IDENTIFIERS = st.sampled_from(
    ["fuzzed", "none", "HTCJob1_0_slot1_PID1", "%00", "%ff%fe", "..", "a" * 3000, "json", "%2f"]
)
PATHS = st.one_of(
    st.sampled_from(
        ["/_ping", "/version", "/info", "/images/json", "/containers/json", "/containers/prune", "/k8spilot/status"]
    ),
    st.builds(
        "/{}/{}/{}".format,
        st.sampled_from(["containers", "exec", "images", "networks", "v1.45/containers", "v9999999.1/containers"]),
        IDENTIFIERS,
        st.sampled_from(
            [
                "json",
                "attach",
                "start",
                "stop",
                "wait",
                "kill",
                "pause",
                "unpause",
                "logs",
                "stats",
                "exec",
                "resize",
                "tag",
            ]
        ),
    ),
    st.builds("/{}".format, IDENTIFIERS),
    st.just("/containers/create"),
    st.just("/images/create"),
)
QUERY_VALUES = st.sampled_from(
    ["", "0", "1", "nan", "inf", "-1", "1e400", "9" * 5000, "%ff", "%00", "KILL", "all", "%5B" * 900]
)
QUERIES = st.dictionaries(
    st.sampled_from(
        [
            "name",
            "signal",
            "t",
            "h",
            "w",
            "tail",
            "since",
            "until",
            "filters",
            "stdin",
            "stdout",
            "stream",
            "logs",
            "follow",
            "condition",
            "fromImage",
            "tag",
            "repo",
            "force",
            "all",
        ]
    ),
    QUERY_VALUES | st.text(string.printable, max_size=12).map(lambda text: re.sub(r"[\s#]", "", text)),
    max_size=4,
)
HEADERS = st.lists(
    st.sampled_from(
        [
            b"Connection: Upgrade",
            b"Upgrade: tcp",
            b"Upgrade: websocket",
            b"Connection: close",
            b"Expect: 100-continue",
            b"Transfer-Encoding: chunked",
            b"Content-Length: 5",
            b"Content-Length: -1",
            b"Content-Type: application/json",
            b"Content-Encoding: gzip",
            b"X-Registry-Auth: W1tb",
            b"X: " + b"a" * 9000,
            b": a",
            b"Host: a",
            b"\xff: \xfe",
            b"Content-Type: text/plain; charset=nonsense",
        ]
    ),
    max_size=5,
)
BODIES = st.one_of(
    st.binary(max_size=60),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.dictionaries(st.sampled_from(OPTIONS), VALUES).map(lambda value: json.dumps(value).encode()),
    st.just(b"5\r\n{}   \r\n0\r\n\r\n"),
    st.just(b"ffffffffffffffff\r\n"),
)
REQUESTS = st.lists(
    st.builds(
        lambda method, path, query, headers, body, counts: _request(method, path, query, headers, body, counts=counts),
        METHODS,
        PATHS,
        QUERIES,
        HEADERS,
        BODIES,
        st.booleans(),
    ),
    min_size=1,
    max_size=3,
).map(b"".join)


def _request(
    method: str, path: str, query: dict[str, str], headers: list[bytes], body: bytes, *, counts: bool
) -> bytes:
    address = path + ("?" + "&".join(f"{name}={value}" for name, value in query.items()) if query else "")
    length = [b"Content-Length: %d" % len(body)] if counts else []
    head = b"\r\n".join(
        [f"{method} {address} HTTP/1.1".encode("utf-8", "surrogateescape"), b"Host: a", *length, *headers]
    )
    return head + b"\r\n\r\n" + body


async def test_whole_requests_are_answered_or_cut_off_and_the_next_client_is_served(
    programs: Programs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, seconds in (("HEAD_SECONDS", 0.1), ("READING_SECONDS", 1.0)):
        monkeypatch.setattr(LimitedRequestHandler, name, seconds)
    monkeypatch.setattr("k8spilot.docker.json_http._BODY_SECONDS", 0.1)
    async with simulated(programs) as engine:
        await engine.shell(engine.image("busybox"), "true")
        files, tasks = _descriptors(), len(asyncio.all_tasks())
        await engine.begin(engine.image("busybox"), "sleep", "600", name="fuzzed")
        await asyncio.to_thread(_attack, engine.path)
        faults = [f"{one.getMessage()} {one.exc_text}" for one in caplog.records if one.levelname == "ERROR"]
        assert not faults, faults
        await engine.remove_all()
        for left in list(engine._attached):
            await left.close()
        assert (await engine.shell(engine.image("busybox"), "echo served")).stdout == b"served\n"
        gc.collect()

        async def as_before() -> bool:
            return _descriptors() <= files and len(asyncio.all_tasks()) <= tasks

        await eventually(as_before)


def _attack(path: Path) -> None:
    @drawn(300, request=REQUESTS | st.binary(max_size=300), ends=st.booleans(), patient=st.booleans())
    def attack(request: bytes, ends: bool, patient: bool) -> None:
        answer = _exchange(path, request, ends=ends, patient=patient)
        if answer:
            assert re.match(rb"HTTP/1\.[01] [1-5]\d\d ", answer), answer[:100]
            assert b"the pilot itself failed" not in answer, request

    attack()


def _exchange(path: Path, request: bytes, *, ends: bool, patient: bool) -> bytes:
    """Send, and read some of what comes."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.settimeout(5)
        answer = b""
        with contextlib.suppress(OSError):
            client.sendall(request)
            if ends:
                client.shutdown(socket.SHUT_WR)
            client.settimeout(0.15 if patient else 0.01)
            answer = client.recv(65536)
        return answer


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
