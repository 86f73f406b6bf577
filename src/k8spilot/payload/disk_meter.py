"""Measurement of the disk that a job occupies.

The job owns what is measured. So a program measures it that follows no link and enters no mount
(payload_init/measure.c).
"""

import asyncio
import itertools
import logging
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from k8spilot.common.aio import output_of
from k8spilot.model.command import Command
from k8spilot.payload.command.exec_session import ExecSession
from k8spilot.payload.command.stdio import Stdio
from k8spilot.payload_init.channel import Channel

logger = logging.getLogger(__name__)

_MEASURE_SECONDS: Final = 20
"""Limit of one measurement. After it, what was counted until then is the result: less than there is."""
_END_SECONDS: Final = 5.0
_MOST_BYTES: Final = 4096
"""Most output of one measurement, which has a line for each folder. A job can write there, too, if its user
measures."""
_FIRST_NUMBER: Final = 2_000_000
"""First number of these commands of payload-init. Others count from 1 and from 1,000,000."""


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

    async def volumes(self, _channel: Channel) -> int:
        """Return the bytes that the content of the volumes occupies."""
        return await self._measure(0, [str(folder) for folder in self._folders])

    async def image(self, root: int, since: float) -> int:
        """Return the bytes of what was changed in the container's file system since then (seconds since the epoch)."""
        return await self._measure(int(since), [f"@{root}"], root)

    async def _measure(self, since: int, paths: list[str], *descriptors: int) -> int:
        process = await asyncio.create_subprocess_exec(
            str(self._program), "measure", str(since), str(_MEASURE_SECONDS), *paths,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            cwd="/", pass_fds=descriptors,
        )  # fmt: skip
        async with asyncio.timeout(_MEASURE_SECONDS + _END_SECONDS):
            output = await output_of(process)
        return _sum(output, process.returncode or 0)


class InsideDiskMeter(DiskMeter):
    """Meter of an engine that cannot enter the jobs' folders: payload-init measures, as the jobs' user.

    A job can end that program, hide folders from it, or change its result, and is then limited by the kubelet only.
    """

    def __init__(self, program: Path, folders: Sequence[Path], inside: Callable[[], Sequence[str]]) -> None:
        super().__init__(program, folders)
        self._inside = inside
        """Returns the folders in the payload container."""
        self._numbers = itertools.count(_FIRST_NUMBER)

    async def volumes(self, channel: Channel) -> int:
        """Return the same, measured in the payload container."""
        words = (str(self._program), "measure", "0", str(_MEASURE_SECONDS), *self._inside())
        command = Command(tuple(word.encode() for word in words), removed=(b"*",), directory=b"/")
        stdio = Stdio()

        async def limit(_stream: int, _data: bytes) -> None:
            if stdio.carried > _MOST_BYTES:
                stdio.close()

        stdio.sinks.append(limit)
        session = ExecSession(channel, next(self._numbers), command, stdio)
        async with asyncio.timeout(_MEASURE_SECONDS + _END_SECONDS):
            await session.follow()
        return _sum(b"".join(piece.data for piece in stdio.tail), session.ended.result().code)

    async def image(self, root: int, since: float) -> int:
        """Return 0: the root file system of the container is read-only."""
        return 0


def _sum(output: bytes, status: int) -> int:
    """Return the sum of tidy's output."""
    if len(output) > _MOST_BYTES:
        raise subprocess.SubprocessError("tidy measure wrote more than its figures")
    *counts, word = output.decode("ascii", "replace").split() or [""]
    if status or word not in ("complete", "late") or not all(re.fullmatch(r"\d{1,18}", count) for count in counts):
        raise subprocess.SubprocessError(f"tidy measure ended with {status}")
    return sum(int(count) for count in counts)


def root_of(channel: Channel) -> int | None:
    """Return a descriptor of the container's root folder, which the caller closes; None without one."""
    return None if channel.root is None else os.dup(channel.root)
