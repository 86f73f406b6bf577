"""The HTTP server of the engine's sockets."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from k8spilot.common import pilot_api
from k8spilot.common.aio import close_server
from k8spilot.common.errors import PilotError, Refused
from k8spilot.common.http_limits import ConnectionLimiter, LimitedRequestHandler, MemoryBudget
from k8spilot.docker import attach, containers, executions, images, stats, system
from k8spilot.docker.command_lines import handler as lines
from k8spilot.docker.hijack import Connection
from k8spilot.docker.htcondor_socket import COMMAND, SERVED
from k8spilot.docker.json_http import MEMORY, BadRequest, json_answer, release
from k8spilot.docker.store import ENDPOINT, Endpoint, NotFound, is_htcondors

logger = logging.getLogger(__name__)

_VERSION: Final = r"/{version:v\d+\.\d+}"
_BODY_LIMIT: Final = 16 * 1024 * 1024
"""Limit of a body: Linux accepts at most 6 MiB of arguments and environment (execve(2)), and JSON's escapes need
more."""
_CLOSE_SECONDS: Final = 2.0
_CONNECTIONS: Final = 128
_OF_ONE_USER: Final = 96
"""Connections of one user to one socket. A job of HTCondor has a handful. At the limit, idle connections are closed
first."""

_INTERNAL_ERROR: Final = HTTPStatus.INTERNAL_SERVER_ERROR
_STATUS: Final = {
    NotFound: HTTPStatus.NOT_FOUND,
    BadRequest: HTTPStatus.BAD_REQUEST,
    Refused: HTTPStatus.CONFLICT,
}
"""Statuses of the Engine API. BindError is not among them and gets 500: after a 404 the CLI would pull and retry."""

_QUIET: Final = logging.getLogger("k8spilot.docker.access")
"""aiohttp's line for every request. This module logs errors, and payload/ logs their meaning for a job."""
_QUIET.disabled = True

_SHARED_BYTES: Final = 1024 * 1024
"""Memory for requests that are about no slot."""


@web.middleware
async def _log_requests(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Log each request at its end, for people who look for a fault. A body can have secrets and is not logged."""
    began = asyncio.get_running_loop().time()
    response = await handler(request)
    seconds = asyncio.get_running_loop().time() - began
    logger.debug("%s %s: %d in %.3f s.", request.method, request.path, response.status, seconds)
    return response


@web.middleware
async def _answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every error as Docker does: {"message": sentence}."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
            return _answer(HTTPStatus.NOT_IMPLEMENTED, f"k8spilot does not serve {request.method} {request.path}")
        answer = _answer(HTTPStatus(error.status), error.text or error.reason)
        answer.force_close()  # the rest of the request is not read
        return answer
    except PilotError as error:
        status = next((status for kind, status in _STATUS.items() if isinstance(error, kind)), _INTERNAL_ERROR)
        logger.log(
            logging.WARNING if status is _INTERNAL_ERROR else logging.DEBUG,
            "%s %s: %s",
            request.method,
            request.path,
            error,
        )
        return _answer(status, str(error))
    except Exception as error:
        if isinstance(error, ConnectionError) and (request.transport is None or request.transport.is_closing()):
            return _answer(_INTERNAL_ERROR, "the client has disconnected")  # not sent
        logger.exception("%s %s failed; this is a defect of k8spilot.", request.method, request.path)
        return _answer(
            HTTPStatus.INTERNAL_SERVER_ERROR, "the pilot failed with an internal error; its log has the details"
        )
    finally:
        release(request)


def _choose_slot(endpoints: Mapping[str, Endpoint], more: Collection[str]) -> Middleware:
    """Return the middleware that gives a request the slot of its socket.

    Args:
        endpoints: path of a socket -> its slot. A socket without a slot serves only /_ping and the paths of `more`.
        more: paths that do not belong to the Engine API.
    """
    shared, shared_paths = MemoryBudget(_SHARED_BYTES), {"/_ping", *more} - {pilot_api.NEXT_JOB}

    @web.middleware
    async def choose_slot(request: web.Request, handler: Handler) -> web.StreamResponse:
        assert request.transport is not None
        endpoint = endpoints.get(str(request.transport.get_extra_info("sockname")))
        if endpoint is not None:
            request[ENDPOINT], request[MEMORY] = endpoint, endpoint.store.memory
            return await handler(request)
        request[MEMORY] = shared
        if (path := _path_of(request)) and path not in shared_paths:
            sockets = ", ".join(path for path, one in endpoints.items() if not one.of_htcondor)
            raise BadRequest(f"this pod has several slots, and each has a Docker socket of its own: {sockets}")
        return await handler(request)

    return choose_slot


@web.middleware
async def _restrict_htcondors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Serve on HTCondor's own socket only the requests of HTCondor, and its command lines nowhere else."""
    path = _path_of(request)
    is_refused = path not in SERVED.get(request.method, ()) if is_htcondors(request) else path == COMMAND
    if is_refused:
        raise web.HTTPNotFound
    return await handler(request)


def _path_of(request: web.Request) -> str:
    """Return the path of a request's route, without the version; empty if there is no such route."""
    resource = request.match_info.route.resource
    return "" if resource is None else resource.canonical.removeprefix("/{version}")


def _answer(status: HTTPStatus, message: str) -> web.Response:
    return json_answer({"message": message}, status=status)


def application(endpoints: Mapping[str, Endpoint], more: Sequence[web.RouteDef] = ()) -> web.Application:
    """Return the application with the paths of the Engine API, with and without a version (HTCondor uses none).

    Args:
        endpoints: path of a socket -> its slot. A socket without a slot serves only /_ping and the paths of `more`.
        more: paths that do not belong to the Engine API.
    """
    choose_slot = _choose_slot(endpoints, {route.path for route in more})
    middlewares = [_log_requests, _answer_errors, choose_slot, _restrict_htcondors]
    app = web.Application(middlewares=middlewares, client_max_size=_BODY_LIMIT)
    for route in (
        *system.ROUTES,
        *images.ROUTES,
        *attach.ROUTES,
        *executions.ROUTES,
        *stats.ROUTES,
        *containers.ROUTES,
        *lines.ROUTES,
    ):
        for prefix in ("", _VERSION):
            app.router.add_route(route.method, prefix + route.path, route.handler)
    app.add_routes(more)
    return app


@asynccontextmanager
async def serve(
    endpoints: Mapping[str, Endpoint], listening: Sequence[socket.socket], more: Sequence[web.RouteDef] = ()
) -> AsyncIterator[None]:
    """Serve on sockets for as long as the context lasts, and close them. The arguments are those of `application`."""
    # The handler is cancelled when its client disconnects. Otherwise a bind would go on for a starter that was killed,
    # and no client would remove its container.
    app = application(endpoints, more)
    runner = web.AppRunner(app, access_log=None, handle_signals=False, handler_cancellation=True)
    await runner.setup()
    assert runner.server is not None
    loop, manager = asyncio.get_running_loop(), runner.server
    servers = []
    for listener in listening:
        listener.setblocking(False)
        limiter, idle = ConnectionLimiter(_CONNECTIONS, _OF_ONE_USER), dict[LimitedRequestHandler, None]()
        connection = partial(Connection, limiter, idle, manager, loop=loop, access_log=_QUIET)
        servers.append(await loop.create_server(connection, sock=listener))
    try:
        yield
    finally:
        for server in servers:
            await close_server(server)
        await manager.shutdown(_CLOSE_SECONDS)
        await runner.cleanup()
