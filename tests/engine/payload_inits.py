"""payload-init in a container of the simulator's runtime, with nothing but a listener for it."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

from k8spilot.payload_init.channel import Channel
from k8spilot.payload_init.install import SOCKET
from k8spilot.payload_init.server import PayloadInitServer
from tests.simulator.container import LocalContainer, own_uid
from tests.simulator.programs import CHECKOUT, Programs


class Containers:
    """Containers that follow one another."""

    def __init__(self, programs: Programs, folder: Path, init_server: PayloadInitServer) -> None:
        self._programs = programs
        self._folder = folder
        self.init_server = init_server
        self._started: list[LocalContainer] = []

    async def start(self, around: Sequence[str | Path] = ()) -> tuple[LocalContainer, Channel]:
        """Start one, and wait for its payload-init; the runtime's program is started by `around`."""
        programs, before = self._programs, self.init_server.current
        if around:
            program = self._folder / "around"
            program.write_text(f'#!/bin/sh\nexec {" ".join(map(str, around))} {programs.container} "$@"\n')
            program.chmod(0o755)
            programs = replace(programs, container=program)
        container = await LocalContainer.start(
            programs,
            self._folder,
            uid=own_uid(),
            image="",
            image_id="",
            mounts=[
                f"{self._folder}/exchange:/k8spilot",
                f"{programs.payload_init.parent}:/programs:ro",
                f"{programs.hello}:/hello:ro",
                "/dev:/dev",
                *(f"{path}:{path}:ro" for path in ("/bin", "/lib", "/lib64", "/usr") if Path(path).exists()),
            ],
            environment={},
            command=["/programs/payload-init", f"/k8spilot/{SOCKET}"],
        )
        self._started.append(container)
        async with asyncio.timeout(10):
            return container, await self.init_server.until(lambda channel: channel is not before)

    async def stop(self) -> None:
        """End all of them."""
        for container in self._started:
            await container.kill()


@asynccontextmanager
async def containers(programs: Programs) -> AsyncIterator[Containers]:
    """A place for them."""
    folder = Path(mkdtemp(prefix="k8spilot-"))
    folder.chmod(0o755)
    exchange = folder / "exchange"
    exchange.mkdir()
    try:
        async with PayloadInitServer(exchange / SOCKET, own_uid()) as init_server:
            found = Containers(programs, folder, init_server)
            try:
                yield found
            finally:
                await found.stop()
    finally:
        shutil.rmtree(folder)


def build_scoped(folder: Path) -> Path:
    """Compile scoped.c."""
    program = folder / "scoped"
    sources = ("tests/engine/scoped.c", "src/k8spilot/payload_init/scope.c")
    subprocess.run(["gcc", "-std=c11", "-o", program, *(CHECKOUT / one for one in sources)], check=True)
    folder.chmod(0o755)
    return program
