"""The events of a watch, as the API server sends them: one JSON object a line."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Final

import aiohttp

from k8spilot.common.errors import ClusterError
from k8spilot.kube.client import ApiRefusal

SILENCE_SECONDS: Final = 100.0
"""The server sends a bookmark about once a minute; a watch that is quiet for longer is a connection that has died."""
_LINE_LIMIT: Final = 8 * 1024 * 1024
"""A pod is at most 1.5 MiB in etcd, its JSON somewhat more."""


async def events(content: aiohttp.StreamReader) -> AsyncIterator[dict[str, Any]]:
    """The events of a watch (meta/v1 WatchEvent), until the server ends it.

    Raises:
        TimeoutError: it has been silent for too long.
        ApiRefusal: what the server says of its end.
        ClusterError, ValueError: it does not send events.
    """
    async for line in _lines(content):
        event: dict[str, Any] = json.loads(line)
        if event["type"] == "ERROR":  # with a Status of meta/v1 in the place of a pod
            status = event["object"]
            raise ApiRefusal(int(status.get("code") or 0), f"the watch ended: {status.get('message')}")
        yield event


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The lines, of any length up to `_LINE_LIMIT` (readline has a limit of its own, far lower)."""
    rest = b""
    while True:
        async with asyncio.timeout(SILENCE_SECONDS):
            chunk = await content.readany()
        if not chunk:
            return
        rest += chunk
        *whole, rest = rest.split(b"\n")
        for line in whole:
            if line:
                yield line
        if len(rest) > _LINE_LIMIT:
            raise ClusterError("the Kubernetes API sent an event of more than 8 MiB")
