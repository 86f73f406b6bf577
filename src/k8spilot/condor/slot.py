"""What the pilot tells the pool through the slot's ad, beside what is in the configuration.

`condor_update_machine_ad` adds attributes to the ad of the running startd, which holds them until it ends and sends
them to the collector. What it asks START with when a job comes is another copy, as old as two minutes: a query makes it
new (ResMgr.cpp, compute_dynamic). Nothing here can end a pilot: an ad that could not be changed is a line in the log.
"""

import asyncio
import logging
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from k8spilot.condor.config import machine_name
from k8spilot.condor.folders import Folders
from k8spilot.condor.master import environment
from k8spilot.settings import Settings

logger = logging.getLogger(__name__)

Value = str | bool | int | float | None

_SECONDS: Final = 10.0
_PATIENCE_SECONDS: Final = 60.0
_OFFLINE: Final = b"OfflineUniverses"
"""What the startd logs when a starter has told it that docker is gone from the machine, or is back
(ResMgr.cpp, updateExtrasClassAd): a list of universes follows."""


class SlotAd:
    """The slot's ad in the running startd."""

    def __init__(
        self,
        folders: Folders,
        settings: Settings,
        *,
        update: str = "condor_update_machine_ad",
        query: str = "condor_status",
    ) -> None:
        self._folders = folders
        self._settings = settings
        self._programs = (update, query)
        self._one_at_a_time = asyncio.Lock()

    async def set(self, attributes: Mapping[str, Value]) -> bool:
        """Set attributes of the slot; None makes one undefined. Updates take effect in the order of the calls.

        Returns:
            Whether the startd has taken them; why not, is in the log.
        """
        async with self._one_at_a_time:
            try:
                async with asyncio.timeout(_SECONDS):
                    fault = await self._update(attributes)
            except (OSError, TimeoutError) as error:
                fault = str(error) or f"the startd did not answer within {_SECONDS:.0f} s"
        if fault:
            logger.warning("The slot's ad does not have %s: %s", ", ".join(attributes), fault)
        return not fault

    async def keep_docker(self) -> None:
        """Put HasDocker right, until cancelled, whenever a starter has told the startd that docker is gone.

        That is what starters make of a job that asks for a network or port that they do not know. It never is so here:
        engine and startd end together. The startd would take no job until it is started again.
        """
        while True:
            with suppress(OSError):
                await self._watch()
            await asyncio.sleep(_PATIENCE_SECONDS)

    async def _watch(self) -> None:
        """Follow the startd's log, of which one line in thousands matters, for as long as tail(1) runs."""
        tail = await asyncio.create_subprocess_exec(
            "tail", "--follow=name", "--retry", "--lines=+1", self._folders.log / "StartLog",
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        assert tail.stdout is not None
        try:
            while line := await _line(tail.stdout):
                _, mark, universes = line.partition(_OFFLINE)
                if mark and b"Docker" in universes:
                    logger.info("A job made its starter say that docker is gone; the slot's ad is put right.")
                    await self.set({"HasDocker": True})
        finally:
            with suppress(ProcessLookupError):
                tail.kill()
            await tail.wait()

    async def _update(self, attributes: Mapping[str, Value]) -> str:
        """Tell the startd; return what is wrong, or nothing."""
        update, query = self._programs
        with tempfile.NamedTemporaryFile("w", prefix="slot-", suffix=".ad", dir=self._folders.private) as file:
            file.writelines(f"{name} = {_literal(value)}\n" for name, value in attributes.items())
            file.flush()
            fault = await self._run(update, file.name)
        return fault or await self._run(query, "-direct", machine_name(self._settings), "-limit", "1", "-af", "Name")

    async def _run(self, *command: str) -> str:
        """Run one of HTCondor's tools; return what it says of its failure."""
        process = await asyncio.create_subprocess_exec(
            *command,
            env=environment(self._settings, self._folders, os.environ),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            said, _ = await process.communicate()
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode == 0:
            return ""
        return " ".join(said.decode(errors="replace").split()) or f"{command[0]} ended with {process.returncode}"


async def _line(stream: asyncio.StreamReader) -> bytes:
    """The next line, or the part of a longer one that fits."""
    try:
        return await stream.readuntil(b"\n")
    except asyncio.IncompleteReadError as error:
        return error.partial
    except asyncio.LimitOverrunError as error:
        return await stream.readexactly(error.consumed)


def _literal(value: Value) -> str:
    """`value` in the old syntax of ClassAds, one line, in which a backslash stands for itself but before a quote."""
    if value is None:
        return "undefined"
    if isinstance(value, bool | int | float):
        return str(value).lower()
    plain = " ".join(value.split()).replace("\\", "/").replace('"', "'")
    return f'"{plain}"'
