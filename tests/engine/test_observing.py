"""Observation of an engine by an operator: metrics, probes, Events, its status, and its log."""

import asyncio
import json
import logging
import re
import socket
import time
from contextlib import suppress

import aiohttp
import pytest

from k8spilot.cli import status
from k8spilot.common import logs
from k8spilot.common.http_limits import LimitedRequestHandler
from k8spilot.common.pilot_api import LINK
from k8spilot.model.payload_state import PayloadState
from k8spilot.model.pool_state import PoolState
from tests.engine.observed import changed, events, get, is_open, metrics, observed, told
from tests.engine.rings import Simulated, eventually, simulated
from tests.simulator.programs import Programs


@pytest.fixture(autouse=True)
def always_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics are made for every request."""
    monkeypatch.setattr("k8spilot.telemetry.service._SAME_SECONDS", 0.0)


async def test_what_happens_is_counted_once(programs: Programs) -> None:
    async with observed(programs) as (engine, address):
        before = await metrics(address)
        assert (await engine.shell(engine.image("busybox"), "exit 3")).code == 3
        job = await engine.begin_shell(engine.image("busybox"), "echo ready; exec sleep 60")
        await job.until_output(b"ready")
        await job.kill("KILL")
        await job.result()
        await engine.remove(job.name)
        name = "HTCJob7_0_slot1_PID1"
        body = {"Image": "registry.test:5000/none:latest", "Cmd": ["true"]}
        assert (await engine.ask("POST", "/containers/create", body, {"name": name})).status == 500
        assert await changed(address, before) == {
            'k8spilot_binds_total{result="bound"}': 2,
            'k8spilot_binds_total{result="refused"}': 1,
            'k8spilot_payload_exits_total{reason="exited"}': 1,
            'k8spilot_payload_exits_total{reason="signalled"}': 1,
            'k8spilot_holds_total{class="image_refused"}': 1,
        }
        now = await metrics(address)
        assert now["k8spilot_bind_duration_seconds_count"] == 2
        assert now['k8spilot_api_requests_total{code="200",verb="patch"}'] >= 2
        assert now['k8spilot_api_requests_total{code="200",verb="list"}'] == 1


async def test_a_job_that_is_lost_is_counted_and_told(programs: Programs) -> None:
    async with observed(programs) as (engine, address):
        before = await metrics(address)
        job = await engine.begin_shell(
            engine.image("busybox"), "echo ready; exec sleep 60", name="HTCJob12_3_slot1_PID77"
        )
        await job.until_output(b"ready")
        assert (await metrics(address))['k8spilot_job_start_timestamp_seconds{container="payload"}'] > 1e9
        assert engine.cluster.kubelet.container is not None
        engine.cluster.kubelet.container.kill_first()
        await job.result()
        assert (await changed(address, before))['k8spilot_payload_exits_total{reason="lost"}'] == 1
        event = await told(engine, "JobLost")
        assert event["type"] == "Warning"
        assert event["message"].startswith("Job 12.3 was lost: ")
        assert 'k8spilot_job_start_timestamp_seconds{container="payload"}' not in await metrics(address)


async def test_states_are_one_and_the_others_zero(programs: Programs) -> None:
    async with observed(programs) as (engine, address):
        job = await engine.begin_shell(engine.image("busybox"), "echo ready; exec sleep 60")
        await job.until_output(b"ready")
        found = {name: value for name, value in (await metrics(address)).items() if name.startswith("k8spilot_state")}
        assert len(found) == len(PayloadState)
        assert {name for name, value in found.items() if value} == {
            'k8spilot_state{container="payload",state="running"}'
        }


async def test_an_engine_that_serves_is_healthy_and_ready(programs: Programs) -> None:
    async with observed(programs) as (_, address):
        assert await get(f"{address}/healthz") == (200, "ok\n")
        assert await get(f"{address}/readyz") == (200, "ok\n")
        assert (await get(f"{address}/k8spilot/status"))[0] == 404
        async with aiohttp.ClientSession() as session, session.post(f"{address}/metrics", data=b"x") as answer:
            assert answer.status == 405


async def test_an_api_server_that_is_away_makes_no_pilot_unhealthy(programs: Programs) -> None:
    async with observed(programs) as (engine, address), engine.cluster.server.away():

        async def is_missed() -> bool:
            return not (await metrics(address))["k8spilot_api_reachable"]

        await eventually(is_missed)
        assert await get(f"{address}/healthz") == (200, "ok\n")
        assert (await get(f"{address}/readyz"))[0] == 200  # payload-init is connected
        assert engine.cluster.kubelet.container is not None
        engine.cluster.kubelet.stand_still()  # or the next container may come before anybody has looked
        engine.cluster.kubelet.container.kill_first()

        async def is_unready() -> bool:
            code, text = await get(f"{address}/readyz")
            return code == 503 and "no image can be bound" in text

        await eventually(is_unready)
        assert await get(f"{address}/healthz") == (200, "ok\n")


async def test_an_outage_of_the_api_server_is_told_when_it_is_over(programs: Programs) -> None:
    async with observed(programs) as (engine, _):
        engine.cluster.pilot.pod.connectivity.returned(29.0)
        engine.cluster.pilot.pod.connectivity.returned(301.0)
        assert "301 s" in (await told(engine, "ApiUnreachable"))["message"]
        assert len(events(engine)) == 1


@pytest.mark.slow
async def test_an_outage_is_measured_from_its_begin_to_its_end(simulator: Simulated) -> None:
    seconds: list[float] = []
    simulator.cluster.pilot.pod.connectivity.returned = seconds.append
    async with simulator.cluster.server.away():
        await asyncio.sleep(1.0)

    async def is_over() -> bool:
        return bool(seconds)

    await eventually(is_over)
    assert 0.8 < seconds[0] < 20
    assert simulator.cluster.pilot.pod.connectivity.since is None


async def test_requests_that_are_none_leave_nothing_in_the_log(
    programs: Programs, caplog: pytest.LogCaptureFixture
) -> None:
    """Every client that reaches the pod, the job too, could fill the log with them."""
    async with observed(programs) as (_, address):
        port = int(address.rpartition(":")[2])
        for words in (
            b"GET / HTTP/1.1\r\nX: " + b"x" * 9000 + b"\r\n\r\n",
            b"\0\xff\r\n\r\n",
            b"GET / HTTP/9\r\nA\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(words)
            await reader.read()
            writer.close()
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING] == []


async def test_a_port_that_somebody_else_has_does_not_stop_a_pilot(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("k8spilot.telemetry.exporter._RETRY_SECONDS", 0.1)
    with socket.socket() as thief:
        thief.bind(("0.0.0.0", 0))  # noqa: S104
        thief.listen()
        port = int(thief.getsockname()[1])
        async with simulated(programs, metrics_port=port) as engine:
            assert (await engine.shell(engine.image("busybox"), "exit 4")).code == 4
            assert str(port) in (await told(engine, "MetricsPortTaken"))["message"]
            thief.close()
            await eventually(lambda: is_open(port))
            assert len([one for one in engine.cluster.server.told.values() if "port" in one["message"]]) == 1


async def test_nobody_gets_more_than_a_few_connections(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("k8spilot.telemetry.exporter._CONNECTION_SECONDS", 1.0)
    async with observed(programs) as (_, address):
        port = int(address.rpartition(":")[2])
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        assert (await get(f"{address}/healthz"))[0] == 200  # in the place of the one that has waited for longest
        assert await gone(held[0][0])
        for reader, writer in held:  # they have asked for nothing
            assert await gone(reader)
            writer.close()
        assert (await get(f"{address}/healthz"))[0] == 200


async def test_an_open_connection_to_the_metrics_does_not_delay_the_end_of_an_engine(programs: Programs) -> None:
    async with observed(programs) as (engine, address):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
        assert (await get(f"{address}/healthz"))[0] == 200  # by now the engine has accepted the other one
        async with asyncio.timeout(10):  # the limit of a silent connection is 15 s
            await engine.cluster.stop_pilot()
        assert await gone(reader)
        writer.close()
        await engine.cluster.start_pilot()


async def test_what_is_no_request_for_metrics_is_refused_in_one_sentence(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LimitedRequestHandler, "HEAD_SECONDS", 0.3)
    async with observed(programs) as (_, address):
        port = int(address.rpartition(":")[2])
        for request, code in (
            (b"GET /metrics HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 20_000 + b"\r\n\r\n", b"400"),
            (b"GET /metrics HTTP/1.1\r\n" + b"X: a\r\n" * 1000 + b"\r\n", b"400"),
            (b"\x16\x03\x01" + bytes(100), b"400"),
            (b"GET /metrics HTTP/1.1\r\nHost: a\r\nX", b"408"),
            (b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n", b"405"),
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            assert (await reader.readline()).split()[1] == code, request[:60]
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        assert (await get(f"{address}/metrics"))[0] == 200


async def gone(reader: asyncio.StreamReader) -> bool:
    """Whether the other end hangs up without a word."""
    try:
        async with asyncio.timeout(5):
            return await reader.read() == b""
    except ConnectionError:
        return True


async def test_the_status_says_which_variables_have_no_effect(
    simulator: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CVMFSEXEC_REPOS", "x")
    found = await asyncio.to_thread(status.query, str(simulator.path))
    (words,) = [
        words for words in found["ignored_settings"] if words.startswith("CVMFSEXEC_REPOS, a variable of OSPool")
    ]
    assert f"ignored   {words}" in status.text(found)
    assert found["fit"] is True


async def test_the_status_says_what_runs_and_what_went_wrong(simulator: Simulated) -> None:
    path = str(simulator.path)
    found = await asyncio.to_thread(status.query, path)
    assert (found["fit"], found["slots"][0]["state"], found["last_fault"]) == (True, "idle", None)
    body = {"Image": "registry.test:5000/none:latest", "Cmd": ["true"]}
    await simulator.ask("POST", "/containers/create", body, {"name": "HTCJob11_0_slot1_PID1"})
    job = await simulator.begin_shell(
        simulator.image("busybox"), "echo ready; exec sleep 60", name="HTCJob12_3_slot1_PID77"
    )
    await job.until_output(b"ready")
    found = await asyncio.to_thread(status.query, path)
    (slot,) = found["slots"]
    assert (slot["state"], slot["job"], slot["image"]) == ("running", "12.3", simulator.image("busybox"))
    assert slot["attempt"] in simulator.cluster.kubelet.starts[-1]
    assert (found["last_fault"]["what"], found["last_fault"]["job"]) == ("ImageRefused", "11.0")
    text = status.text(found)
    assert re.search(r"job +12\.3, runs for \d+ s", text)
    assert "ImageRefused" in text


async def test_every_line_about_a_job_names_it(simulator: Simulated, caplog: pytest.LogCaptureFixture) -> None:
    lines: list[dict[str, str]] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(json.loads(logs.JsonFormatter().format(record)))

    handler = Handler()
    logging.getLogger("k8spilot").addHandler(handler)
    try:
        name = "HTCJob12_3_slot1_PID77"
        job = await simulator.begin_shell(simulator.image("busybox"), "exit 3", name=name)
        await job.result()
        await simulator.remove(name)
    finally:
        logging.getLogger("k8spilot").removeHandler(handler)
    about = {line["message"].split()[0]: line for line in lines}
    attempt = about["Bound"]["attempt"]
    assert attempt in simulator.cluster.kubelet.starts[-1]
    for first in ("HTCJob12_3_slot1_PID77", "The"):  # runs; the job ended
        assert about[first].items() >= {"job": "12.3", "slot": "slot1", "attempt": attempt}.items()


@pytest.mark.slow
async def test_a_pilot_is_ready_and_fit_only_while_the_pool_has_its_slot(programs: Programs) -> None:
    """HTCondor's side is a connection as the agent makes it: the state comes with HTCondor's log lines."""
    out = PoolState(False, "slot1@x", "cm", time.time(), problem="cm does not authenticate this pilot")
    inside = PoolState(True, "slot1@x", "cm", time.time(), updated=1_800_000_000.0)
    joining = "HTCondor has not joined the pool yet"

    async with observed(programs) as (engine, address):

        async def is_unready(words: str) -> None:
            async def is_so() -> bool:
                code, text = await get(f"{address}/readyz")
                return code == 503 and words in text

            await eventually(is_so)

        assert (await get(f"{address}/readyz"))[0] == 200, "no HTCondor belongs to this engine"
        connector = aiohttp.UnixConnector(str(engine.path))
        async with aiohttp.ClientSession(connector=connector) as session:
            async with session.ws_connect(f"http://engine{LINK}") as agent:
                await is_unready(joining)
                await agent.send_json({"log": "Pool", "line": out.text()})
                await is_unready(out.sentence)
                assert (await told(engine, "NotInPool"))["message"] == f"Not in the pool: {out.problem}."
                found = await asyncio.to_thread(status.query, str(engine.path))
                assert (found["fit"], found["pool"]["in_pool"]) == (False, False)
                assert out.sentence in found["problems"]
                assert "NOT in the pool" in status.text(found)
                assert "Fit" not in events(engine)
                await agent.send_json({"log": "Pool", "line": inside.text()})
                assert (await told(engine, "InPool"))["message"] == "In the pool as slot1@x of cm."
                await told(engine, "Fit")
                assert (await get(f"{address}/readyz"))[0] == 200
                assert (await metrics(address))["k8spilot_pool_last_update_timestamp_seconds"] == 1_800_000_000.0
            await is_unready(joining)
