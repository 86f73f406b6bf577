"""condor_master as a child process."""

import asyncio
import logging
import os
import signal
from collections.abc import Mapping

from k8spilot.condor.folders import Folders
from k8spilot.errors import SurroundingsError
from k8spilot.settings import Settings

log = logging.getLogger(__name__)

LOGS = ("MasterLog", "StartLog")
"""Logs that are copied to the own output, for `kubectl logs`."""

NO_RESTART = 99
"""HTCondor's exit status of a daemon that has ended for good by its own rules (DAEMON_NO_RESTART)."""

_LOOK_SECONDS = 0.2
"""How often the logs are looked at for new lines."""

_PASSED_ON = frozenset(
    {"PATH", "LANG", "LC_ALL", "TZ"}
    # File transfer plugins fetch from the web.
    | {name for proxy in ("http_proxy", "https_proxy", "no_proxy") for name in (proxy, proxy.upper())}
    # Where the cluster's API is, is nothing that a daemon has to know, and TOKEN is a secret.
)


def environment(settings: Settings, folders: Folders, inherited: Mapping[str, str]) -> dict[str, str]:
    """Choose the environment of HTCondor's daemons, and of the docker CLI that they run.

    Little is passed on of `inherited`: beside what _PASSED_ON names, HTCondor's own overrides (_CONDOR_...).
    """
    own = {name: value for name, value in inherited.items() if name in _PASSED_ON or name.startswith("_CONDOR_")}
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        **own,
        "HOME": "/root",
        "CONDOR_CONFIG": str(folders.config),
        "DOCKER_HOST": f"unix://{settings.socket}",
        "DOCKER_CONFIG": str(folders.docker_config),
    }


class Master:
    """HTCondor's daemons: condor_master and what it starts.

    One use: start, then wait (in any task), and stop at any time after the start.
    """

    def __init__(self, settings: Settings, folders: Folders, *, program: str = "condor_master") -> None:
        self._settings = settings
        self._folders = folders
        self._program = program
        self._process: asyncio.subprocess.Process | None = None
        self._forwarder: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The master's process id, None before the start."""
        return self._process.pid if self._process else None

    async def start(self) -> None:
        """Start the master, in a session of its own, so that signals to the pilot's group do not reach it.

        Raises:
            SurroundingsError: HTCondor is not installed.
        """
        env = environment(self._settings, self._folders, os.environ)
        try:
            self._process = await asyncio.create_subprocess_exec(
                self._program,
                "-f",
                env=env,
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        except OSError as error:
            raise SurroundingsError(
                f"HTCondor's {self._program} cannot be started ({error.strerror}); "
                "use k8spilot's image, or one with HTCondor installed"
            ) from error
        log.info("condor_master started, pid %d", self._process.pid)
        await self._forward()

    async def wait(self) -> int:
        """Wait until the master has ended.

        Returns:
            Its exit status: 0 for every end in good order, negative when a signal ended it.
        """
        status = await self._started().wait()
        if (forwarder := self._forwarder) is not None:
            await asyncio.sleep(_LOOK_SECONDS * 1.5)
            if forwarder.returncode is None:
                forwarder.terminate()
            await forwarder.wait()
        return 0 if status == NO_RESTART else status

    async def stop(self, *, fast: bool = False) -> int:
        """Tell the master to end, and wait for it; return its exit status.

        Gracefully, jobs are vacated: they have `vacate_seconds` after SIGTERM. `fast`, they are killed.
        The second can follow while the first waits. The slot leaves the collector in both cases.
        """
        process = self._started()
        if process.returncode is None:
            process.send_signal(signal.SIGQUIT if fast else signal.SIGTERM)
        return await self.wait()

    def _started(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise RuntimeError("the master has not been started")
        return self._process

    async def _forward(self) -> None:
        """Copy the daemons' logs to the own output."""
        logs = [self._folders.log / name for name in LOGS]
        try:
            self._forwarder = await asyncio.create_subprocess_exec(
                "tail", "--quiet", "--follow=name", "--retry", "--lines=+1",
                f"--sleep-interval={_LOOK_SECONDS}", *logs,
                stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            log.warning("HTCondor's logs in %s are not copied here: %s", self._folders.log, error)
