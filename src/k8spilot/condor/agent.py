"""The HTCondor agent, where the engine has a container, and a user, of its own.

It does beside HTCondor what the engine does in a pod where both share a container: it changes the slot's ad, follows
the daemons' logs, and sees the startd's end. The engine asks it, over a connection that it makes to the Docker socket
(condor/agent_link.py). The supervisor starts it again when it dies, and ends it after HTCondor. While the engine is
away, no job is taken.
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

from k8spilot.common import engine_api, logs
from k8spilot.common.errors import PilotError, PreflightError
from k8spilot.common.untrusted_json import read_json
from k8spilot.condor.agent_link import HEARTBEAT_SECONDS
from k8spilot.condor.daemon_logs import follow, startd_has_ended
from k8spilot.condor.folders import Folders
from k8spilot.condor.liveness import end_hanging_daemons
from k8spilot.condor.startd_ad import LocalStartdAd
from k8spilot.settings import Settings
from k8spilot.supervisor.supervisor import DEATHS, DONE

logger = logging.getLogger("k8spilot.condor.agent")  # it is run as __main__

_AGAIN_SECONDS: Final = 0.5
_AWAY_SECONDS: Final = 3.0
_CONNECT_SECONDS: Final = 10.0
_TOLD_SECONDS: Final = 60.0
_FACTS_SECONDS: Final = 60.0
_LINES: Final = 1000
"""What daemons log while there is no engine; older lines are dropped."""


class HTCondorAgent:
    """Answers the engine, and tells it what HTCondor's daemons log."""

    def __init__(self, settings: Settings, slot: LocalStartdAd, tell_supervisor: Callable[[int], None]) -> None:
        self._settings = settings
        self._slot = slot
        self._tell_supervisor = tell_supervisor
        """Sends it a signal."""
        self._lines: asyncio.Queue[tuple[str, str]] = asyncio.Queue(_LINES)
        self._unsaid: tuple[str, str] | None = None
        """A line whose sending failed."""
        self._away: float | None = time.monotonic()
        """Since when there is no engine."""
        self._back = asyncio.Event()

    async def run(self) -> None:
        """Do so until cancelled."""
        before = os.environ.get(DEATHS, "0") != "0"
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(follow(self._slot.folders, self._heed, before=before), name="HTCondor's logs")
            tasks.create_task(self._link(), name="link")
            tasks.create_task(
                end_hanging_daemons(self._slot.folders, os.getppid(), self._pass_on), name="HTCondor answers"
            )
            tasks.create_task(self._close_slot(), name="absence of the engine")

    async def _heed(self, log: str, line: str) -> None:
        await self._slot.heed(log, line)
        await self._pass_on(log, line)
        if await startd_has_ended(log, line, os.getppid()):
            logger.info("HTCondor's startd has ended for good, and the pilot ends with it.")
            self._tell_supervisor(DONE)

    async def _pass_on(self, log: str, line: str) -> None:
        """Have the engine told of a line; the oldest gives way."""
        if self._lines.full():
            self._lines.get_nowait()
        self._lines.put_nowait((log, line))

    async def _link(self) -> None:
        while True:
            with suppress(aiohttp.ClientError, OSError, ValueError):
                async with _session(self._settings.socket) as session:
                    async with asyncio.timeout(_CONNECT_SECONDS):
                        engine = await session.ws_connect(
                            f"http://engine{engine_api.LINK}", heartbeat=HEARTBEAT_SECONDS
                        )
                    async with engine:
                        await self._talk(engine)
            if self._away is None:
                self._away = time.monotonic()
                self._back.clear()
                logger.warning("The engine is away.")
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _talk(self, engine: aiohttp.ClientWebSocketResponse) -> None:
        away, self._away = self._away, None
        self._back.set()
        if away is not None and time.monotonic() - away > _AWAY_SECONDS:
            await self._slot.set({"K8SApiAwayUntil": None})
        logger.info("The engine is there.")
        async with asyncio.TaskGroup() as tasks:
            under_way = {tasks.create_task(self._tell(engine), name="telling the engine")}
            async for message in engine:
                if message.type is aiohttp.WSMsgType.TEXT:  # one that takes its time keeps no other waiting
                    obeying = tasks.create_task(self._obey(engine, read_json(message.data)), name="request")
                    under_way.add(obeying)
                    obeying.add_done_callback(under_way.discard)
            for task in under_way:
                task.cancel()

    async def _tell(self, engine: aiohttp.ClientWebSocketResponse) -> None:
        with suppress(ConnectionError):
            while True:
                log, line = self._unsaid or await self._lines.get()
                self._unsaid = log, line
                await engine.send_json({"log": log, "line": line})
                self._unsaid = None

    async def _obey(self, engine: aiohttp.ClientWebSocketResponse, request: dict[str, Any]) -> None:
        answer: Any = None
        if "set" in request:
            answer = await self._slot.set(request["set"])
        elif "look" in request:
            answer = await self._slot.look(request["look"])
        elif "end" in request:
            self._tell_supervisor(signal.SIGTERM)
        with suppress(ConnectionError):
            await engine.send_json({"id": request["id"], "answer": answer})

    async def _close_slot(self) -> None:
        """Take no job while nobody answers docker's clients: HTCondor would hold it after a while."""
        while True:
            await asyncio.sleep(_AWAY_SECONDS)
            if self._away is not None and time.monotonic() - self._away > _AWAY_SECONDS:
                await self._slot.set({"K8SApiAwayUntil": int(time.time() + 3 * _TOLD_SECONDS)})
                with suppress(TimeoutError):
                    async with asyncio.timeout(_TOLD_SECONDS):
                        await self._back.wait()


async def facts(socket: Path) -> dict[str, Any]:
    """What the engine tells of the pod: `started` and `attributes`.

    Raises:
        SurroundingsError: it does not answer.
    """
    words = "no answer"
    deadline = time.monotonic() + _FACTS_SECONDS
    while time.monotonic() < deadline:
        try:
            async with (
                asyncio.timeout(_CONNECT_SECONDS),
                _session(socket) as session,
                session.get(f"http://engine{engine_api.FACTS}") as answer,
            ):
                answer.raise_for_status()
                return dict(await answer.json())
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            words = str(error) or f"nothing within {_CONNECT_SECONDS:.0f} s"
        await asyncio.sleep(_AGAIN_SECONDS)
    raise PreflightError(
        f"the engine does not answer on {socket} ({words}); look at the log of its container, and at the volume that "
        "both containers have at that folder"
    )


def _session(socket: Path) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.UnixConnector(str(socket)), timeout=aiohttp.ClientTimeout(total=None, sock_connect=10)
    )


def main() -> int:
    """Be the HTCondor agent that the supervisor starts."""
    try:
        settings = Settings.from_environment()
        logs.set_up(settings.log_level, settings.log_format)
        tell_supervisor = partial(os.kill, os.getppid())
        asyncio.run(HTCondorAgent(settings, LocalStartdAd(Folders.of(settings), settings), tell_supervisor).run())
    except PilotError as error:
        logs.last_word(str(error))
    return 1


if __name__ == "__main__":
    sys.exit(main())
