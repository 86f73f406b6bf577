"""HTTP client for a Unix socket, with which `k8spilot status` queries the engine.

It uses the standard library alone. The imports of `k8spilot status` take 25 ms of processor time, and aiohttp, which
the engine uses, takes 520 ms more (Python 3.14). Where aiohttp is loaded anyway, its client is used (condor/agent.py,
telemetry/health.py). HTCondor's scripts run a program of their own (condor/engine-get.c).
"""

import socket
import time

_CHUNK = 65536


class ErrorStatus(ValueError):
    """Raised when the server answers with another status than 200; the text is its status line."""


def get(path: str, what: str, seconds: float) -> bytes:
    """Return the body of the answer to GET `what` from the server that listens at `path`.

    Raises:
        ErrorStatus: the server answered with another status.
        ValueError: the answer is not HTTP, or ends in the middle.
        OSError: there is no server, or no whole answer within `seconds`.
    """
    deadline = time.monotonic() + seconds
    parts = []
    with _connect(path, what, seconds) as connection:
        while part := connection.recv(_CHUNK):
            parts.append(part)
            connection.settimeout(max(0.01, deadline - time.monotonic()))
    head, end, body = b"".join(parts).partition(b"\r\n\r\n")
    _check(head)
    length = [line.partition(b":")[2] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    if not end or (length and len(body) != int(length[0])):
        raise ValueError("it closed the connection in the middle of its answer")
    return body


def _connect(path: str, what: str, seconds: float) -> socket.socket:
    """Send the request. HTTP/1.0: the end of the connection is the end of the answer."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(seconds)
        connection.connect(path)
        connection.sendall(f"GET {what} HTTP/1.0\r\nHost: k8spilot\r\n\r\n".encode())
    except BaseException:
        connection.close()
        raise
    return connection


def _check(head: bytes) -> None:
    status = head.partition(b"\r\n")[0].decode(errors="replace")
    if not status.startswith("HTTP/"):
        raise ValueError(f"it answers {status!r}" if status else "it closed the connection")
    if " 200 " not in f"{status} ":
        raise ErrorStatus(status)
