"""The exchange: what a peer says that is no payload-init, to the pilot's end of the socket."""

import array
import asyncio
import contextlib
import os
import socket
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import strategies as st

from k8spilot.common.errors import PayloadLost
from k8spilot.model.outcome import Outcome
from k8spilot.payload_init.install import SOCKET
from k8spilot.payload_init.server import PayloadInitServer
from tests.fuzz.drawing import drawn

WORDS = st.sampled_from(
    [
        "hello",
        "3",
        "4",
        "fresh",
        "used",
        "scoped",
        "open",
        "leash",
        "cpu.stat",
        "memory.stat",
        "terminal",
        "started",
        "failed",
        "exit",
        "swept",
        "cleared",
        "0",
        "1",
        "00",
        "-1",
        "256",
        "9" * 40,
        "²",
        "٣",
        "",
        "\x00",
        "é",
    ]
)
SENSE = st.sampled_from(
    [
        "hello 4 fresh scoped -",
        "hello 4 used open 0af cpu.stat",
        "hello 4 fresh scoped - a b",
        "started 0 1",
        "exit 0 0",
        "exit 0 " + "9" * 30,
        "exit 0 4294967296",
        "exit 1 139",
        "failed 0 2 run",
        "terminal 0",
        "terminal 1",
        "swept",
        "exit 0 -1",
        "exit 0 127",
    ]
)
MESSAGE = st.one_of(
    SENSE.map(str.encode),
    st.lists(WORDS, max_size=5).map(lambda words: " ".join(words).encode()),
    st.binary(min_size=1, max_size=2000),
)
PACKETS = st.lists(st.tuples(MESSAGE, st.integers(0, 12)), max_size=8)


@drawn(200, packets=PACKETS, ends=st.booleans())
def test_whatever_a_peer_says_it_is_understood_or_cut_off_and_costs_nothing(
    packets: list[tuple[bytes, int]], ends: bool
) -> None:
    before = _descriptors()
    asyncio.run(_listen_to(packets, ends=ends))
    assert _descriptors() == before


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def _listen_to(packets: list[tuple[bytes, int]], *, ends: bool) -> None:
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    with TemporaryDirectory() as folder:
        path = Path(folder) / SOCKET
        async with PayloadInitServer(path, os.getuid()) as init_server:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
                peer.setblocking(False)
                peer.connect(str(path))
                while init_server.current is None:  # noqa: ASYNC110 -- in the same loop
                    await asyncio.sleep(0)
                channel = init_server.current
                with contextlib.suppress(PayloadLost):
                    processes = [channel.run(number, ()) for number in (0, 1)]
                    for message, count in packets:
                        _send(peer, message, count)
                        await asyncio.sleep(0)
                        await asyncio.sleep(0)
                    if ends:
                        peer.close()
                        await asyncio.sleep(0)
                    for process in processes:
                        if process.exited.done() and not process.exited.cancelled():
                            Outcome.of(process.exited.result())
                        if process.terminal.done() and not process.terminal.cancelled():
                            os.close(process.terminal.result())  # whoever takes it closes it
            # The next one is heard, whatever the first has said.
            channel.close()
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
                peer.connect(str(path))
                peer.send(b"hello 4 fresh scoped -")
                async with asyncio.timeout(5):
                    await init_server.until(lambda found: found.hello.result().fresh and found is not channel)
            for greeting in list(init_server._greetings):
                await greeting
    assert not faults, faults


def _send(peer: socket.socket, message: bytes, count: int) -> None:
    ends = [os.open("/dev/null", os.O_RDONLY) for _ in range(count)]
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", ends))] if ends else []
    with contextlib.suppress(OSError):  # it has been cut off
        peer.sendmsg([message], rights)
    for end in ends:
        os.close(end)
