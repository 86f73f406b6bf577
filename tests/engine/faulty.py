"""Engines whose API server fails when it is told to, and the ways in which it does."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from k8spilot.kube.client import Access
from lab import pki
from lab.faulty import Fault, serving
from lab.faulty_api import FaultyApi, server_side
from tests.engine.client import Job
from tests.engine.rings import Engine, Simulated, simulated
from tests.simulator.api_server import ApiServer
from tests.simulator.programs import Programs

JOB: Final[dict[str, Any]] = {"Labels": {"org.htcondorproject": "True"}}
"""As HTCondor marks its containers."""
SCRIPT: Final = "trap 'exit 5' TERM; echo ready; while :; do sleep 0.05; done"

NO_RIGHT: Final = (
    "Forbidden",
    'pods "pilot" is forbidden: User "pilot" cannot patch resource "pods" in API group "" in the namespace "pilots"',
)
"""As the real API server says it (kubectl patch --as)."""


@dataclass
class Place:
    """An engine whose API server can be broken."""

    engine: Engine
    api: FaultyApi
    strangers: Path
    """Folder with an API server's certificate of an authority that the pilot does not trust."""
    own: Path
    """Folder with the right one."""

    @property
    def simulator(self) -> Simulated:
        """The engine, where it is simulated."""
        assert isinstance(self.engine, Simulated)
        return self.engine

    def is_well(self) -> None:
        """No fault happens any more."""
        self.api.presents(self.own / "apiserver.crt", self.own / "apiserver.key")
        self.api.is_well()


def _answers(status: int, reason: str = "Failure", verb: str = "", **more: Any) -> Callable[[Place], None]:
    error = (reason, f"told to answer {status}")

    def fail(place: Place) -> None:
        place.api.fails(Fault(status=status, error=error, verb=verb, **more))
        place.api.cuts()

    return fail


def _hangs(place: Place) -> None:
    place.api.fails(Fault(hang=True))
    place.api.cuts()


def _cuts_watches(place: Place) -> None:
    place.api.fails(Fault(verb="watch", cut=True))
    place.api.cuts()


def _shows_another_certificate(place: Place) -> None:
    place.api.presents(place.strangers / "apiserver.crt", place.strangers / "apiserver.key")
    place.api.cuts()


FAULTS: Final[dict[str, Callable[[Place], None]]] = {
    "refuses connections": lambda place: place.api.goes_away(),
    "hangs": _hangs,
    "hangs in the middle of a body": lambda place: place.api.fails(Fault(silent=True)),
    "limits the rate": _answers(429, "TooManyRequests", headers={"Retry-After": "1"}),
    "is broken": _answers(500, "InternalError"),
    "is unavailable": _answers(503, "ServiceUnavailable"),
    "does not know the token": _answers(401, "Unauthorized"),
    "shows another certificate": _shows_another_certificate,
    "cuts watches": _cuts_watches,
    "has forgotten": _answers(410, "Expired", verb="watch"),
    "sees conflicts": _answers(409, "Conflict", verb="patch", times=4),
    "loses answers": lambda place: place.api.fails(Fault(verb="patch", cut=True)),
    "answers late": lambda place: place.api.fails(Fault(verb="patch", taken=True, delay=1.0)),
    "takes requests late": lambda place: place.api.fails(Fault(verb="patch", delay=1.0)),
    "has taken the right away": lambda place: place.api.fails(Fault(verb="patch", status=403, error=NO_RIGHT)),
}
"""Faults of the API server, by name."""


@asynccontextmanager
async def faulty_simulator(programs: Programs, folder: Path, **settings: Any) -> AsyncIterator[Place]:
    """A simulated pod of one's own; its API server has TLS, and is behind a proxy that can fail."""
    for name in ("own", "strangers"):
        (folder / name).mkdir()
        pki.new_server(folder / name)
    (folder / "own/token").write_text("old")
    tls = server_side(folder / "own/apiserver.crt", folder / "own/apiserver.key")

    with serving(FaultyApi("", "127.0.0.1", tls=tls)) as api:

        def access(server: ApiServer) -> Access:
            api.upstream = server.url
            return Access(f"https://{api.address}", folder / "own")

        chosen = {"idle_after_seconds": 0.2, "access": access, **settings}
        async with simulated(programs, **chosen) as engine:
            place = Place(engine, api, folder / "strangers", folder / "own")
            try:
                yield place
            finally:
                place.is_well()


async def running(engine: Simulated) -> Job:
    """A job that runs until it is told to end, with 5."""
    job = await engine.begin_shell(engine.image("busybox"), SCRIPT, **JOB)
    await job.until_output(b"ready")
    return job


async def ends_well(job: Job) -> None:
    """Send the job SIGTERM, and check that it ends with the exit code of its handler."""
    await asyncio.sleep(0.3)
    await job.kill("TERM")
    assert (await job.result()).code == 5


async def so(found: bool) -> bool:
    """For what waits for a coroutine."""
    return found


async def lost(engine: Simulated, name: str) -> str:
    """Return the error of inspect by which HTCondor takes a container for lost and puts its job back into the queue."""
    answer = await engine.ask("GET", f"/containers/{name}/json")
    assert answer.status == 500
    return answer.message
