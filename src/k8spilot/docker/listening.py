"""Docker sockets, which `k8spilot run` opens before there is an engine. So this module does not import the server."""

import os
import socket
from pathlib import Path
from typing import Final

_BACKLOG: Final = 128


def listen(path: Path, group: int | None = None) -> socket.socket:
    """Listen on a Unix socket that only root and `group` can reach.

    The kernel accepts clients as long as a process holds the socket, and they wait for an engine that serves it
    (`serve`).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    before = os.umask(0o177)
    try:
        listening.bind(str(path))
    finally:
        os.umask(before)
    if group is not None:
        os.chown(path, -1, group)
        path.chmod(0o660)
    listening.listen(_BACKLOG)
    return listening
