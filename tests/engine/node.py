"""The engine of a pilot pod on the lab's node."""

import asyncio
import json
import os
import select
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from lab import node, pilot
from lab.api import Lab
from lab.errors import LabError
from lab.patience import scaled
from lab.settings import PILOT_NAMESPACE
from tests.engine.rings import Engine
from tests.runner.pilots import Configuration

SOCKET: Final = Path("/run/k8spilot/docker.sock")
_PATIENCE_S: Final = scaled(60.0)
_TAGS: Final = {"debian": "forky"}


class OnNode(Engine):
    """In pod `name`, over a socket of this machine at `path`."""

    def __init__(self, lab: Lab, name: str, path: Path) -> None:
        super().__init__(path)
        self.tells_of_hang_ups = not path.is_relative_to(tempfile.gettempdir())  # kubectl exec's bridge does not
        self._lab = lab
        self._name = name

    def image(self, name: str) -> str:
        """In the lab's registry."""
        return f"{self._lab.registry}/{name}:{_TAGS.get(name, 'latest')}"

    async def processes(self) -> list[str]:
        """From the pilot container, which shares the pod's process namespace."""
        command = ("exec", "-n", PILOT_NAMESPACE, self._name, "-c", "pilot", "--", "ps", "-e", "-o", "uid=,args=")
        rows = (await asyncio.to_thread(self._lab.kubectl, *command)).splitlines()
        found = [row.split(maxsplit=1) for row in rows]
        return [command for uid, command in found if uid == "65534" and "payload-init" not in command]

    async def pod(self) -> dict[str, Any]:
        """From the API server."""
        command = ("get", "pod", self._name, "-n", PILOT_NAMESPACE, "-o", "json")
        found: dict[str, Any] = json.loads(await asyncio.to_thread(self._lab.kubectl, *command))
        return found


ONLY_ENGINE: Final = {"K8SPILOT_SERVICES": "engine"}


def await_engine(lab: Lab, name: str) -> None:
    """Wait until the pilot serves; a container runs before its program does. Raises LabError."""
    client = ("docker", "--host", f"unix://{SOCKET}", "version")
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            lab.kubectl("exec", "-n", PILOT_NAMESPACE, name, "-c", "pilot", "--", *client)
        except LabError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


SHARED: Final = Configuration("engine", ONLY_ENGINE, ready=await_engine)
"""The pilot of all tests that need nothing special of it."""


class NodePod:
    """A pilot pod that only serves the engine, for the tests of one process, one after another."""

    def __init__(self, lab: Lab, name: str, environment: Mapping[str, str] | None = None) -> None:
        self._lab = lab
        self._name = name
        self._environment = {**ONLY_ENGINE, **(environment or {})}
        self._bridge: Path | None = None

    @contextmanager
    def deployed(self) -> Iterator[None]:
        """Deploy it, and remove it at the end.

        Raises:
            AssertionError: at the end, when the pilot has logged a fault of its own.
        """
        pilot.deploy(self._lab, self._name, self._environment)
        try:
            await_engine(self._lab, self._name)
            with self.without_faults():
                yield
        finally:
            pilot.delete(self._lab, self._name)  # before what its connections go through

    @contextmanager
    def without_faults(self) -> Iterator[None]:
        """Use the pod, which runs.

        Raises:
            AssertionError: at the end, when the pilot has logged a fault of its own meanwhile.
        """
        began = datetime.now(UTC).isoformat(timespec="seconds")
        yield
        of_pilot = ("-n", PILOT_NAMESPACE, self._name, "-c", "pilot")
        log = self._lab.kubectl("logs", *of_pilot, f"--since-time={began}")
        faults = [line for line in log.splitlines() if " ERROR " in line]
        assert not faults, faults

    @contextmanager
    def reached(self) -> Iterator[Path]:
        """A socket of this machine that leads to the engine's."""
        if (path := self._on_this_machine()) is not None:
            yield path
            return
        with tempfile.TemporaryDirectory(prefix="k8spilot-") as folder:
            path = Path(folder) / "docker.sock"
            with _bridge(path, self._dial()):
                yield path

    def engine(self, path: Path) -> OnNode:
        """The engine, over `path`."""
        return OnNode(self._lab, self._name, path)

    def _dial(self) -> list[str]:
        command = ("docker", "--host", f"unix://{SOCKET}", "system", "dial-stdio")
        where = ("exec", "-i", "-n", PILOT_NAMESPACE, self._name, "-c", "pilot", "--")
        return [str(word) for word in (*node.kubectl(self._lab.settings), *where, *command)]

    def _on_this_machine(self) -> Path | None:
        """The socket in the pilot container's root, when the node is this machine: hundreds of execs are slow."""
        if self._lab.settings.kubeconfig is not None:
            return None
        query = ("get", "pod", self._name, "-n", PILOT_NAMESPACE, "-o", "jsonpath={.metadata.uid}")
        uid = self._lab.kubectl(*query)
        for process in Path("/proc").glob("[0-9]*"):
            try:
                path = process / "root" / SOCKET.relative_to("/")
                if uid in (process / "cgroup").read_text().replace("_", "-") and path.is_socket():
                    return path
            except OSError:  # it has ended
                continue
        return None


@contextmanager
def _bridge(path: Path, command: list[str]) -> Iterator[None]:
    """Listen at `path`; each connection becomes standard input and output of one `command`."""
    with socket.socket(socket.AF_UNIX) as listening, ThreadPoolExecutor(max_workers=64) as connections:
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            with suppress(OSError):  # shut down
                while True:
                    connections.submit(_connect, listening.accept()[0], command)

        connections.submit(serve)
        try:
            yield
        finally:
            listening.shutdown(socket.SHUT_RDWR)


def _connect(connection: socket.socket, command: list[str]) -> None:
    """Run `command` for as long as both it and whoever has connected are there."""
    with connection, subprocess.Popen(command, stdin=connection.fileno(), stdout=connection.fileno()) as process:
        ends = select.poll()
        ends.register(connection, 0)  # hangs up
        ends.register(pidfd := os.pidfd_open(process.pid), select.POLLIN)
        ends.poll()
        os.close(pidfd)
        process.terminate()
