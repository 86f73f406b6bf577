"""Ports of servers that go away and come back."""

import socket


def hold_port(host: str = "127.0.0.1") -> socket.socket:
    """Bind a free TCP port of `host` without listening on it; nobody else gets the port until the socket is closed.

    A server that sets SO_REUSEADDR, as asyncio does on request, can listen there meanwhile (socket(7)). Connections are
    refused while none listens.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((host, 0))
    return held
