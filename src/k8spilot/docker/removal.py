"""End of a container: the release of its resources."""

import itertools
import logging
import signal

from k8spilot.common.aio import completed
from k8spilot.common.errors import PayloadLost
from k8spilot.docker.container import Container
from k8spilot.docker.store import ContainerStore

logger = logging.getLogger(__name__)


async def remove(store: ContainerStore, container: Container) -> None:
    """Remove a container, with all that runs in it, and free the payload container.

    Raises:
        PilotError: it failed.
    """
    if store.containers.get(container.name) is not container:  # it was removed by another request
        await container.removed.wait()
        return
    if container.active:
        container.record_signal()
    del store.containers[container.name]
    store.leaving[container.identifier] = container
    store.forget_executions(container)
    await completed(_give_back(store, container))


async def _give_back(store: ContainerStore, container: Container) -> None:
    container.end_return()
    try:
        if container.bind is not None:
            await container.payload.remove(container.bind)
    except BaseException as error:
        if container.running:
            container.lose(PayloadLost(f"the pilot failed to end the job ({error!r}); it goes back to the queue"))
        raise
    finally:  # also after a failure: what waits for the removal must not wait for ever
        del store.leaving[container.identifier]
        store.memory.give(container.kept)
        container.end_removal()


async def clear_slot(store: ContainerStore, but: str = "", why: str = "HTCondor has begun another job") -> None:
    """Remove all containers of the slot: a slot has one job, and its startd has just begun another.

    These are jobs that HTCondor has lost, and containers that people run by hand, whatever their names and labels.

    Args:
        store: store of the containers.
        but: name of the container that is being created for the new job. Later ones are ignored.
        why: reason for the log.

    Raises:
        PilotError: a container cannot be removed.
    """
    for name, creation in itertools.takewhile(lambda item: item[0] != but, list(store.creating.items())):
        logger.warning("%s is not created, because %s.", name, why)
        store.kill_early(name, signal.SIGKILL)
        await creation.ended.wait()
    for left in list(store.containers.values()):
        logger.warning("Removing %s, because %s.", left.name, why)
        await remove(store, left)
    for last in list(store.leaving.values()):  # the request that removed it may not have waited for that
        await last.removed.wait()
