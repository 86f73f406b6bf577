"""Events of a watch, as the API server sends them: one JSON object for each line."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import aiohttp

from k8spilot.common.errors import ClusterError
from k8spilot.kube.client import ApiRefusal

SILENCE_SECONDS: Final = 100.0
"""Seconds of silence after which the connection of a watch with bookmarks is dead: one comes about once a minute."""
_LATE_SECONDS: Final = 30.0
"""Seconds after a watch's length in which the server must have ended it."""
_LINE_LIMIT: Final = 8 * 1024 * 1024
"""Limit of a line in bytes. A pod has at most 1.5 MiB in etcd, and somewhat more in JSON."""


def longest_silence(seconds: float, *, has_bookmarks: bool) -> float:
    """Return the seconds of silence after which the connection of a watch of so many `seconds` is dead."""
    return SILENCE_SECONDS if has_bookmarks else seconds + _LATE_SECONDS


async def events(content: aiohttp.StreamReader, silence: Callable[[], float]) -> AsyncIterator[dict[str, Any]]:
    """Yield the events of a watch (meta/v1 WatchEvent), until the server ends it.

    Raises:
        TimeoutError: the server was silent for as many seconds as `silence` returns.
        ApiRefusal: the server's reason for the end.
        ClusterError, ValueError: the server does not send events.
    """
    async for line in _lines(content, silence):
        event: dict[str, Any] = json.loads(line)
        if event["type"] == "ERROR":  # has a Status of meta/v1 in place of a pod
            status = event["object"]
            raise ApiRefusal(int(status.get("code") or 0), f"the watch ended: {status.get('message')}")
        yield event


async def _lines(content: aiohttp.StreamReader, silence: Callable[[], float]) -> AsyncIterator[bytes]:
    """Yield lines of up to `_LINE_LIMIT` bytes (readline has a far lower limit)."""
    rest = b""
    while True:
        async with asyncio.timeout(silence()):
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
