"""Who is at the other end of a Unix socket: the kernel tells (unix(7), SO_PEERCRED), and nobody else is asked."""

import asyncio.trsock
import socket
import struct
from pathlib import Path
from typing import Final

_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid


def peer_of(connection: socket.socket | asyncio.trsock.TransportSocket) -> tuple[int, int]:
    """The process id and the uid of who has connected."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _gid = _CREDENTIALS.unpack(found)
    return pid, uid


def supplementary_groups(pid: int) -> frozenset[int]:
    """The supplementary groups of a process.

    Raises:
        OSError: it has ended.
    """
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return frozenset(int(word) for line in lines if line.startswith("Groups:") for word in line.split()[1:])
