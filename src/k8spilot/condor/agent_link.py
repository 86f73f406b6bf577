"""The engine's end of its link to HTCondor, where that has a container, and a user, of its own.

The HTCondor agent (condor/agent.py) connects to the Docker socket, which nobody else reaches, and holds one connection
for as long as it lives. Messages are JSON. The engine sends attributes for the slot's ad, questions about the ad, and
the order to end HTCondor; the agent sends what HTCondor's daemons log.
"""

import asyncio
import itertools
import json
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from aiohttp import WSMsgType, web

from k8spilot.common import engine_api
from k8spilot.common.untrusted_json import read_json
from k8spilot.condor.startd_ad import StartdAd, Value

logger = logging.getLogger(__name__)

FACTS: Final = "K8SPILOT_FACTS"
"""Variable by which the engine learns what was seen of the cluster at its start, as JSON."""
HEARTBEAT_SECONDS: Final = 20.0

_SECONDS: Final = 15.0
"""For an answer; longer than HTCondor's tools are given."""
_MESSAGE_BYTES: Final = 1024 * 1024


class RemoteStartdAd(StartdAd):
    """The slot's ad, by way of the HTCondor agent. What is told while there is none, it gets when it comes."""

    def __init__(self) -> None:
        self.heed: Callable[[str, str], Awaitable[None]] | None = None
        """Is shown what HTCondor's daemons log: name of the file, line."""
        self._agent: web.WebSocketResponse | None = None
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._told: dict[str, Value] = {}
        self._ends = False
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def there(self) -> bool:
        """Whether the HTCondor agent is connected."""
        return self._agent is not None

    @property
    def routes(self) -> list[web.RouteDef]:
        """For the Docker socket."""
        return [web.get(engine_api.LINK, self._talk)]

    async def set(self, attributes: Mapping[str, Value]) -> bool:
        """Have the HTCondor agent tell the startd."""
        self._told.update(attributes)
        return bool(await self._ask({"set": dict(attributes)}))

    async def look(self, attributes: Sequence[str]) -> dict[str, Any] | None:
        """Have the HTCondor agent ask the startd."""
        answer = await self._ask({"look": list(attributes)})
        return answer if isinstance(answer, dict) else None

    def end(self) -> None:
        """Have HTCondor end, as on a SIGTERM to its container; a second time, as on a second one."""
        self._ends = True
        task = asyncio.ensure_future(self._ask({"end": True}))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, request: dict[str, Any]) -> Any:
        """Send a request and wait for its answer; None if there is none."""
        agent = self._agent
        if agent is None:
            return None
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(_SECONDS):
                await agent.send_json({"id": number, **request})
                return await answer
        except (OSError, TimeoutError):
            logger.warning("The HTCondor agent does not answer.")
            return None
        finally:
            del self._answers[number]

    async def _talk(self, request: web.Request) -> web.WebSocketResponse:
        agent = web.WebSocketResponse(heartbeat=HEARTBEAT_SECONDS, max_msg_size=_MESSAGE_BYTES)
        await agent.prepare(request)
        if self._agent is not None:  # its container was started again, and the old connection is not closed yet
            await self._agent.close()
        self._agent = agent
        logger.info("The HTCondor agent is there.")
        again = asyncio.ensure_future(self._tell_again())
        try:
            async for message in agent:
                if message.type is WSMsgType.TEXT:
                    await self._hear(message.data)
        finally:
            again.cancel()
            if self._agent is agent:
                self._agent = None
                logger.info("The HTCondor agent has gone.")
                for answer in self._answers.values():
                    if not answer.done():
                        answer.set_result(None)
        return agent

    async def _tell_again(self) -> None:
        if self._told:
            await self._ask({"set": dict(self._told)})
        if self._ends:
            await self._ask({"end": True})

    async def _hear(self, text: str) -> None:
        with suppress(ValueError, TypeError, LookupError, AttributeError):
            said = read_json(text)
            if "log" in said:
                if self.heed is not None:
                    await self.heed(str(said["log"]), str(said["line"]))
            elif (answer := self._answers.get(said["id"])) is not None and not answer.done():
                answer.set_result(said.get("answer"))


def facts_route(started: Callable[[], str]) -> web.RouteDef:
    """Tells HTCondor's container what only the engine can ask: when the pod started, and what its cluster is."""

    async def tell(_request: web.Request) -> web.Response:
        return web.json_response({"started": started(), "attributes": json.loads(os.environ.get(FACTS) or "{}")})

    return web.get(engine_api.FACTS, tell)
