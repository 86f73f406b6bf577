"""What the pilot tells the pool through the slot's ad, beside what is in the configuration.

`condor_update_machine_ad` adds attributes to the ad of the running startd, which holds them until it ends and sends
them to the collector. What it asks START with when a job comes is another copy, as old as two minutes: a query makes it
new (ResMgr.cpp, compute_dynamic). Nothing here can end a pilot: an ad that could not be changed is a line in the log.
"""

import asyncio
import json
import logging
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from k8spilot.condor.config import machine_name
from k8spilot.condor.environment import environment
from k8spilot.condor.folders import Folders
from k8spilot.settings import Settings

logger = logging.getLogger(__name__)

Value = str | bool | int | float | None

_SECONDS: Final = 10.0
_OFFLINE: Final = "OfflineUniverses"
"""What the startd logs when a starter has told it that docker is gone from the machine, or is back
(ResMgr.cpp, updateExtrasClassAd): a list of universes follows."""
_NEW_STARTD: Final = "Initial update sent to collector(s)"
"""What a startd logs once it is there (ResMgr.cpp, send_update)."""


class StartdAd(ABC):
    """The slot's ad, wherever HTCondor runs."""

    @property
    @abstractmethod
    def there(self) -> bool:
        """Whether there is an HTCondor to tell anything."""

    @abstractmethod
    async def set(self, attributes: Mapping[str, Value]) -> bool:
        """Set attributes of the slot; None makes one undefined. Updates take effect in the order of the calls.

        Returns:
            Whether the startd has taken them; why not, is in the log.
        """

    @abstractmethod
    async def look(self, attributes: Sequence[str]) -> dict[str, Any] | None:
        """What the running startd says of the slot; None if it does not answer."""


class LocalStartdAd(StartdAd):
    """The slot's ad in the running startd, whose tools are in this container."""

    def __init__(
        self,
        folders: Folders,
        settings: Settings,
        *,
        update: str = "condor_update_machine_ad",
        query: str = "condor_status",
    ) -> None:
        self.folders = folders
        self._settings = settings
        self._programs = (update, query)
        self._one_at_a_time = asyncio.Lock()
        self._told: dict[str, Value] = {}
        """What the ad is to have; a startd that crashed has forgotten it."""

    @property
    def there(self) -> bool:
        """HTCondor and the engine end together."""
        return True

    async def set(self, attributes: Mapping[str, Value]) -> bool:
        """Tell the startd, and have the collector told."""
        async with self._one_at_a_time:
            self._told.update(attributes)
            try:
                async with asyncio.timeout(_SECONDS):
                    fault = await self._update(attributes)
            except (OSError, TimeoutError) as error:
                fault = str(error) or f"the startd did not answer within {_SECONDS:.0f} s"
        if fault:
            logger.warning("The slot's ad does not have %s: %s", ", ".join(attributes), fault)
        return not fault

    async def look(self, attributes: Sequence[str]) -> dict[str, Any] | None:
        """Ask the startd."""
        command = (self._programs[1], "-direct", machine_name(self._settings), "-limit", "1", "-json")
        try:
            async with asyncio.timeout(_SECONDS):
                status, said = await self._said(*command, "-attributes", ",".join(attributes))
            return dict(json.loads(said)[0]) if status == 0 else None
        except (OSError, TimeoutError, ValueError, LookupError):
            return None

    async def heed(self, log: str, line: str) -> None:
        """Put the ad right when a line of the startd's log says that docker is gone, or that the startd is another one.

        That docker is gone is what starters make of a job that asks for a network or port that they do not know. It
        never is so here: docker's clients wait for an engine that is started again. The startd would take no job until
        it is restarted.
        """
        if log != "StartLog":
            return
        _, mark, universes = line.partition(_OFFLINE)
        if mark and "Docker" in universes:
            logger.info("A job made its starter say that docker is gone; the slot's ad is put right.")
            await self.set({"HasDocker": True})
        elif _NEW_STARTD in line and self._told:
            await self.set(dict(self._told))

    async def _update(self, attributes: Mapping[str, Value]) -> str:
        """Tell the startd; return what is wrong, or nothing."""
        update, query = self._programs
        with tempfile.NamedTemporaryFile("w", prefix="slot-", suffix=".ad", dir=self.folders.private) as file:
            file.writelines(f"{name} = {_literal(value)}\n" for name, value in attributes.items())
            file.flush()
            fault = await self._run(update, file.name)
        return fault or await self._run(query, "-direct", machine_name(self._settings), "-limit", "1", "-af", "Name")

    async def _run(self, *command: str) -> str:
        """Run one of HTCondor's tools; return what it says of its failure."""
        status, said = await self._said(*command)
        return "" if status == 0 else " ".join(said.split()) or f"{command[0]} ended with {status}"

    async def _said(self, *command: str) -> tuple[int, str]:
        """Run one of HTCondor's tools; return its exit status and what it says."""
        process = await asyncio.create_subprocess_exec(
            *command,
            env=environment(self._settings, self.folders, os.environ),
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
        return process.returncode or 0, said.decode(errors="replace")


def _literal(value: Value) -> str:
    """`value` in the old syntax of ClassAds, one line, in which a backslash stands for itself but before a quote."""
    if value is None:
        return "undefined"
    if isinstance(value, bool | int | float):
        return str(value).lower()
    plain = " ".join(value.split()).replace("\\", "/").replace('"', "'")
    return f'"{plain}"'
