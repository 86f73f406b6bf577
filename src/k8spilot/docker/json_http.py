"""Bodies in JSON, both ways."""

import asyncio
import json
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage

from k8spilot.common.errors import PilotError
from k8spilot.common.http_limits import MemoryBudget
from k8spilot.common.untrusted_json import VALUES_BYTES, read_json

MEMORY: Final = web.AppKey("memory", MemoryBudget)
"""For what comes in requests and is kept."""

CHARGE: Final = web.RequestKey("charge", int)
"""Under it, a request has what it has taken of that."""

_NO_ROOM: Final = "there is no room for the %s now; try again later"
_BODY_SECONDS: Final = 20.0
_OBJECTS: Final = 24
"""So many times its own size is an object of two characters in memory."""


class BadRequest(PilotError):
    """The request cannot be read."""


def json_answer(value: Any, status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    """`value` as compact JSON: HTCondor reads some of it with sscanf and expects no space after a colon.

    The content type has no charset: the docker CLI compares it as a whole, and shows errors as raw JSON otherwise
    (client/request.go in docker/cli's vendor/github.com/docker/docker).
    """
    body = json.dumps(value, separators=(",", ":")).encode()
    return web.Response(body=body, status=status, headers={"Content-Type": "application/json"})


def no_room(what: str) -> web.Response:
    """The answer in the place of one for which there is no room."""
    return json_answer({"message": _NO_ROOM % what}, status=HTTPStatus.SERVICE_UNAVAILABLE)


async def json_body(request: web.Request) -> dict[str, Any]:
    """The object in a request's body; an empty one when there is no body.

    Raises:
        BadRequest: it is something else.
        web.HTTPException: it is too large, takes too long, or there is no room for it now.
    """
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            document = await _read(request) if request.can_read_body else b""
    except TimeoutError:
        raise web.HTTPRequestTimeout(text=f"the request's body did not come within {_BODY_SECONDS:.0f} s") from None
    except (web.RequestPayloadError, BadHttpMessage) as error:
        raise BadRequest("the request's body cannot be read") from error
    try:
        body = read_json(document) if document else {}
    except ValueError as error:
        raise BadRequest(f"the request is not JSON ({error})") from error
    if not isinstance(body, dict):
        raise BadRequest("the request is not a JSON object")
    return body


async def _read(request: web.Request) -> bytes:
    """All of the body, as far as there is room; who is served keeps that until `release`, or passes it on."""
    body, memory = bytearray(), request.app[MEMORY]
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
    """What a body of `size` bytes can take in memory: read_json limits how many small objects there are."""
    return size + _OBJECTS * min(size, VALUES_BYTES)


def keep(request: web.Request) -> int:
    """What was in the request's body is kept on, by somebody who gives back this many bytes of MEMORY in the end."""
    return _charge(request)


def _charge(request: web.Request) -> int:
    charge: int = request.get(CHARGE, 0)
    request[CHARGE] = 0
    return charge


def release(request: web.Request) -> None:
    """What was in the request's body is not kept any more."""
    request.app[MEMORY].give(_charge(request))


def flag(request: web.Request, name: str, *, unset: bool = False) -> bool:
    """A boolean of the query, as dockerd reads it (api/server/httputils/form.go in moby, BoolValue)."""
    if name not in request.query:
        return unset
    return request.query[name].strip().lower() not in ("", "0", "no", "false", "none")
