"""The exporter: the TCP port for metrics and probes.

Every client that reaches the pod can connect, including the job, which shares the pod's network. Therefore the port is
read-only and serves no secrets. An address may have a few connections; each serves one request and ends after some
seconds. A job can take the port before a restarted engine does: the pilot then runs without the port, and retries.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from aiohttp import web

from k8spilot.common.aio import close_server
from k8spilot.common.http_limits import ConnectionLimiter, LimitedRequestHandler

logger = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 20.0
_CONNECTION_SECONDS: Final = 15.0
_CONNECTIONS: Final = 32
_OF_ONE_ADDRESS: Final = 4
_BODY_LIMIT: Final = 1024
_OWN: Final = "the pod"


class _Connection(LimitedRequestHandler):
    """A connection with a time limit."""

    __slots__ = ("_end",)

    _end: asyncio.TimerHandle | None

    def origin(self, transport: asyncio.Transport) -> str:
        """Return the client's address."""
        return _origin(transport.get_extra_info("peername"), transport.get_extra_info("sockname"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the connection's time limit."""
        assert isinstance(transport, asyncio.Transport)
        self._end = asyncio.get_running_loop().call_later(_CONNECTION_SECONDS, transport.abort)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop the time limit."""
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)


_QUIET: Final = logging.getLogger("k8spilot.telemetry.access")
_QUIET.disabled = True


def _origin(peer: Sequence[object] | None, own: Sequence[object] | None) -> str:
    """Return the origin of a connection: its address, or one name for the pod, which has many addresses."""
    if not peer or not own:
        return _OWN
    address = str(peer[0])
    with suppress(ValueError):
        if ipaddress.ip_address(address).is_loopback or address == own[0]:
            return _OWN
    return address


async def keep_open(port: int, app: web.Application, taken: Callable[[str], None]) -> None:
    """Serve `app` on `port` until cancelled. Call `taken` once if another process has the port."""
    # Errors here come from clients, which can send anything.
    runner = web.AppRunner(app, access_log=None, handle_signals=False, logger=_QUIET)
    await runner.setup()
    manager = runner.server
    assert manager is not None
    loop, limiter = asyncio.get_running_loop(), ConnectionLimiter(_CONNECTIONS, _OF_ONE_ADDRESS)
    idle: dict[LimitedRequestHandler, None] = {}
    is_reported = False

    def make() -> _Connection:
        return _Connection(limiter, idle, manager, loop=loop, access_log=_QUIET, logger=_QUIET, keepalive_timeout=0)

    try:
        while True:
            try:
                server = await loop.create_server(make, port=port)
            except OSError as error:
                message = (
                    f"TCP port {port} cannot be used ({error.strerror}), so there are no metrics and probes are not "
                    "answered; the job may have taken it, and then its end frees it"
                )
                logger.log(logging.DEBUG if is_reported else logging.WARNING, "%s; retrying.", message)
                if not is_reported:
                    taken(message)
                is_reported = True
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                logger.info("Metrics and probes are served on port %d.", port)
                try:
                    await asyncio.Event().wait()  # until cancelled
                finally:
                    # serve_forever() would wait for clients that stay connected (CPython 3.12.1 and later).
                    await close_server(server)
    finally:
        await runner.cleanup()  # ends all connections


def application(routes: Sequence[web.RouteDef]) -> web.Application:
    """Return the application that serves `routes`."""
    app = web.Application(client_max_size=_BODY_LIMIT)
    app.add_routes(routes)
    app.on_response_prepare.append(_close)
    return app


async def _close(_request: web.Request, response: web.StreamResponse) -> None:
    response.force_close()
