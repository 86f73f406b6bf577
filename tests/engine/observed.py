"""An engine with an open port, its metrics, and the Events of its pod."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from lab.ports import hold_port
from tests.engine.rings import Simulated, eventually, simulated
from tests.simulator.programs import Programs


@asynccontextmanager
async def observed(programs: Programs, **settings: Any) -> AsyncIterator[tuple[Simulated, str]]:
    """An engine whose port is open, and its address."""
    with hold_port() as held:
        port = held.getsockname()[1]
        async with simulated(programs, metrics_port=port, **settings) as engine:
            await eventually(lambda: is_open(port))
            yield engine, f"http://127.0.0.1:{port}"


async def is_open(port: int) -> bool:
    try:
        return (await get(f"http://127.0.0.1:{port}/healthz"))[0] == 200
    except aiohttp.ClientError:
        return False


async def get(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text()


async def metrics(address: str) -> dict[str, float]:
    """The series, by name and labels."""
    code, text = await get(f"{address}/metrics")
    assert code == 200
    rows = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {series: float(value) for series, _, value in rows}


async def changed(address: str, before: dict[str, float]) -> dict[str, float]:
    """The counters that are not as before."""
    now = await metrics(address)
    return {
        name: value - before.get(name, 0)
        for name, value in now.items()
        if name.startswith(("k8spilot_binds", "k8spilot_payload", "k8spilot_holds")) and value != before.get(name)
    }


def events(engine: Simulated) -> dict[str, dict[str, Any]]:
    """The Events, by reason."""
    return {one["reason"]: one for one in engine.cluster.server.told.values()}


async def told(engine: Simulated, reason: str) -> dict[str, Any]:
    async def is_there() -> bool:
        return reason in events(engine)

    await eventually(is_there)
    return events(engine)[reason]
