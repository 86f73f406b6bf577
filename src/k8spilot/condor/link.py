"""The engine's end of its link to HTCondor, where that has a container, and a user, of its own.

HTCondor's companion (companion.py) connects to the Docker socket, which nobody else reaches, and holds one connection
for as long as it lives. Over it go, as JSON: to the companion, attributes for the slot's ad and questions about it, and
that HTCondor is to end; from it, what HTCondor's daemons log.
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

from k8spilot.condor.slot import Slot, Value
from k8spilot.foreign import read_json

logger = logging.getLogger(__name__)

PATH: Final = "/k8spilot/link"
FACTS_PATH: Final = "/k8spilot/facts"
FACTS: Final = "K8SPILOT_FACTS"
"""Variable by which the engine learns what was seen of the cluster at its start, as JSON."""
HEARTBEAT_SECONDS: Final = 20.0

_SECONDS: Final = 15.0
"""For an answer; longer than HTCondor's tools are given."""
_MESSAGE_BYTES: Final = 1024 * 1024


class LinkedSlot(Slot):
    """The slot's ad, by way of the companion. What is told while there is none, it gets when it comes."""

    def __init__(self) -> None:
        self.heed: Callable[[str, str], Awaitable[None]] | None = None
        """Is shown what HTCondor's daemons log: name of the file, line."""
        self._companion: web.WebSocketResponse | None = None
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._told: dict[str, Value] = {}
        self._ends = False
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def there(self) -> bool:
        """Whether the companion is connected."""
        return self._companion is not None

    @property
    def routes(self) -> list[web.RouteDef]:
        """For the Docker socket."""
        return [web.get(PATH, self._talk)]

    async def set(self, attributes: Mapping[str, Value]) -> bool:
        """Have the companion tell the startd."""
        self._told.update(attributes)
        return bool(await self._ask({"set": dict(attributes)}))

    async def look(self, attributes: Sequence[str]) -> dict[str, Any] | None:
        """Have the companion ask the startd."""
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
        companion = self._companion
        if companion is None:
            return None
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(_SECONDS):
                await companion.send_json({"id": number, **request})
                return await answer
        except (OSError, TimeoutError):
            logger.warning("HTCondor's companion does not answer.")
            return None
        finally:
            del self._answers[number]

    async def _talk(self, request: web.Request) -> web.WebSocketResponse:
        companion = web.WebSocketResponse(heartbeat=HEARTBEAT_SECONDS, max_msg_size=_MESSAGE_BYTES)
        await companion.prepare(request)
        if self._companion is not None:  # its container was started again, and the old connection is not closed yet
            await self._companion.close()
        self._companion = companion
        logger.info("HTCondor's companion is there.")
        again = asyncio.ensure_future(self._tell_again())
        try:
            async for message in companion:
                if message.type is WSMsgType.TEXT:
                    await self._hear(message.data)
        finally:
            again.cancel()
            if self._companion is companion:
                self._companion = None
                logger.info("HTCondor's companion has gone.")
                for answer in self._answers.values():
                    if not answer.done():
                        answer.set_result(None)
        return companion

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

    return web.get(FACTS_PATH, tell)
