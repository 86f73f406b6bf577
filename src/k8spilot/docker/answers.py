"""Answers in JSON."""

import json
from http import HTTPStatus
from typing import Any

from aiohttp import web


def json_answer(value: Any, status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    """`value` as compact JSON: HTCondor reads some of it with sscanf and expects no space after a colon.

    The content type has no charset: the docker CLI compares it as a whole, and shows errors as raw JSON otherwise
    (client/request.go in docker/cli's vendor/github.com/docker/docker).
    """
    body = json.dumps(value, separators=(",", ":")).encode()
    return web.Response(body=body, status=status, headers={"Content-Type": "application/json"})
