"""Bodies in JSON, both ways."""

import json
from http import HTTPStatus
from typing import Any

from aiohttp import web

from k8spilot.errors import PilotError


class BadRequest(PilotError):
    """The request cannot be read."""


def json_answer(value: Any, status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    """`value` as compact JSON: HTCondor reads some of it with sscanf and expects no space after a colon.

    The content type has no charset: the docker CLI compares it as a whole, and shows errors as raw JSON otherwise
    (client/request.go in docker/cli's vendor/github.com/docker/docker).
    """
    body = json.dumps(value, separators=(",", ":")).encode()
    return web.Response(body=body, status=status, headers={"Content-Type": "application/json"})


async def json_body(request: web.Request) -> dict[str, Any]:
    """The object in a request's body; an empty one when there is no body.

    Raises:
        BadRequest: it is something else.
    """
    try:
        body = await request.json() if request.can_read_body else {}
    except ValueError as error:
        raise BadRequest("the request is not JSON") from error
    if not isinstance(body, dict):
        raise BadRequest("the request is not a JSON object")
    return body


def flag(request: web.Request, name: str, *, unset: bool = False) -> bool:
    """A boolean of the query, as dockerd reads it (api/server/httputils/form.go in moby, BoolValue)."""
    if name not in request.query:
        return unset
    return request.query[name].strip().lower() not in ("", "0", "no", "false", "none")
