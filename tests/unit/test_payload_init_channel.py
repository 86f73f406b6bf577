"""Messages that a peer may send on payload-init's socket."""

import gc
import os
import socket
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from k8spilot.common.errors import PayloadLost
from k8spilot.payload_init.channel import Channel
from k8spilot.payload_init.install import SOCKET
from k8spilot.payload_init.server import PayloadInitServer


@asynccontextmanager
async def greeted(folder: Path) -> AsyncIterator[tuple[socket.socket, Channel]]:
    """A peer that has said hello, and the pilot's end of its connection."""
    async with PayloadInitServer(folder / SOCKET, os.getuid()) as init_server:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
            peer.connect(str(folder / SOCKET))
            peer.send(b"hello 4 fresh scoped -")
            yield peer, await init_server.until(lambda _: True)


@pytest.mark.parametrize("status", ["127", "4991", "65535", "65536", "99999999999999999999", "-1", "x", ""])
async def test_a_status_that_no_process_ends_with_is_no_end(tmp_path: Path, status: str) -> None:
    async with greeted(tmp_path) as (peer, channel):
        process = channel.run(0, ())
        peer.send(f"exit 0 {status}".encode())
        await channel.closed
        assert process.exited.cancelled()


async def test_a_command_that_has_ended_takes_no_memory_and_has_no_second_end(tmp_path: Path) -> None:
    async with greeted(tmp_path) as (peer, channel):
        ended = []
        for number in range(3):
            process = channel.run(number, ())
            peer.send(b"started %d 7" % number)
            peer.send(b"exit %d 256" % number)
            assert await process.exited == 256
            ended.append(weakref.ref(process))
        del process
        gc.collect()
        assert [one() for one in ended] == [None] * 3
        assert channel.open
        peer.send(b"exit 1 256")
        await channel.closed


async def test_a_renewed_container_can_be_swept_again_and_a_worn_one_says_why(tmp_path: Path) -> None:
    async with greeted(tmp_path) as (peer, channel):
        for _ in range(2):
            peer.send(b"swept")
            await channel.swept
            peer.send(b"renewed")  # it arrives after the question
            assert await channel.renew() == ""
            assert not channel.swept.done()
        peer.send(b"worn limits")
        assert await channel.renew() == "limits"
        peer.close()
        with pytest.raises(PayloadLost):
            await channel.renew()


@pytest.mark.parametrize(
    "text", ["hello 4 fresh scoped -", "exit 7 256", "cleared", "leash 0", "renewed", "worn limits", "nonsense"]
)
async def test_a_message_at_the_wrong_time_ends_the_connection(tmp_path: Path, text: str) -> None:
    async with greeted(tmp_path) as (peer, channel):
        peer.send(text.encode())
        await channel.closed
