"""JSON bodies of requests and responses."""

import asyncio
import json
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage

from k8spilot.common.errors import PilotError
from k8spilot.common.http_limits import MemoryBudget
from k8spilot.common.untrusted_json import VALUES_BYTES, read_json

MEMORY: Final = web.RequestKey("memory", MemoryBudget)
"""Key of the memory budget of a request's data."""

CHARGE: Final = web.RequestKey("charge", int)
"""Key of the bytes that a request has reserved of the budget."""

_NO_ROOM: Final = "there is no room for the %s now; try again later"
_BODY_SECONDS: Final = 20.0
_OBJECTS: Final = 24
"""Factor of the memory of an object of two characters to its size."""


class BadRequest(PilotError):
    """Raised when a request is invalid."""


def json_answer(value: Any, status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    """Return a response with `value` as compact JSON.

    HTCondor parses some answers with sscanf and expects no space after a colon. The content type has no charset: the
    docker CLI compares it as a whole, and otherwise shows errors as raw JSON (client/request.go in docker/cli's
    vendor/github.com/docker/docker).
    """
    body = json.dumps(value, separators=(",", ":")).encode()
    return web.Response(body=body, status=status, headers={"Content-Type": "application/json"})


def no_room(kind: str) -> web.Response:
    """Return the answer that replaces one without room in memory."""
    return json_answer({"message": _NO_ROOM % kind}, status=HTTPStatus.SERVICE_UNAVAILABLE)


async def body_of(request: web.Request) -> bytes:
    """Return a request's body.

    Raises:
        BadRequest: the body is invalid.
        web.HTTPException: the body is too large, takes too long, or has no room in memory.
    """
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            return await _read(request) if request.can_read_body else b""
    except TimeoutError:
        raise web.HTTPRequestTimeout(text=f"the request's body did not arrive within {_BODY_SECONDS:.0f} s") from None
    except (web.RequestPayloadError, BadHttpMessage) as error:
        raise BadRequest("the request's body is invalid") from error


async def json_body(request: web.Request) -> dict[str, Any]:
    """Return the object in a request's body; an empty one without a body.

    Raises:
        BadRequest: the body is not an object.
        web.HTTPException: as for `body_of`.
    """
    document = await body_of(request)
    try:
        body = read_json(document) if document else {}
    except ValueError as error:
        raise BadRequest(f"the request is not JSON ({error})") from error
    if not isinstance(body, dict):
        raise BadRequest("the request is not a JSON object")
    return body


async def _read(request: web.Request) -> bytes:
    """Return the body, if there is room in memory. The request keeps its memory until `release`, or passes it on."""
    body, memory = bytearray(), request[MEMORY]
    limit: int = request.client_max_size
    while data := await request.content.readany():
        if len(body) + len(data) > limit:
            raise web.HTTPRequestEntityTooLarge(limit, len(body) + len(data), text=f"a body has at most {limit} bytes")
        more = cost(len(body) + len(data)) - cost(len(body))
        if not memory.take(more):
            raise web.HTTPServiceUnavailable(text=_NO_ROOM % "request")
        request[CHARGE] = request.get(CHARGE, 0) + more
        body += data
    return bytes(body)


def cost(size: int) -> int:
    """Return the most memory that a body of `size` bytes can need: read_json limits the number of small objects."""
    return size + _OBJECTS * min(size, VALUES_BYTES)


def keep(request: web.Request) -> int:
    """Return how many bytes of MEMORY the request's data has reserved. From now on the caller has to release them."""
    return _charge(request)


def _charge(request: web.Request) -> int:
    charge: int = request.get(CHARGE, 0)
    request[CHARGE] = 0
    return charge


def release(request: web.Request) -> None:
    """Return the memory of the request's data to the budget."""
    if MEMORY in request:
        request[MEMORY].give(_charge(request))


def flag(request: web.Request, name: str, *, unset: bool = False) -> bool:
    """Return a boolean of the query, as dockerd parses it (api/server/httputils/form.go in moby, BoolValue)."""
    if name not in request.query:
        return unset
    return request.query[name].strip().lower() not in ("", "0", "no", "false", "none")
