"""The engine's end of its link to the HTCondor agent, where HTCondor has its own container and user.

The HTCondor agent (condor/agent.py) connects to the Docker socket, which no process of a job can reach, and holds one
connection for as long as it lives. Messages are JSON. The engine sends attributes for the slot's ad, queries of the ad,
and the requests to vacate the job and to end HTCondor. The agent sends the log lines of HTCondor's daemons.
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

from k8spilot.common import pilot_api
from k8spilot.common.aio import named, side_by_side
from k8spilot.common.untrusted_json import read_json
from k8spilot.condor.ads.startd_ad import StartdAd, Value
from k8spilot.model.pool_state import LOG as POOL_LOG
from k8spilot.supervisor.plan import FACTS

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS: Final = 20.0

_ANSWER_SECONDS: Final = 15.0
"""Limit of an answer. It is longer than the limit of HTCondor's tools."""
_MESSAGE_BYTES: Final = 1024 * 1024


class RemoteStartdAd(StartdAd):
    """The slot's ad, reached through the HTCondor agent.

    An agent that connects later gets the attributes that were set before.
    """

    def __init__(self) -> None:
        self.handle_line: Callable[[str, str], Awaitable[None]] | None = None
        """Handles a log line of HTCondor's daemons: name of the file, line."""
        self._agent: web.WebSocketResponse | None = None
        self._expected = False
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._attributes: dict[str, Value] = {}
        self._is_ending = False
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def is_connected(self) -> bool:
        """Whether the HTCondor agent is connected."""
        return self._agent is not None

    @property
    def expected(self) -> bool:
        """Whether a container with HTCondor has ever sent anything."""
        return self._expected

    def expect(self) -> None:
        """Note that the pod has a container with HTCondor."""
        self._expected = True

    @property
    def routes(self) -> list[web.RouteDef]:
        """Routes for the Docker socket."""
        return [web.get(pilot_api.LINK, self._serve)]

    async def set(self, attributes: Mapping[str, Value]) -> bool:
        """Make the HTCondor agent update the startd."""
        self._attributes.update(attributes)
        return bool(await self._request({"set": dict(attributes)}))

    async def query(self, attributes: Sequence[str]) -> list[dict[str, Any]] | None:
        """Make the HTCondor agent query the startd."""
        answer = await self._request({"look": list(attributes)})
        return [ad for ad in answer if isinstance(ad, dict)] if isinstance(answer, list) else None

    async def vacate(self, job: str, slot: str) -> bool:
        """Make the HTCondor agent vacate the job."""
        return bool(await self._request({"vacate": job, "slot": slot}))

    def end(self) -> None:
        """End HTCondor, as a SIGTERM to its container does. A second call acts as a second SIGTERM."""
        self._is_ending = True
        task = named(self._request({"end": True}))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _request(self, request: dict[str, Any]) -> Any:
        """Send a request and return its answer, or None without an answer."""
        agent = self._agent
        if agent is None:
            return None
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await agent.send_json({"id": number, **request})
                return await answer
        except (OSError, TimeoutError):
            logger.warning("The HTCondor agent does not answer.")
            return None
        finally:
            del self._answers[number]

    async def _serve(self, request: web.Request) -> web.WebSocketResponse:
        agent = web.WebSocketResponse(heartbeat=HEARTBEAT_SECONDS, max_msg_size=_MESSAGE_BYTES)
        await agent.prepare(request)
        if self._agent is not None:  # the agent's container restarted, and the old connection is still open
            await self._agent.close()
        self._agent = agent
        self.expect()
        logger.info("The HTCondor agent is connected.")
        try:
            async with side_by_side(self._resend()):
                async for message in agent:
                    if message.type is WSMsgType.TEXT:
                        await self._handle(message.data)
        finally:
            if self._agent is agent:
                self._agent = None
                logger.info("The HTCondor agent has disconnected.")
                for answer in self._answers.values():
                    if not answer.done():
                        answer.set_result(None)
                if self.handle_line is not None:
                    await self.handle_line(POOL_LOG, "")
        return agent

    async def _resend(self) -> None:
        if self._attributes:
            await self._request({"set": dict(self._attributes)})
        if self._is_ending:
            await self._request({"end": True})

    async def _handle(self, text: str) -> None:
        with suppress(ValueError, TypeError, LookupError, AttributeError):
            message = read_json(text)
            if "log" in message:
                if self.handle_line is not None:
                    await self.handle_line(str(message["log"]), str(message["line"]))
            elif (answer := self._answers.get(message["id"])) is not None and not answer.done():
                answer.set_result(message.get("answer"))


def facts_route(started: Callable[[], str], on_query: Callable[[], None] = lambda: None) -> web.RouteDef:
    """Return the route of facts that only the engine can query: the pod's start and the cluster's attributes.

    `on_query` is called at each query, which shows that the pod has a container with HTCondor.
    """

    async def respond(_request: web.Request) -> web.Response:
        on_query()
        return web.json_response({"started": started(), "attributes": json.loads(os.environ.get(FACTS) or "{}")})

    return web.get(pilot_api.FACTS, respond)
