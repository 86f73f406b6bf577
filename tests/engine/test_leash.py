"""The terminal by whose end a pilot that is not root ends payload-init (payload_init/terminals.py)."""

import asyncio
import errno
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import psutil
import pytest

from k8spilot.common.errors import PayloadLost
from k8spilot.model.command import Command
from k8spilot.payload.command.exec_session import ExecSession
from k8spilot.payload.command.stdio import Stdio
from k8spilot.payload.listeners import SHORTAGE_SECONDS
from k8spilot.payload.scrub.from_payload import PayloadScrubber
from k8spilot.payload.scrub.scrubber import ScrubRunner
from k8spilot.payload_init.channel import Channel
from k8spilot.payload_init.install import SOCKET
from k8spilot.payload_init.server import PayloadInitServer
from k8spilot.payload_init.terminals import Terminals
from tests.engine.payload_inits import Containers, containers
from tests.simulator.container import own_uid
from tests.simulator.programs import Programs


@pytest.fixture
def terminals(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminals]:
    """Terminals of a pilot that is not root; the node has no others."""
    found = Terminals()
    found.open()

    def none() -> tuple[int, int]:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def not_permitted(*_: object) -> None:
        raise PermissionError

    with monkeypatch.context() as patched:
        patched.setattr(os, "openpty", none)
        patched.setattr(signal, "pidfd_send_signal", not_permitted)
        yield found
    found.close()


@pytest.fixture
async def place(programs: Programs) -> AsyncIterator[Containers]:
    """A place in which containers are started."""
    async with containers(programs) as found:
        yield found


async def _leashed(channel: Channel, terminals: Terminals) -> int:
    channel.offer_leash(terminals.take())
    async with asyncio.timeout(5):
        return await channel.leash.answer


async def test_payload_init_ends_by_it_even_if_it_was_stopped(place: Containers, terminals: Terminals) -> None:
    container, channel = await place.start()
    assert await _leashed(channel, terminals) == 0
    os.kill(container.pid, signal.SIGSTOP)
    channel.kill()
    await asyncio.wait_for(channel.gone, 5)


async def test_payload_init_is_asked_to_end_before_the_end_of_its_terminal_kills_it(
    place: Containers, terminals: Terminals
) -> None:
    """Payload-init ends all processes first: not every runtime does (CRI-O; tests/attacks/test_ends.py, fork bombs)."""
    container, channel = await place.start()
    assert await _leashed(channel, terminals) == 0
    channel.kill()
    channel.kill()
    await asyncio.wait_for(channel.gone, 5)
    await container.process.wait()
    assert container.terminated["exitCode"] == 128 + signal.SIGKILL  # and not SIGHUP
    assert terminals.take() is not None, "a payload-init that ends by itself leaves its terminal usable"


async def test_one_whose_payload_init_has_ended_is_good_for_the_next(place: Containers, terminals: Terminals) -> None:
    for number in range(4):  # there are two
        container, channel = await place.start()
        assert await _leashed(channel, terminals) == 0
        if number % 2:
            container.kill_first()
        else:
            container.process.terminate()  # as at a change of image
        await asyncio.wait_for(channel.gone, 5)


async def test_payload_init_that_cannot_receive_it_says_so(place: Containers, terminals: Terminals) -> None:
    container, channel = await place.start()
    lower = ("prlimit", "--pid", str(container.pid), "--nofile=0:0")
    lowered = await asyncio.create_subprocess_exec(*lower, user=own_uid(), group=own_uid(), extra_groups=[])
    assert await lowered.wait() == 0
    assert await _leashed(channel, terminals) == errno.EBADF
    assert not channel.leash.is_attached


async def test_one_that_another_process_has_still_is_refused_and_another_is_taken(
    place: Containers, terminals: Terminals
) -> None:
    """As while the container before has not ended yet."""
    first, second = terminals.take(), terminals.take()
    program = "import fcntl, signal, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); print(flush=True); signal.pause()"
    has_it = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program), stdin=first.slave, stdout=-1, start_new_session=True
    )
    assert has_it.stdout is not None
    assert await has_it.stdout.readline() == b"\n"
    first.give_back()
    second.give_back()
    _, channel = await place.start()
    await _scrubber(place, terminals)._leash(channel)
    assert channel.leash.is_attached
    assert terminals.take() is first
    channel.kill()
    await asyncio.wait_for(channel.gone, 5)
    has_it.kill()
    await has_it.communicate()
    first.close()


