"""The engine's socket."""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Final

from aiohttp import web

from k8spilot.common.errors import PilotError, Refused
from k8spilot.common.http_limits import ConnectionLimiter, LimitedRequestHandler
from k8spilot.docker import attach, containers, executions, images, stats, system
from k8spilot.docker.hijack import Connection
from k8spilot.docker.htcondor_socket import SERVED
from k8spilot.docker.json_http import MEMORY, BadRequest, json_answer, release
from k8spilot.docker.store import HTCONDORS_SOCKET, STORE, ContainerStore, NotFound, is_htcondors

logger = logging.getLogger(__name__)

_VERSION: Final = r"/{version:v\d+\.\d+}"
_BODY_LIMIT: Final = 16 * 1024 * 1024
"""Linux takes at most 6 MiB of arguments and environment (execve(2)); JSON's escapes make that longer."""
_CLOSE_SECONDS: Final = 2.0
_BACKLOG: Final = 128
_CONNECTIONS: Final = 128
_OF_ONE_USER: Final = 96
"""A job of HTCondor's has a handful; a client that has all of its user's loses those that wait for a request."""

_OTHERWISE: Final = HTTPStatus.INTERNAL_SERVER_ERROR
_STATUS: Final = {
    NotFound: HTTPStatus.NOT_FOUND,
    BadRequest: HTTPStatus.BAD_REQUEST,
    Refused: HTTPStatus.CONFLICT,
}
"""Statuses of the Engine API. A failed bind is none of these: on 404 the CLI would pull and try again."""

_QUIET: Final = logging.getLogger("k8spilot.docker.access")
"""aiohttp's line for every request; errors are logged here, and what they mean to a job in payload/."""
_QUIET.disabled = True

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def _tell_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every error as Docker does: {"message": sentence}."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
            return _answer(HTTPStatus.NOT_IMPLEMENTED, f"k8spilot does not serve {request.method} {request.path}")
        answer = _answer(HTTPStatus(error.status), error.text or error.reason)
        answer.force_close()  # what is left of the request is not read
        return answer
    except PilotError as error:
        status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), _OTHERWISE)
        logger.log(
            logging.WARNING if status is _OTHERWISE else logging.DEBUG, "%s %s: %s", request.method, request.path, error
        )
        return _answer(status, str(error))
    except Exception as error:
        if isinstance(error, ConnectionError) and (request.transport is None or request.transport.is_closing()):
            return _answer(_OTHERWISE, "the client has gone")  # which nobody reads
        logger.exception("%s %s failed; this is a fault of k8spilot.", request.method, request.path)
        return _answer(HTTPStatus.INTERNAL_SERVER_ERROR, "the pilot itself failed; its log has the details")
    finally:
        release(request)


@web.middleware
async def _keep_to_htcondors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Serve by HTCondor's own socket what HTCondor asks for, and nothing else."""
    if is_htcondors(request):
        resource = request.match_info.route.resource
        path = resource.canonical.removeprefix("/{version}") if resource is not None else ""
        if path not in SERVED.get(request.method, ()):
            raise web.HTTPNotFound
    return await handler(request)


def _answer(status: HTTPStatus, message: str) -> web.Response:
    return json_answer({"message": message}, status=status)


def application(engine: ContainerStore, more: Sequence[web.RouteDef] = (), htcondors: str = "") -> web.Application:
    """The paths of the Engine API, with and without a version before them (HTCondor itself asks without); and more.

    Args:
        engine: the state that they serve.
        more: paths beside the Engine API.
        htcondors: path of the socket that is HTCondor's alone.
    """
    app = web.Application(middlewares=[_tell_errors, _keep_to_htcondors], client_max_size=_BODY_LIMIT)
    app[STORE] = engine
    app[HTCONDORS_SOCKET] = htcondors
    app[MEMORY] = engine.memory
    for route in (
        *system.ROUTES,
        *images.ROUTES,
        *attach.ROUTES,
        *executions.ROUTES,
        *stats.ROUTES,
        *containers.ROUTES,
    ):
        for prefix in ("", _VERSION):
            app.router.add_route(route.method, prefix + route.path, route.handler)
    app.add_routes(more)
    return app


def listen(path: Path, group: int | None = None) -> socket.socket:
    """Listen on a unix socket that only root and `group` can reach.

    Whoever holds it decides how long clients wait for an engine: they are taken by the kernel, and served by `serve`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    before = os.umask(0o177)
    try:
        listening.bind(str(path))
    finally:
        os.umask(before)
    if group is not None:
        os.chown(path, -1, group)
        path.chmod(0o660)
    listening.listen(_BACKLOG)
    return listening


@asynccontextmanager
async def serve(
    engine: ContainerStore, listening: Sequence[socket.socket], more: Sequence[web.RouteDef] = (), htcondors: str = ""
) -> AsyncIterator[None]:
    """Serve on sockets for as long as the context lasts, and close them. For the arguments see `application`."""
    # Who hangs up gives up: a docker CLI that was killed with its starter leaves nobody who would remove a container.
    app = application(engine, more, htcondors)
    runner = web.AppRunner(app, access_log=None, handle_signals=False, handler_cancellation=True)
    await runner.setup()
    assert runner.server is not None
    loop, manager = asyncio.get_running_loop(), runner.server
    door, idle = ConnectionLimiter(_CONNECTIONS, _OF_ONE_USER), dict[LimitedRequestHandler, None]()
    servers = []
    for one in listening:
        one.setblocking(False)
        servers.append(
            await loop.create_server(lambda: Connection(door, idle, manager, loop=loop, access_log=_QUIET), sock=one)
        )
    try:
        yield
    finally:
        for server in servers:
            server.close()
        await manager.shutdown(_CLOSE_SECONDS)
        await runner.cleanup()
