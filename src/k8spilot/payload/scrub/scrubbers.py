"""Keeping what one job leaves from the next, and giving HTCondor what a job has locked: from outside or from inside.

Root does both from the pilot container (payload/scrub/leftovers.py). Where nobody is root, only the jobs' own user can:
payload-init runs tidy (payload_init/tidy.c), in a fresh container before a job begins, and after all processes of one
are dead.
"""

import asyncio
import itertools
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from k8spilot.common.errors import ImageError, PayloadLost, PilotError, Shortage
from k8spilot.model.command import Command
from k8spilot.payload.exec_session import ExecSession
from k8spilot.payload.launch import first_of, is_set
from k8spilot.payload.scrub.leftovers import SHARED, UNLOCK_SECONDS, Leftovers
from k8spilot.payload.stdio import Stdio
from k8spilot.payload_init.channel import Channel
from k8spilot.payload_init.server import PayloadInitServer
from k8spilot.payload_init.terminals import Terminals

logger = logging.getLogger(__name__)

_CLEAN_SECONDS: Final = 120.0
_LEASH_SECONDS: Final = 30.0
"""payload-init answers in milliseconds; on a node without a free core it waits for its turn like everybody."""
_TERMINALS: Final = 2
"""How many are offered to payload-init."""
_ARRIVE_SECONDS: Final = 3.0
"""When the last job ended badly, or the image is just being changed, payload-init is about to come."""
_CLEAR_SECONDS: Final = 5.0
_NO_FOLDER: Final = 3
"""Of tidy's exit statuses: NO_FOLDER in tidy.c."""
_FIRST_NUMBER: Final = 1_000_000
"""Of these commands: those beside a job count from 1 (payload/run.py)."""


class Scrubber(Protocol):
    """Puts right what jobs leave."""

    async def before_files(self) -> None:
        """Remove what can be removed before HTCondor brings the next job's files; no job has a container.

        Raises:
            PilotError: something cannot be removed.
        """

    async def remove_sandboxes(self) -> None:
        """Remove sandboxes that HTCondor has left. To be called before it makes the next job's.

        Raises:
            PilotError: one cannot be removed.
        """

    async def clean(self, channel: Channel) -> None:
        """Remove all that jobs left. `channel` is that of a fresh container; no process of a job is left.

        Raises:
            ImageError: where it is to be removed, this image has something else.
            PilotError: something cannot be removed; the container must not be given to another job.
        """

    @property
    def needs_container(self) -> bool:
        """Whether a job's sandbox can be unlocked in a container only; that of a lost job, in the next one."""

    async def unlock(self, channel: Channel) -> None:
        """Let HTCondor read what the job locked in its sandbox, when no process of the job is left.

        Raises:
            PilotError: that failed, or took too long; what is locked still does not come back.
        """


class PilotScrubber:
    """By root."""

    needs_container = False

    def __init__(self, scratch: Leftovers, init_server: PayloadInitServer) -> None:
        self._scratch = scratch
        self._init_server = init_server
        """Where payload-init is."""

    async def before_files(self) -> None:
        """End all processes of the jobs' user, and remove their files in a thread."""
        if not await self._clear():
            await _in_thread(self._scratch.kill_all)
        await _in_thread(self._scratch.clean)

    async def remove_sandboxes(self) -> None:
        """Remove them in a thread."""
        await _in_thread(self._scratch.remove_sandboxes)

    async def clean(self, _channel: Channel) -> None:
        """Do the same again, but for sandboxes: HTCondor has run programs of the next job's since."""
        await self.before_files()

    async def _clear(self) -> bool:
        """Have payload-init end all else of its user; whether it did.

        Whoever looks for processes one by one finds none of those that replace themselves all the time.
        """
        with suppress(TimeoutError, PayloadLost):
            async with asyncio.timeout(_ARRIVE_SECONDS):
                channel = await self._init_server.until(lambda _: True)
            cleared = channel.clear()
            await first_of(cleared, channel.closed, seconds=_CLEAR_SECONDS)
            if is_set(cleared):
                return True
            channel.kill()  # its last job may have stopped it
        return False

    async def unlock(self, _channel: Channel) -> None:
        """Unlock it in a thread."""
        await _in_thread(self._scratch.unlock)


