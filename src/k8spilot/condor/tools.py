"""HTCondor's command line tools, run with the daemons' own configuration."""

import asyncio
import os

from k8spilot.common import aio
from k8spilot.condor.environment import environment
from k8spilot.condor.folders import Folders
from k8spilot.settings import Settings


async def output_of(settings: Settings, folders: Folders, *command: str) -> tuple[int, str]:
    """Run one of HTCondor's tools. Return its exit status and its output; a caller's time limit kills it.

    Raises:
        OSError: it cannot be run.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environment(settings, folders, os.environ),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    output = await aio.output_of(process)
    return process.returncode or 0, output.decode(errors="replace")
