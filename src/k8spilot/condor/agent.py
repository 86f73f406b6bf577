"""The HTCondor agent: a program beside HTCondor where the engine has its own container and user.

In a pod where both share a container, the engine does this work. The agent changes the slot's ad, follows the daemons'
logs, and detects the startd's end. It connects to the Docker socket, and the engine sends its requests over that
connection (condor/ads/agent_link.py). The supervisor restarts the agent when it dies, and ends it after HTCondor. While
the engine is unavailable, the slot takes no job.
"""

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp

from k8spilot.common import logs, pilot_api
from k8spilot.common.aio import is_set_within, run
from k8spilot.common.errors import PilotError, PreflightError
from k8spilot.common.untrusted_json import read_json
from k8spilot.condor.ads.agent_link import HEARTBEAT_SECONDS
from k8spilot.condor.ads.startd_ad import LocalStartdAd
from k8spilot.condor.daemons.end_reason import EndReason
from k8spilot.condor.daemons.watch import DaemonWatch
from k8spilot.condor.folders import Folders
from k8spilot.model.pool_state import LOG as POOL_LOG
from k8spilot.settings import Settings
from k8spilot.supervisor.plan import DEATHS, DONE

logger = logging.getLogger("k8spilot.condor.agent")  # this module runs as __main__

_RETRY_SECONDS: Final = 0.5
_ABSENCE_SECONDS: Final = 3.0
_CONNECT_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 1.0
"""Limit of the end of a connection. An engine that hangs must not delay the end of the pod."""
_CLOSURE_SECONDS: Final = 60.0
_FACTS_SECONDS: Final = 60.0
_MOST_LINES: Final = 1000
"""Log lines that are kept while there is no engine. The oldest lines are dropped."""


