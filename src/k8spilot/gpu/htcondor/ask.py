"""Asks the engine over its socket, and prints the answer: what HTCondor runs for its inventory of GPUs.

    python -IS ask.py SOCKET PATH SECONDS

It waits for an engine that is being started, for SECONDS at most. On the standard library alone: it is run often, and
has to be small. Exit status: 0, or 1 with the reason on standard error.
"""

import socket
import sys
import time

_AGAIN_SECONDS = 0.3


class _Refused(Exception):
    """The engine has answered, with something else."""


def ask(path: str, what: str, seconds: float) -> bytes:
    """The body of the engine's answer to GET `what`.

    Raises:
        OSError: there was no answer in time.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return _asked(path, what, deadline)
        except (OSError, ValueError) as error:  # it has just died, and another one comes
            if time.monotonic() + _AGAIN_SECONDS >= deadline:
                raise OSError(f"no answer from the engine at {path} within {seconds:g} s ({error})") from None
        except _Refused as error:
            raise OSError(f"the engine at {path} says {error}") from None
        time.sleep(_AGAIN_SECONDS)


def _asked(path: str, what: str, deadline: float) -> bytes:
    parts = []
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(max(0.01, deadline - time.monotonic()))
        connection.connect(path)
        connection.sendall(f"GET {what} HTTP/1.0\r\nHost: k8spilot\r\n\r\n".encode())
        while part := connection.recv(65536):
            parts.append(part)
            connection.settimeout(max(0.01, deadline - time.monotonic()))
    head, end, body = b"".join(parts).partition(b"\r\n\r\n")
    status, *fields = head.decode(errors="replace").split("\r\n")
    if " 200 " not in f"{status} ":
        if status.startswith("HTTP/"):
            raise _Refused(status)
        raise ValueError("it hung up")
    length = [one.partition(":")[2] for one in fields if one.lower().startswith("content-length:")]
    if not end or (length and len(body) != int(length[0])):
        raise ValueError("it hung up in the middle")
    return body


def main() -> int:
    """Print the answer."""
    try:
        sys.stdout.buffer.write(ask(sys.argv[1], sys.argv[2], float(sys.argv[3])))
    except (OSError, IndexError, ValueError) as error:
        print(f"k8spilot: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