async def test_no_command_of_the_container_has_it(place: Containers, terminals: Terminals) -> None:
    _, channel = await place.start()
    assert await _leashed(channel, terminals) == 0
    stdio = Stdio()
    script = b"(exec </dev/tty) && echo has it; ls /proc/$PPID/fd; readlink /proc/self/fd/* | grep pts"
    session = ExecSession(channel, 1, Command((b"sh", b"-c", script), (b"PATH=/usr/bin:/bin",), directory=b"/"), stdio)
    async with asyncio.timeout(5):
        await session.follow()
    words = b"".join(piece.data for piece in stdio.tail).decode()
    assert "No such device or address" in words, words
    assert "Permission denied" in words, words
    assert not [line for line in words.splitlines() if line.isdecimal() or "has it" in line or "pts" in line], words


async def test_without_any_the_job_goes_back_and_the_slot_is_closed_for_seconds(
    place: Containers, terminals: Terminals
) -> None:
    _, channel = await place.start()
    held = [terminals.take(), terminals.take()]
    closed: list[float] = []
    with pytest.raises(PayloadLost, match=r"kernel\.pty\.max.*goes back to the queue"):
        await ScrubRunner(_scrubber(place, terminals), closed.append).clean(channel)
    assert closed == [SHORTAGE_SECONDS]
    assert SHORTAGE_SECONDS <= 30
    for one in held:
        one.give_back()


def _scrubber(place: Containers, terminals: Terminals) -> PayloadScrubber:
    return PayloadScrubber(Path("/programs/tidy"), place.init_server, lambda: (), Path("/none"), own_uid(), terminals)


@pytest.mark.parametrize(("number", "says"), [(errno.ENOSPC, b"kernel.pty.max"), (errno.ENOENT, b"No such file")])
async def test_a_session_for_which_there_is_no_terminal_says_why(tmp_path: Path, number: int, says: bytes) -> None:
    seen: list[bytes] = []

    async def sink(_stream: int, data: bytes) -> None:
        seen.append(data)

    async with PayloadInitServer(tmp_path / SOCKET, os.getuid()) as init_server:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
            peer.connect(str(tmp_path / SOCKET))
            peer.send(b"hello 4 fresh scoped -")
            channel = await init_server.until(lambda _: True)
            stdio = Stdio(terminal=True)
            stdio.sinks.append(sink)
            session = ExecSession(channel, 1, Command((b"sh",)), stdio)
            following = asyncio.create_task(session.follow())
            await asyncio.to_thread(peer.recv, 100)
            peer.send(b"failed 1 %d open" % number)
            peer.send(b"exit 1 %d" % (126 << 8))
            await asyncio.wait_for(following, 5)
    assert session.ended.result().code == 126
    assert len(seen) == 1
    assert says in seen[0]
    assert seen[0].startswith(b"k8spilot: ")
    assert seen[0].endswith(b".\r\n")


async def test_what_has_outlived_its_container_is_ended_before_the_next_job_and_after_a_lost_one(
    place: Containers, terminals: Terminals
) -> None:
    """As CRI-O leaves it, which kills only the first process of a container."""
    container, channel = await place.start()
    runner = ScrubRunner(_scrubber(place, terminals), lambda _: None)
    leave = Command(
        (b"sh", b"-c", b"exec setsid --fork sleep 600 <&- >&- 2>&-"), (b"PATH=/usr/bin:/bin",), directory=b"/"
    )
    ways: list[Callable[[], Awaitable[None]]] = [
        lambda: runner.clean(channel),
        lambda: runner.rescue(lambda: place.init_server.until(lambda _: True)),
    ]
    for number, end in enumerate(ways):
        await ExecSession(channel, number + 1, leave, Stdio()).follow()
        (stray,) = psutil.Process(container.pid).children()
        await end()
        await asyncio.to_thread(stray.wait, 5)
    assert channel.still_open()
