"""Requests that are none are refused in one sentence."""

import asyncio
from contextlib import suppress

import pytest

from k8spilot.common.http_limits import LimitedRequestHandler
from k8spilot.docker import json_http
from tests.engine.bad_clients.client import (
    HEAD,
    MIB,
    Crowd,
    answered,
    body,
    message,
    resident,
    status,
    unharmed,
)
from tests.engine.rings import Simulated


@pytest.mark.slow
@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999999999999999999999999\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST /containers/create HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 20000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n" + b"".join(b"X-%d: a\r\n" % one for one in range(1000)) + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX\x00Y: a\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
    ],
)
async def test_what_is_no_request_is_refused_in_one_sentence(simulator: Simulated, request_: bytes) -> None:
    async with unharmed(simulator):
        answer = await answered(simulator, request_)
        assert status(answer) == 400
        assert message(answer).startswith("the request is invalid (")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 50_000, "nested too deeply"),
        (b'{"Image":"\xff\xfe"}', "not JSON"),
        (b'{"Image":"a\\ud800"}', "not JSON"),
        (b'{"HostConfig":{"ShmSize":' + b"9" * 5000 + b"}}", "not JSON"),
        (b'{"HostConfig":{"ShmSize":NaN}}', "not JSON"),
        (b"[" + b"[]," * 1_000_000 + b"[]]", "too many values"),
        (b"\x1f\x8b" + bytes(100), "not JSON"),
        (b'{"Image":"a","Cmd":{"a":1}}', "the docker option Cmd must be a list of texts"),
        (b'{"Image":"a","Cmd":[[]]}', "the docker option Cmd"),
        (b'{"Image":1}', "the docker option Image"),
        (b'{"Image":"a","HostConfig":[1]}', "the docker option HostConfig"),
        (b'{"Image":"a","HostConfig":{"Mounts":5}}', "the docker option Mounts"),
        (b'{"Image":"a","HostConfig":{"ShmSize":1e999}}', "the docker option ShmSize"),
        (b'{"Image":"a","HostConfig":{"ShmSize":-9}}', "the docker option ShmSize"),
        (b'{"Image":"a","HostConfig":{"PortBindings":{"80":[3]}}}', "the docker option PortBindings"),
        (b'{"Image":"a","HostConfig":{"RestartPolicy":[3]}}', "the docker option RestartPolicy"),
        (b'{"Image":"a","Labels":{"org.htcondorproject":["True"]}}', "the docker option Labels"),
    ],
)
async def test_a_body_that_makes_no_sense_is_refused_in_one_sentence(
    simulator: Simulated, content: bytes, words: str
) -> None:
    async with unharmed(simulator):
        answer = await answered(simulator, body(content))
        assert 400 <= status(answer) < 500
        assert words in message(answer)


async def test_a_body_that_says_it_is_too_large_is_not_read(simulator: Simulated) -> None:
    async with unharmed(simulator):
        before = resident()
        answer = await answered(simulator, body(b'{"Image":"' + b"a" * (40 * MIB)))
        assert status(answer) == 413
        assert resident() - before < 60 * MIB  # this side has all of it in memory


@pytest.mark.slow
async def test_a_compressed_body_is_not_unpacked(simulator: Simulated) -> None:
    import zlib  # noqa: PLC0415

    bomb = zlib.compress(bytes(200 * MIB), 9)
    async with unharmed(simulator):
        before = resident()
        answer = await answered(simulator, body(bomb, "Content-Encoding: deflate\r\n"))
        assert status(answer) == 400
        assert resident() - before < 30 * MIB


@pytest.mark.slow
@pytest.mark.parametrize("request_", [b"", b"GET /_p", b"GET /_ping HTTP/1.1\r\nHost: docker\r\nX: "])
async def test_who_does_not_finish_a_request_is_hung_up_on(
    simulator: Simulated, request_: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LimitedRequestHandler, "HEAD_SECONDS", 0.3)
    async with unharmed(simulator):
        answer = await answered(simulator, request_)
        assert status(answer) == 408
        assert message(answer) == "the request was not complete in time"


