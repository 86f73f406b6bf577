"""HTTP client for a Unix socket, and a program that prints an answer of the engine.

    python -IS unix_http.py get SOCKET PATH SECONDS
    python -IS unix_http.py stream SOCKET PATH

`get` waits up to SECONDS for an engine that restarts. `stream` prints the answer as it arrives. Exit status: 0 or 1; on
1 `get` prints the reason to standard error. HTCondor runs this file by its path (condor/scripts), often, or for as long
as its startd lives, and `k8spilot status` imports it. So it uses little of the standard library, and nothing else. The
engine itself uses aiohttp.
"""

import os
import socket
import sys
import time

_RETRY_SECONDS = 0.3
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


def get_when_ready(path: str, what: str, seconds: float) -> bytes:
    """Return the same as `get`, from a server that may be restarting.

    Raises:
        OSError: there was no answer in time, or an answer with another status.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return get(path, what, max(0.01, deadline - time.monotonic()))
        except ErrorStatus as error:
            raise OSError(f"the engine at {path} answers {error}") from None
        except (OSError, ValueError) as error:
            if time.monotonic() + _RETRY_SECONDS >= deadline:
                raise OSError(f"no answer from the engine at {path} within {seconds:g} s ({error})") from None
        time.sleep(_RETRY_SECONDS)


def stream(path: str, what: str, descriptor: int) -> None:
    """Write the body of the answer to GET `what` to a file descriptor as it arrives, until its end.

    Raises:
        ValueError: there is no answer with the status 200.
        OSError: there is no server, or the descriptor cannot be written to.
    """
    with _connect(path, what, None) as connection:
        head = b""
        while b"\r\n\r\n" not in head:
            part = connection.recv(_CHUNK)
            if not part:
                raise ValueError("it closed the connection")
            head += part
        head, _, rest = head.partition(b"\r\n\r\n")
        _check(head)
        while True:
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            rest = connection.recv(_CHUNK)
            if not rest:
                return


def _connect(path: str, what: str, seconds: float | None) -> socket.socket:
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


def main(arguments: list[str]) -> int:
    """Print an answer; return the exit status."""
    try:
        if arguments[0] == "stream":
            stream(arguments[1], arguments[2], sys.stdout.fileno())
        else:
            sys.stdout.buffer.write(get_when_ready(arguments[1], arguments[2], float(arguments[3])))
    except (OSError, IndexError, ValueError) as error:
        if arguments[:1] != ["stream"]:  # HTCondor restarts it as long as there is no engine
            print(f"k8spilot: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
