"""Credentials of the client of a Unix socket, from the kernel (unix(7), SO_PEERCRED)."""

import asyncio.trsock
import socket
import struct
from typing import Final

from k8spilot.common.proc import PROC, status

_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid


def peer_of(connection: socket.socket | asyncio.trsock.TransportSocket) -> tuple[int, int]:
    """Return the process id and the uid of the client."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _gid = _CREDENTIALS.unpack(credentials)
    return pid, uid


def supplementary_groups(pid: int) -> frozenset[int]:
    """Return the supplementary groups of a process.

    Raises:
        OSError: the process has ended.
    """
    return frozenset(map(int, status(PROC / str(pid))[b"Groups"].split()))
