"""The slots' ads: attributes that the pilot changes while the startd runs.

`condor_update_machine_ad` adds attributes to the ads of all slots of the running startd. The startd keeps them until it
ends, and sends them to the collector. The startd evaluates START with a cached copy of the ad, up to two minutes old. A
query of the startd refreshes the cache, so each update is followed by one (ResMgr.cpp, compute_dynamic). A failure here
never ends a pilot: a failed update is a line in the log.
"""

import asyncio
import json
import logging
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final

from k8spilot.condor.configuration.values import machine_name
from k8spilot.condor.folders import Folders
from k8spilot.condor.tools import output_of
from k8spilot.model.reuse import TENANT, Tenant, tenant_of
from k8spilot.settings import Settings

logger = logging.getLogger(__name__)

Scalar = str | bool | int | float | None
Value = Scalar | Mapping[str, Mapping[str, Scalar]]
"""Value of an attribute; a mapping is an ad of ads."""

_TOOL_SECONDS: Final = 10.0
_OFFLINE: Final = "OfflineUniverses"
"""Part of the startd's log line when a starter reports that docker is gone or is back (ResMgr.cpp,
updateExtrasClassAd). A list of universes follows."""
_NEW_STARTD: Final = "Initial update sent to collector(s)"
"""Log line of a startd that has started (ResMgr.cpp, send_update)."""


class StartdAd(ABC):
    """The slot's ad, in the same container or a remote one."""

    @property
    @abstractmethod
    def is_connected(self) -> bool:
        """Whether HTCondor can be reached."""

    @property
    @abstractmethod
    def expected(self) -> bool:
        """Whether the pod has HTCondor, as far as is known."""

    @abstractmethod
    async def set(self, attributes: Mapping[str, Value]) -> bool:
        """Set attributes of the slot; None makes one undefined. Updates take effect in the order of the calls.

        Returns:
            Whether the startd has accepted them. The log has the reason if it has not.
        """

    @abstractmethod
    async def query(self, attributes: Sequence[str]) -> list[dict[str, Any]] | None:
        """Return attributes of each slot from the running startd, or None if it does not answer."""

    async def tenant(self, slot: str) -> Tenant | None:
        """Return the tenant of HTCondor's slot `slot`; None if the startd does not answer, or the slot has none."""
        return tenant_of(await self.query(TENANT) or (), slot)

    async def vacate(self, job: str, slot: str) -> bool:
        """Make the startd end the job of a slot at once, which goes back to the queue.

        Args:
            job: HTCondor's cluster.proc; another job of the slot is left alone.
            slot: HTCondor's name of the slot.

        Returns:
            Whether the startd has accepted the request.
        """
        return False


class LocalStartdAd(StartdAd):
    """The slot's ad in a startd whose tools are in this container."""

    def __init__(
        self,
        folders: Folders,
        settings: Settings,
        *,
        update: str = "condor_update_machine_ad",
        query: str = "condor_status",
        vacate: str = "condor_vacate",
    ) -> None:
        self.folders = folders
        self._settings = settings
        self._programs = (update, query)
        self._vacate = vacate
        self._update_lock = asyncio.Lock()
        self._attributes: dict[str, Value] = {}
        """Attributes that the ad should have. A restarted startd has lost them."""

    @property
    def is_connected(self) -> bool:
        """True: when HTCondor ends, the engine ends, too."""
        return True

    @property
    def expected(self) -> bool:
        """True: HTCondor runs in this container."""
        return True

    async def set(self, attributes: Mapping[str, Value]) -> bool:
        """Update the startd, and make it update the collector."""
        async with self._update_lock:
            self._attributes.update(attributes)
            try:
                async with asyncio.timeout(_TOOL_SECONDS):
                    fault = await self._update(attributes)
            except (OSError, TimeoutError) as error:
                fault = str(error) or f"the startd did not answer within {_TOOL_SECONDS:.0f} s"
        if fault:
            logger.warning("The slot's ad could not be updated with %s: %s", ", ".join(attributes), fault)
        return not fault

    async def query(self, attributes: Sequence[str]) -> list[dict[str, Any]] | None:
        """Query the startd."""
        command = (self._programs[1], "-direct", machine_name(self._settings), "-json")
        try:
            async with asyncio.timeout(_TOOL_SECONDS):
                status, output = await output_of(
                    self._settings, self.folders, *command, "-attributes", ",".join(attributes)
                )
            return [dict(ad) for ad in json.loads(output)] or None if status == 0 else None
        except (OSError, TimeoutError, ValueError, LookupError):
            return None

    async def vacate(self, job: str, slot: str) -> bool:
        """Vacate the slot if it has the job. Without a slot name condor_vacate vacates all slots."""
        try:
            async with asyncio.timeout(_TOOL_SECONDS):
                ads = await self.query(["Name", "JobId"])
                jobs = {str(ad.get("Name")): ad.get("JobId") for ad in ads or ()}
                names = [name for name in jobs if name.partition("@")[0] == slot and jobs[name] == job]
                if ads is not None and not names:
                    logger.info("The slot does not have job %s any more, and need not vacate it.", job)
                    return False
                where = names if len(jobs) > 1 else []
                fault = await self._run(self._vacate, "-fast", *where) if ads is not None else "it shows no slot"
        except (OSError, TimeoutError) as error:
            fault = str(error) or f"the startd did not answer within {_TOOL_SECONDS:.0f} s"
        if fault:
            logger.warning("HTCondor could not be made to vacate the job: %s", fault)
        return not fault

    async def handle_line(self, log: str, line: str) -> None:
        """Correct the ad when a line of the startd's log reports a lost docker or a new startd.

        A starter reports that docker is gone when a job asks for a network or port that the starter does not know.
        Docker is never gone here: docker's clients wait for an engine that restarts. Without the correction the startd
        takes no job until it restarts.
        """
        if log != "StartLog":
            return
        _, marker, universes = line.partition(_OFFLINE)
        if marker and "Docker" in universes:
            logger.info("A job made its starter report that docker is gone; correcting the slot's ad.")
            await self.set({"HasDocker": True})
        elif _NEW_STARTD in line and self._attributes:
            await self.set(dict(self._attributes))

    async def _update(self, attributes: Mapping[str, Value]) -> str:
        """Update the startd. Return the failure, or an empty string."""
        update, query = self._programs
        with tempfile.NamedTemporaryFile("w", prefix="slot-", suffix=".ad", dir=self.folders.private) as file:
            file.writelines(f"{name} = {_literal(value)}\n" for name, value in attributes.items())
            file.flush()
            fault = await self._run(update, file.name)
        return fault or await self._run(query, "-direct", machine_name(self._settings), "-af", "Name")

    async def _run(self, *command: str) -> str:
        """Run one of HTCondor's tools. Return its message if it fails, or an empty string."""
        status, output = await output_of(self._settings, self.folders, *command)
        return "" if status == 0 else " ".join(output.split()) or f"{command[0]} ended with {status}"


def _literal(value: Value | Mapping[str, Scalar]) -> str:
    """Return `value` in the old ClassAd syntax on one line. There a backslash escapes only a quote."""
    if value is None:
        return "undefined"
    if isinstance(value, bool | int | float):
        return str(value).lower()
    if isinstance(value, Mapping):
        return f"[ {'; '.join(f'{name} = {_literal(part)}' for name, part in value.items())} ]"
    plain = " ".join(value.split()).replace("\\", "/").replace('"', "'")
    return f'"{plain}"'