class PayloadScrubber:
    """By the jobs' user."""

    needs_container = True

    def __init__(
        self,
        program: Path,
        init_server: PayloadInitServer,
        folders: Callable[[], Sequence[str]],
        sandboxes: Path,
        uid: int,
        terminals: Terminals,
        *,
        fences: bool = False,
    ) -> None:
        self._program = program
        self._init_server = init_server
        self._folders = folders
        """Where the payload container has the volumes that are emptied."""
        self._sandboxes = sandboxes
        self._uid = uid
        self._terminals = terminals
        self._fences = fences
        """Nothing keeps HTCondor from following links, so that it must find none that lead out of the sandbox."""
        self._numbers = itertools.count(_FIRST_NUMBER)

    async def before_files(self) -> None:
        """Open what a lost job has locked: HTCondor removes it, or takes no job (condor/install.py)."""
        with suppress(TimeoutError, PilotError):
            async with asyncio.timeout(_ARRIVE_SECONDS):
                channel = await self._init_server.until(lambda _: True)
            await self.unlock(channel)

    async def remove_sandboxes(self) -> None:
        """Leave that to those who made them: the lines that become HTCondor's starter (condor/install.py)."""

    async def clean(self, channel: Channel) -> None:
        """Remove it. From here on payload-init can be killed, too, whatever the job does to it."""
        try:
            await self._leash(channel)
            async with asyncio.timeout(_CLEAN_SECONDS):
                await self._tidy(channel, "remove", *self._folders())
                await self._tidy(channel, "of", str(self._uid), *map(str, SHARED))
                await self._tidy(channel, "ipc")
        except (ImageError, Shortage):
            raise
        except (TimeoutError, PilotError) as error:
            raise PilotError(
                f"the container cannot be made ready for the next job ({error or 'it takes too long'}); the slot takes "
                "no job until that is mended"
            ) from error

    async def _leash(self, channel: Channel) -> None:
        """Make sure that payload-init can be ended whatever the job does to it.

        A terminal that another process has still is refused (EPERM of TIOCSCTTY); then there is another one.

        Raises:
            PilotError: it takes none.
            Shortage: there is none.
        """
        for _ in range(_TERMINALS):
            if channel.is_leashed:
                return
            channel.leash(self._terminals.take())
            await first_of(channel.leashed, channel.closed, seconds=_LEASH_SECONDS)
            if not is_set(channel.leashed):
                break
        if not channel.is_leashed:
            why = os.strerror(channel.leashed.result()) if is_set(channel.leashed) else "it does not answer"
            raise PilotError(f"payload-init takes no terminal by whose end it could be killed: {why}")

    async def unlock(self, channel: Channel) -> None:
        """Open it to HTCondor's group."""
        try:
            async with asyncio.timeout(UNLOCK_SECONDS):
                await self._tidy(channel, "fence" if self._fences else "open", str(self._sandboxes))
        except (TimeoutError, PilotError) as error:
            raise PilotError(
                f"what the job locked in its sandbox cannot be given back ({error or 'it takes too long'}); outputs in "
                "locked folders may be lost"
            ) from error

    async def _tidy(self, channel: Channel, *arguments: str) -> None:
        command = Command(
            arguments=tuple(one.encode() for one in (str(self._program), *arguments)), removed=(b"*",), directory=b"/"
        )
        stdio = Stdio()
        session = ExecSession(channel, next(self._numbers), command, stdio)
        await session.follow()
        outcome = session.ended.result()
        said = b"".join(piece.data for piece in stdio.tail).decode(errors="replace").strip()
        if not channel.still_open():
            raise PilotError("the payload container has ended")
        if outcome.code == _NO_FOLDER:
            raise ImageError(
                f"the job's image has a link or a file at {said[:100]}, where a folder of the pod's belongs; "
                "build it with a folder there"
            )
        if outcome.code:
            raise PilotError(said[:200] or f"tidy ended with {outcome.code}")
        for line in said.splitlines():
            logger.info("%s", line[:300])


async def _in_thread(work: Callable[[], None]) -> None:
    """Do blocking work in a thread, and be there until it is done, whoever has lost interest meanwhile.

    What it removes could be the next job's by then.

    Raises:
        PilotError: of the work; or there is no thread to be had, and it is not done later either.
    """
    is_wanted = True

    def unless_given_up() -> None:
        if is_wanted:
            work()

    try:
        doing = asyncio.get_running_loop().run_in_executor(None, unless_given_up)
    except RuntimeError as error:  # the executor keeps in its queue what it could begin no thread for
        is_wanted = False
        raise PilotError(f"no thread can be started in the pilot ({error})") from error
    try:
        await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait([doing])
        doing.exception()
        raise
