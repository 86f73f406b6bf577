"""Memory of the engine after repeated failures of the API server: nothing of them is left."""

import asyncio
import gc
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from k8spilot.common.errors import PilotError
from k8spilot.kube import watch_pace
from tests.engine.faulty import FAULTS, Place
from tests.engine.rings import eventually

ROUNDS = 8
FAULT_SECONDS = 0.5


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The pilot tries again soon, and what it logs is kept nowhere: pytest would keep the errors in it, too.

    By `logging.disable`, which makes loggers forget what they know: one that has logged before, in another test of this
    process, would go on.
    """
    monkeypatch.setattr(watch_pace, "_BACK_OFF_SECONDS", (0.1, 0.4))
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def kept() -> Counter[str]:
    """Return the numbers of the engine's errors, of tasks, and of open files.

    With an error goes a chain of others, their frames, and what is in these.
    """
    gc.collect()
    errors = sum(issubclass(type(one), PilotError) for one in gc.get_objects())
    tasks, files = len(asyncio.all_tasks()), len(list(Path("/proc/self/fd").iterdir()))
    return Counter({"errors": errors, "tasks": tasks, "files": files})


async def outage(place: Place, fault: str) -> None:
    """The API server fails for a moment; a job runs after it."""
    FAULTS[fault](place)
    await asyncio.sleep(FAULT_SECONDS)
    place.is_well()
    await asyncio.wait_for(place.simulator.cluster.pilot.pod.connectivity.over(), 20)
    assert (await place.engine.shell(place.engine.image("busybox"), "exit 3")).code == 3


@pytest.mark.slow
@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("fault", ["refuses connections", "hangs", "is broken", "cuts watches", "has forgotten"])
async def test_outages_leave_nothing_in_the_engine(place: Place, fault: str) -> None:
    await outage(place, fault)
    before = kept()
    for _ in range(ROUNDS):
        await outage(place, fault)

    async def is_back() -> bool:
        return max((kept() - before).values(), default=0) < ROUNDS

    try:
        await eventually(is_back)
    except TimeoutError:
        pytest.fail(f"{ROUNDS} outages have left {dict(kept() - before)}")