class HTCondorAgent:
    """Answers the engine's requests, and sends it the log lines of HTCondor's daemons."""

    def __init__(self, settings: Settings, startd_ad: LocalStartdAd, signal_supervisor: Callable[[int], None]) -> None:
        self._settings = settings
        self._startd_ad = startd_ad
        self._signal_supervisor = signal_supervisor
        """Sends the supervisor a signal."""
        self._lines: asyncio.Queue[tuple[str, str]] = asyncio.Queue(_MOST_LINES)
        self._unsent: tuple[str, str] | None = None
        """Line that could not be sent."""
        self._absent_since: float | None = time.monotonic()
        """Since when the engine is unavailable (monotonic seconds); None while it is connected."""
        self._connected = asyncio.Event()
        self._watch = DaemonWatch(
            startd_ad,
            settings,
            reason=EndReason(startd_ad.folders.end_reason, settings.accept_idle_minutes),
            report=self._queue,
            end=partial(signal_supervisor, DONE),
            watches_processes=len(settings.slots) == 1,
        )

    async def run(self) -> None:
        """Run until the supervisor sends SIGTERM because HTCondor has ended; then read HTCondor's last log lines.

        A failure of the link ends the agent, which the supervisor restarts at once.
        """
        has_died, ending = os.environ.get(DEATHS, "0") != "0", asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
        async with asyncio.TaskGroup() as tasks:
            link = tasks.create_task(self._link(), name="link")
            absence = tasks.create_task(self._close_slot(), name="absence of the engine")
            async with self._watch.running(tasks, include_existing=has_died, flush=self._lines.join):
                await ending.wait()
            link.cancel()
            absence.cancel()

    async def _queue(self, log: str, line: str) -> None:
        """Queue a line for the engine. A full queue drops the oldest line."""
        if self._lines.full():
            self._lines.get_nowait()
            self._lines.task_done()
        self._lines.put_nowait((log, line))

    async def _link(self) -> None:
        """Stay connected to the engine. Whatever it sends, the agent lives: HTCondor would end with it."""
        while True:
            try:
                await self._connect()
            except* (aiohttp.ClientError, OSError):
                pass
            except* (ValueError, TypeError, LookupError, AttributeError):
                logger.warning("The engine has sent an invalid request; connecting again.", exc_info=True)
            if self._absent_since is None:
                self._absent_since = time.monotonic()
                self._connected.clear()
                logger.warning("The engine is unavailable.")
            await asyncio.sleep(_RETRY_SECONDS)

    async def _connect(self) -> None:
        """Connect to the engine, and serve its requests until the connection ends."""
        async with _session(self._settings.socket) as session:
            async with asyncio.timeout(_CONNECT_SECONDS):
                engine = await session.ws_connect(
                    f"http://engine{pilot_api.LINK}",
                    heartbeat=HEARTBEAT_SECONDS,
                    timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_SECONDS),
                )
            async with engine:
                await self._serve(engine)

    async def _serve(self, engine: aiohttp.ClientWebSocketResponse) -> None:
        absent_since, self._absent_since = self._absent_since, None
        self._connected.set()
        if absent_since is not None and time.monotonic() - absent_since > _ABSENCE_SECONDS:
            await self._startd_ad.set({"K8SApiAwayUntil": None})
        logger.info("The engine is connected.")
        await self._queue(POOL_LOG, self._watch.pool.state.text())
        async with asyncio.TaskGroup() as tasks:
            running = {tasks.create_task(self._send_lines(engine), name="log lines")}
            async for message in engine:
                if message.type is aiohttp.WSMsgType.TEXT:  # each runs in its own task: a slow request delays no other
                    answering = tasks.create_task(self._answer(engine, read_json(message.data)), name="request")
                    running.add(answering)
                    answering.add_done_callback(running.discard)
            for task in running:
                task.cancel()

    async def _send_lines(self, engine: aiohttp.ClientWebSocketResponse) -> None:
        with suppress(ConnectionError):
            while True:
                log, line = self._unsent or await self._lines.get()
                self._unsent = log, line
                await engine.send_json({"log": log, "line": line})
                self._unsent = None
                self._lines.task_done()

    async def _answer(self, engine: aiohttp.ClientWebSocketResponse, request: dict[str, Any]) -> None:
        answer: Any = None
        if "set" in request:
            answer = await self._startd_ad.set(request["set"])
        elif "look" in request:
            answer = await self._startd_ad.query(request["look"])
        elif "vacate" in request:
            answer = await self._startd_ad.vacate(str(request["vacate"]), str(request["slot"]))
        elif "end" in request:
            self._signal_supervisor(signal.SIGTERM)
        with suppress(ConnectionError):
            await engine.send_json({"id": request["id"], "answer": answer})

    async def _close_slot(self) -> None:
        """Close the slot while no engine answers docker's clients: HTCondor would hold a job after a while."""
        while True:
            await asyncio.sleep(_ABSENCE_SECONDS)
            if self._absent_since is not None and time.monotonic() - self._absent_since > _ABSENCE_SECONDS:
                await self._startd_ad.set({"K8SApiAwayUntil": int(time.time() + 3 * _CLOSURE_SECONDS)})
                await is_set_within(self._connected, _CLOSURE_SECONDS)


async def facts(socket: Path) -> dict[str, Any]:
    """Return the engine's facts about the pod: `started` and `attributes`.

    Raises:
        PreflightError: the engine does not answer.
    """
    fault = "no answer"
    deadline = time.monotonic() + _FACTS_SECONDS
    while time.monotonic() < deadline:
        try:
            async with (
                asyncio.timeout(_CONNECT_SECONDS),
                _session(socket) as session,
                session.get(f"http://engine{pilot_api.FACTS}") as answer,
            ):
                answer.raise_for_status()
                return dict(await answer.json())
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            fault = str(error) or f"nothing within {_CONNECT_SECONDS:.0f} s"
        await asyncio.sleep(_RETRY_SECONDS)
    raise PreflightError(
        f"the engine does not answer on {socket} ({fault}); read the log of the engine's container, and check that "
        "both containers mount the same volume at that folder"
    )


def _session(socket: Path) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.UnixConnector(str(socket)), timeout=aiohttp.ClientTimeout(total=None, sock_connect=10)
    )


def main() -> int:
    """Run the HTCondor agent that the supervisor starts."""
    try:
        settings = Settings.from_environment()
        logs.set_up(settings.log_level, settings.log_format)
        signal_supervisor = partial(os.kill, os.getppid())
        run(HTCondorAgent(settings, LocalStartdAd(Folders.of(settings), settings), signal_supervisor).run())
    except PilotError as error:
        logs.last_word(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
