"""Removal of jobs' leftovers without root: by the jobs' own user in the payload container.

payload-init starts tidy (payload_init/tidy.c) in a fresh container, as a command without a job.
"""

import asyncio
import itertools
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from k8spilot.common.aio import first_of, is_set
from k8spilot.common.errors import ImageError, PilotError, Shortage
from k8spilot.model.command import Command
from k8spilot.payload.command.exec_session import ExecSession
from k8spilot.payload.command.stdio import Stdio
from k8spilot.payload.scrub.scrubber import ARRIVE_SECONDS, SCRUB_SECONDS, SHARED, UNLOCK_SECONDS, clear, stays_locked
from k8spilot.payload_init.channel import Channel
from k8spilot.payload_init.server import PayloadInitServer
from k8spilot.payload_init.terminals import Terminals

logger = logging.getLogger(__name__)

_LEASH_SECONDS: Final = 30.0
"""Seconds for payload-init's answer. It takes milliseconds, but longer on a node without a free core."""
_TERMINALS: Final = 2
"""Maximum number of terminals that are offered to payload-init."""
_NO_FOLDER: Final = 3
"""Exit status of tidy: NO_FOLDER in tidy.c."""
_FIRST_NUMBER: Final = 1_000_000
"""First number of these commands. Commands beside a job count from 1 (payload/run.py)."""


class PayloadScrubber:
    """Scrubber that works as the jobs' user."""

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
        """Mount paths in the payload container of the volumes that are emptied."""
        self._sandboxes = sandboxes
        self._uid = uid
        self._terminals = terminals
        self._fences = fences
        """Whether links that lead out of the sandbox must be removed, because nothing prevents HTCondor from following
        them."""
        self._numbers = itertools.count(_FIRST_NUMBER)

    async def before_files(self) -> None:
        """End what outlived a lost job's container, and unlock its files.

        HTCondor removes them, or takes no job (starter.sh).
        """
        with suppress(TimeoutError, PilotError):
            async with asyncio.timeout(ARRIVE_SECONDS):
                channel = await self._init_server.until(lambda _: True)
            await self._clear(channel)
            await self.unlock(channel)

    async def remove_sandboxes(self) -> None:
        """Do nothing: HTCondor's user owns the sandboxes, and starts starter.sh (condor/scripts) for each job."""

    async def clean(self, channel: Channel) -> None:
        """Remove all leftovers. First leash payload-init: the pilot can then kill it even if the job stops it."""
        try:
            await self._leash(channel)
            await self._clear(channel)
            async with asyncio.timeout(SCRUB_SECONDS):
                await self._tidy(channel, "clean", str(self._uid), *self._folders(), "--", *map(str, SHARED))
        except (ImageError, Shortage):
            raise
        except (TimeoutError, PilotError) as error:
            raise PilotError(
                f"the container cannot be prepared for the next job ({error or 'it takes too long'}); the slot takes "
                "no job until that is corrected"
            ) from error

    async def rescue(self, channel: Channel | None) -> None:
        """End processes of a lost job, and unlock its sandbox, in the next container."""
        assert channel is not None
        await self._clear(channel)
        await self.unlock(channel)

    async def _clear(self, channel: Channel) -> None:
        """End the processes of jobs whose container has ended without them.

        HTCondor runs nothing as the jobs' user: without root it cannot.

        Raises:
            PilotError: payload-init does not do it.
        """
        if not await clear(channel):
            raise PilotError("processes of the last job may have outlived their container")

    async def _leash(self, channel: Channel) -> None:
        """Ensure that payload-init can be killed, whatever the job does to it.

        The kernel refuses a terminal that another process still has (EPERM of TIOCSCTTY); then try another one.

        Raises:
            PilotError: payload-init takes no terminal.
            Shortage: the node has no free terminal.
        """
        leash = channel.leash
        for _ in range(_TERMINALS):
            if leash.is_attached:
                return
            if not leash.is_offered:
                channel.offer_leash(self._terminals.take())
            await first_of(leash.answer, channel.closed, seconds=_LEASH_SECONDS)
            if not is_set(leash.answer):
                break
        if not leash.is_attached:
            why = os.strerror(leash.answer.result()) if is_set(leash.answer) else "it does not answer"
            raise PilotError(f"payload-init takes no terminal whose hang-up could kill it: {why}")

    async def unlock(self, channel: Channel) -> None:
        """Unlock the sandbox for HTCondor's group."""
        try:
            async with asyncio.timeout(UNLOCK_SECONDS):
                await self._tidy(channel, "fence" if self._fences else "open", str(self._sandboxes))
        except (TimeoutError, PilotError) as error:
            raise stays_locked(str(error) or "it takes too long") from error

    async def _tidy(self, channel: Channel, *arguments: str) -> None:
        command = Command(
            arguments=tuple(word.encode() for word in (str(self._program), *arguments)), removed=(b"*",), directory=b"/"
        )
        stdio = Stdio()
        session = ExecSession(channel, next(self._numbers), command, stdio)
        await session.follow()
        outcome = session.ended.result()
        output = b"".join(piece.data for piece in stdio.tail).decode(errors="replace").strip()
        if not channel.still_open():
            raise PilotError("the payload container has ended")
        if outcome.code == _NO_FOLDER:
            raise ImageError(
                f"the job's image has a link or a file at {output[:100]}, where the pod needs a folder; "
                "build it with a folder there"
            )
        if outcome.code:
            raise PilotError(output[:200] or session.problem or f"tidy ended with {outcome.code}")
        for line in output.splitlines():
            logger.info("%s", line[:300])
