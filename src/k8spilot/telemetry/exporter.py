"""The TCP port for metrics and probes.

Whatever can reach the pod can connect to it, and so can the job, which shares its network. So it is read-only and knows
no secrets; an address may have a few connections, each is good for one request and ends after some seconds. A job can
take the port before an engine that is started again does: then the pilot goes on without, and tries again.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from aiohttp import web

from k8spilot.common.http_limits import ConnectionLimiter, LimitedRequestHandler

logger = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 20.0
_CONNECTION_SECONDS: Final = 15.0
_CONNECTIONS: Final = 32
_OF_ONE_ADDRESS: Final = 4
_BODY_LIMIT: Final = 1024
_OWN: Final = "the pod"


class _Connection(LimitedRequestHandler):
    """One connection, for a while."""

    __slots__ = ("_end",)

    _end: asyncio.TimerHandle | None

    def origin(self, transport: asyncio.Transport) -> str:
        """Its address."""
        return _who(transport.get_extra_info("peername"), transport.get_extra_info("sockname"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Whatever it does, it ends."""
        assert isinstance(transport, asyncio.Transport)
        self._end = asyncio.get_running_loop().call_later(_CONNECTION_SECONDS, transport.abort)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """It has ended."""
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)


_QUIET: Final = logging.getLogger("k8spilot.telemetry.access")
_QUIET.disabled = True


def _who(peer: Sequence[object] | None, own: Sequence[object] | None) -> str:
    """Whose connection it is: that of an address, or of something in the pod, which has many of them."""
    if not peer or not own:
        return _OWN
    address = str(peer[0])
    with suppress(ValueError):
        if ipaddress.ip_address(address).is_loopback or address == own[0]:
            return _OWN
    return address


async def keep_open(port: int, app: web.Application, taken: Callable[[str], None]) -> None:
    """Serve `app` on `port` until cancelled; `taken` is told once that somebody else has the port."""
    # Its errors are of clients, who send what they like.
    runner = web.AppRunner(app, access_log=None, handle_signals=False, logger=_QUIET)
    await runner.setup()
    manager = runner.server
    assert manager is not None
    loop, door = asyncio.get_running_loop(), ConnectionLimiter(_CONNECTIONS, _OF_ONE_ADDRESS)
    idle: dict[LimitedRequestHandler, None] = {}
    told = False

    def make() -> _Connection:
        return _Connection(door, idle, manager, loop=loop, access_log=_QUIET, logger=_QUIET, keepalive_timeout=0)

    try:
        while True:
            try:
                server = await loop.create_server(make, port=port)
            except OSError as error:
                words = (
                    f"TCP port {port} cannot be used ({error.strerror}), so there are no metrics and probes are not "
                    "answered; the job may have taken it, and then its end frees it"
                )
                logger.log(logging.DEBUG if told else logging.WARNING, "%s; trying again.", words)
                if not told:
                    taken(words)
                told = True
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                logger.info("Metrics and probes are answered on port %d.", port)
                async with server:
                    await server.serve_forever()
    finally:
        await runner.cleanup()


def application(routes: Sequence[web.RouteDef]) -> web.Application:
    """What is served there."""
    app = web.Application(client_max_size=_BODY_LIMIT)
    app.add_routes(routes)
    app.on_response_prepare.append(_close)
    return app


async def _close(_request: web.Request, response: web.StreamResponse) -> None:
    response.force_close()
