"""The end of a container: what it holds is given back."""

import asyncio
import itertools
import logging
import signal
from collections.abc import Awaitable
from typing import Any

from k8spilot.common.errors import PayloadLost
from k8spilot.docker.container import Container
from k8spilot.docker.store import ContainerStore

logger = logging.getLogger(__name__)


async def remove(engine: ContainerStore, container: Container) -> None:
    """Free the payload container, with whatever runs in it; return when that is done.

    Raises:
        PilotError: that failed.
    """
    if engine.containers.get(container.name) is not container:  # somebody else has done so: it holds nothing now
        await container.removed.wait()
        return
    del engine.containers[container.name]
    engine.leaving[container.identifier] = container
    engine.forget_executions(container)
    await whole(_give_back(engine, container))


async def _give_back(engine: ContainerStore, container: Container) -> None:
    try:
        if container.bind is not None:
            await container.payload.remove(container.bind)
    except BaseException as error:
        if container.running:
            container.lose(PayloadLost(f"the pilot failed to end the job ({error!r}); it goes back to the queue"))
        raise
    finally:  # also after a failure: what waits for the removal must not wait for ever
        del engine.leaving[container.identifier]
        engine.memory.give(container.kept)
        container.end_removal()


async def whole(work: Awaitable[Any]) -> None:
    """Do `work` to its end, even when the client goes away in the middle; then nobody hears of its failure."""
    doing = asyncio.ensure_future(work)
    doing.add_done_callback(lambda done: done.cancelled() or done.exception())
    await asyncio.shield(doing)


async def clear_slot(engine: ContainerStore, but: str = "", why: str = "HTCondor has begun another job") -> None:
    """Remove whatever has the payload container: a slot has one job, and its startd has just begun another.

    Jobs that HTCondor has lost sight of are meant, and what somebody runs by hand, whatever its name and labels are.

    Args:
        engine: the containers.
        but: name of the container that is created for the new job. What is created after it is not looked at.
        why: the reason, for the log.

    Raises:
        PilotError: something cannot be removed.
    """
    for name, creation in itertools.takewhile(lambda one: one[0] != but, list(engine.creating.items())):
        logger.warning("%s is not created, since %s.", name, why)
        engine.kill_early(name, signal.SIGKILL)
        await creation.ended.wait()
    for left in list(engine.containers.values()):
        logger.warning("%s is removed, since %s.", left.name, why)
        await remove(engine, left)
    for last in list(engine.leaving.values()):  # whoever removed it may not have waited for that
        await last.removed.wait()
