"""What a peer of payload-init's socket may say."""

import os
import socket
from pathlib import Path

import pytest

from k8spilot.payload_init.server import SOCKET, PayloadInitServer


@pytest.mark.parametrize("status", ["127", "4991", "65535", "65536", "99999999999999999999", "-1", "x", ""])
async def test_a_status_that_no_process_ends_with_is_no_end(tmp_path: Path, status: str) -> None:
    async with PayloadInitServer(tmp_path / SOCKET, os.getuid()) as init_server:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
            peer.connect(str(tmp_path / SOCKET))
            peer.send(b"hello 4 fresh scoped -")
            channel = await init_server.until(lambda _: True)
            process = channel.run(0, ())
            peer.send(f"exit 0 {status}".encode())
            await channel.closed
            assert process.exited.cancelled()