async def test_a_header_byte_by_byte_is_too_slow(simulator: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LimitedRequestHandler, "HEAD_SECONDS", 0.5)
    async with unharmed(simulator):
        reader, writer = await asyncio.open_unix_connection(str(simulator.path))
        # The request before it is served: the connection has nothing against it, only time has.
        writer.write(b"GET /_ping HTTP/1.1\r\nHost: docker\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        sent, reading = 0, asyncio.create_task(reader.read())
        for byte in b"GET /_ping HTTP/1.1\r\nX: " + b"a" * 100:
            if reading.done():
                break
            writer.write(bytes([byte]))
            sent += 1
            await asyncio.sleep(0.05)
        assert sent < 30
        with suppress(ConnectionError):
            assert b"HTTP/1.1 408 " in await reading
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@pytest.mark.slow
async def test_a_body_that_does_not_come_is_not_waited_for(
    simulator: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_http, "_BODY_SECONDS", 0.3)
    async with unharmed(simulator):
        answer = await answered(simulator, HEAD + b"Content-Length: 100\r\n\r\n{", ends=False)
        assert status(answer) == 408
        assert "did not arrive within" in message(answer)


async def test_half_a_request_from_who_hangs_up_leaves_nothing(simulator: Simulated) -> None:
    async with unharmed(simulator):
        for part in (b"", b"GET", HEAD, HEAD + b"Content-Length: 100\r\n\r\n{", HEAD + b"Upgrade: tcp\r\n"):
            for ends in (True, False):
                _, writer = await asyncio.open_unix_connection(str(simulator.path))
                writer.write(part)
                if ends:
                    writer.write_eof()
                await asyncio.sleep(0)
                writer.close()
                with suppress(ConnectionError):
                    await writer.wait_closed()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/containers/a/kill?signal=" + "9" * 5000),
        ("GET", "/containers/json?filters=" + "%5B" * 2500),
        ("GET", "/containers/json?filters=%7B%22label%22:%22%5Cud800%22%7D"),
        ("GET", "/containers/json?filters=%7B%22label%22:1%7D"),
        ("GET", "/containers/%ff%00/json"),
        ("POST", "/images/create?fromImage=" + "a/" * 3000),
        ("DELETE", "/images/" + "%2e%2e%2f" * 100),
    ],
)
async def test_an_odd_address_is_answered(simulator: Simulated, method: str, path: str) -> None:
    async with unharmed(simulator):
        answer = await answered(simulator, f"{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        assert status(answer) < 500


async def test_who_hangs_up_while_it_is_told_to_go_on_is_no_fault(simulator: Simulated) -> None:
    async with unharmed(simulator):
        crowd = Crowd(simulator)
        for _ in range(20):
            await crowd.join(b"POST /containers/create HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n" * 8)
            crowd.leave()


async def test_credentials_that_are_none_are_no_credentials(simulator: Simulated) -> None:
    import base64  # noqa: PLC0415

    async with unharmed(simulator):
        for header in (base64.urlsafe_b64encode(b"[" * 6000).decode(), "\xe9\xff", "a"):
            answer = await simulator.ask(
                "POST", "/images/create", params={"fromImage": "nowhere.test/a"}, headers={"X-Registry-Auth": header}
            )
            assert answer.status == 200


async def test_stop_for_a_time_that_is_no_number_is_refused(simulator: Simulated) -> None:
    async with unharmed(simulator):
        job = await simulator.begin(simulator.image("busybox"), "sleep", "600")
        assert (await simulator.ask("POST", f"/containers/{job.name}/stop", params={"t": "nan"})).status == 400
        await job.kill("KILL")
        await job.result()
        await simulator.remove(job.name)
