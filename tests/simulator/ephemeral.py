"""Ephemeral containers: added to the pod, run as local processes, never taken away.

What a node's runtime makes of a container's environment and mounts, `gives` says: the environment in which NVML finds
devices, or the words in which the runtime refuses to start it.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tests.simulator.api_server import ApiServer, Pod

Spec = dict[str, Any]


class Ephemerals:
    """The kubelet's part of it."""

    def __init__(self, server: ApiServer, gives: Callable[[Spec], dict[str, str] | str]) -> None:
        self._server = server
        self.gives = gives
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self.specs: list[Spec] = []
        """All that were started, or were to be."""

    async def run(self) -> None:
        """Start what is added, tell how it ends, until cancelled; then kill all of it."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    pod = await self._server.until(lambda pod: len(_specs(pod)) > len(self.specs), seconds=3600)
                    spec = _specs(pod)[len(self.specs)]
                    self.specs.append(spec)
                    tasks.create_task(self._run(spec))
        finally:
            for process in self.processes.values():
                with suppress(ProcessLookupError):
                    process.kill()
                await process.communicate()  # an unread pipe would outlive the test's event loop

    async def _run(self, spec: Spec) -> None:
        given = self.gives(spec)
        if isinstance(given, str):
            ended = {"reason": "StartError", "exitCode": 128, "message": given}
            await self._tell(spec, {"terminated": ended})
            return
        user = spec["securityContext"]["runAsUser"]
        process = self.processes[spec["name"]] = await asyncio.create_subprocess_exec(
            *become(user),
            *spec["command"],
            *spec["args"],
            env={"PATH": os.environ["PATH"], **{one["name"]: one["value"] for one in spec["env"]}, **given},
            stderr=asyncio.subprocess.PIPE,
        )
        await self._tell(spec, {"running": {}})
        _, said = await process.communicate()
        assert process.returncode is not None
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        ended = {"reason": "Completed" if code == 0 else "Error", "exitCode": code, "message": said.decode()[-500:]}
        await self._tell(spec, {"terminated": ended})

    async def _tell(self, spec: Spec, state: dict[str, Any]) -> None:
        def change(pod: Pod) -> None:
            statuses = pod["status"].setdefault("ephemeralContainerStatuses", [])
            statuses[:] = [one for one in statuses if one["name"] != spec["name"]]
            statuses.append({"name": spec["name"], "image": spec["image"], "state": state})

        await self._server.update(change)


def become(user: int) -> list[str]:
    """Return a command prefix for this user with the right to read all files: Python can be in root's own folder."""
    more = "+dac_read_search"
    own = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    return [*own, f"--inh-caps={more}", f"--ambient-caps={more}", "--"]


def _specs(pod: Pod) -> list[Spec]:
    return list(pod["spec"].get("ephemeralContainers", []))
