"""Measurement of the disk that a job occupies.

The job owns what is measured. So a program measures it that follows no link and enters no mount
(payload_init/measure.c).
"""

import asyncio
import logging
import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from k8spilot.payload_init.channel import Channel

logger = logging.getLogger(__name__)

_SECONDS: Final = 20
"""Limit of one measurement. After it, what was counted until then is the result: less than there is."""
_END_SECONDS: Final = 5.0


class DiskMeter:
    """Measures the volumes of the jobs and, if payload-init provides it, the file system of the job's container."""

    def __init__(self, program: Path, folders: Sequence[Path]) -> None:
        self._program = program
        self._folders = tuple(folders)

    def free(self, root: int | None) -> list[int]:
        """Return the free bytes of the file systems: one of each folder, and that of `root`, if there is one."""
        found = []
        for place in (*self._folders, *(() if root is None else (root,))):
            try:
                status = os.statvfs(place)
            except OSError:
                found.append(0)
            else:
                found.append(status.f_bfree * status.f_frsize)
        return found

    async def volumes(self) -> int:
        """Return the bytes that the content of the volumes occupies."""
        return await self._measure(0, [str(folder) for folder in self._folders])

    async def image(self, root: int, since: float) -> int:
        """Return the bytes of what was changed in the container's file system since then (seconds since the epoch)."""
        return await self._measure(int(since), [f"@{root}"], root)

    async def _measure(self, since: int, paths: list[str], *descriptors: int) -> int:
        process = await asyncio.create_subprocess_exec(
            str(self._program), "measure", str(since), str(_SECONDS), *paths,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            cwd="/", pass_fds=descriptors,
        )  # fmt: skip
        try:
            async with asyncio.timeout(_SECONDS + _END_SECONDS):
                output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        *counts, word = output.decode("ascii", "replace").split() or [""]
        if process.returncode or word not in ("complete", "late"):
            raise subprocess.SubprocessError(f"{self._program} measure ended with {process.returncode}")
        return sum(int(count) for count in counts)


def root_of(channel: Channel) -> int | None:
    """Return a descriptor of the container's root folder, which the caller closes; None without one."""
    return None if channel.root is None else os.dup(channel.root)
