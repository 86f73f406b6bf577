"""Creation of a container, with the bind of its image."""

import asyncio
import logging
import secrets
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Final

from aiohttp import web

from k8spilot.common import logs
from k8spilot.common.aio import completed, first_of, named, side_by_side
from k8spilot.common.errors import (
    BindError,
    ClusterError,
    ImageError,
    ImageNotHere,
    ImageNotNow,
    NotHere,
    PayloadLost,
    PilotError,
    Refused,
    Untimely,
)
from k8spilot.docker.container import Container
from k8spilot.docker.create_request.devices import visible
from k8spilot.docker.create_request.job_ad import JobAd
from k8spilot.docker.create_request.specification import SlotLimits, Specification, check_name, specification
from k8spilot.docker.htcondor_socket import check_request, follow_starter
from k8spilot.docker.json_http import json_answer, json_body, keep
from k8spilot.docker.removal import clear_slot
from k8spilot.docker.store import JSON, ContainerStore, is_htcondors, store_of, subject_of
from k8spilot.model.command import Command
from k8spilot.model.disk import DiskLimits
from k8spilot.model.image import Image
from k8spilot.model.reference import Reference
from k8spilot.payload.command.stdio import Stdio
from k8spilot.payload.disk_watch import DiskShare

logger = logging.getLogger(__name__)

_NEVER: Final = Command((b"",))
"""Command of a container that will not run."""
_GO_MEMORY: Final = "GOMEMLIMIT"
"""Variable for Go's garbage collector, which works more as this limit comes near; the program does not end there."""
_UNUSED_CREDENTIALS: Final = (
    "the credentials that the job sends (docker_send_credentials) cannot be passed to the kubelet, which pulls with "
    "the site's own pull secret: ask the site for access"
)


async def create(request: web.Request) -> web.Response:
    """Serve POST /containers/create: wait for the bind, and return its errors."""
    body = await json_body(request)
    name = request.query.get("name") or f"unnamed-{secrets.token_hex(4)}"
    container = await created(store_of(request), name, body, request)
    return json_answer({"Id": container.identifier, "Warnings": []}, status=HTTPStatus.CREATED)


async def created(store: ContainerStore, name: str, body: JSON, request: web.Request) -> Container:
    """Create a container, which keeps the memory of the request until its removal.

    Args:
        store: containers of the slot.
        name: name of the container.
        body: a ContainerConfig of the Engine API.
        request: request that has the memory, from whichever client.

    Raises:
        PilotError: the container cannot be created.
    """
    of_htcondor = is_htcondors(request)
    check_name(name)
    logs.about(subject_of(name))
    container: Container | None = None
    try:
        if of_htcondor:
            check_request(name, body)
        container = await _create_as(store, name, body, of_htcondor=of_htcondor)
        container.kept = keep(request)
        _follow(store, container, of_htcondor=of_htcondor)
    except PilotError as error:
        store.listener.held(error, "create")
        if subject_of(name).slot:
            store.background.start(partial(store.job_ends.refused, error, body), f"refusal of {name}")
        raise
    finally:
        if container is None and of_htcondor:
            store.payload.give_up()  # the image that its starter has pulled: no other job will claim it
    return container


def _follow(store: ContainerStore, container: Container, *, of_htcondor: bool) -> None:
    """Look after a new container until its end."""
    if container.specification.is_job:
        store.job_ends.judge(container)
        store.background.start(lambda: store.job_ends.watch(container), f"end of {container.name}")
    if of_htcondor:
        container.returner = lambda: store.return_job(container)
        store.background.start(lambda: follow_starter(store, container), f"starter of {container.name}")
    if container.loss is not None:
        container.lose(container.loss)


async def _create_as(store: ContainerStore, name: str, body: JSON, *, of_htcondor: bool) -> Container:
    if name in store.containers or name in store.creating:
        raise Untimely(f"the container name {name} is in use; remove that container first")
    slot = store.slot_limits()
    request = specification(body, slot)
    if not request.is_job:
        store.check_room()
    signalled = store.begin_create(name)  # before the first wait: the name is taken from now on
    try:
        if request.is_job:
            ad = JobAd.read(request.environment, slot.execute)
            await _check_last_run(ad, slot, signalled)
            request = _with_limits(request, ad, slot)
            if of_htcondor:
                request = _with_memory(request)
            await clear_slot(store, but=name)
        container = await _create(store, name, request, signalled)
    finally:
        store.end_create(name)
    store.containers[container.name] = container
    store.remember(request.image, container.image)
    return container


def _with_limits(request: Specification, ad: JobAd, slot: SlotLimits) -> Specification:
    """Return the request of a job with its share of the disk and of the GPUs."""
    if slot.disk_meter is not None:
        requested = ad.disk if request.requested_disk is None else request.requested_disk
        limits = DiskLimits(slot.disk, requested, slot.pod_disk)
        request = replace(request, disk=DiskShare(slot.disk_meter, limits, slot.hold_seconds))
    if slot.gpus.usable:
        count = ad.gpus if request.gpus is None else request.gpus
        request = replace(request, environment=tuple(visible(request.environment, count)))
    return request


def _with_memory(request: Specification) -> Specification:
    """Return the request of HTCondor's job with a variable that has its memory, unless the job sets that."""
    if request.size is None or any(text.startswith(f"{_GO_MEMORY}=") for text in request.environment):
        return request
    limit = f"{_GO_MEMORY}={request.size.memory * 9 // 10}MiB"
    return replace(request, environment=(*request.environment, limit))


async def _check_last_run(ad: JobAd, slot: SlotLimits, signalled: asyncio.Future[int]) -> None:
    """Refuse a job under which the kubelet evicted its last pod for disk: it would do the same to this one.

    After its release it may run again, since this is its last machine then. A signal to the job ends the wait.
    """
    last = ad.last_run
    if last is None:
        return
    try:
        async with side_by_side(slot.evicted(last)) as (asking,):
            await first_of(asking, signalled)
            words = asking.result() if asking.done() else ""
    except ClusterError as error:
        logger.info("Whether the job's last pod was evicted is not known: %s.", error)
        return
    if words:
        raise Refused(
            f"the job used more disk than its last pod had, and Kubernetes evicted the pod ({words.strip(' .')}); set "
            "request_disk to what the job needs, or write less, and release it"
        )


async def _create(
    store: ContainerStore, name: str, request: Specification, signalled: asyncio.Future[int]
) -> Container:
    """Bind the image, and return its container.

    If the job was killed meanwhile, or its image is unavailable, return a container that will not run.
    """
    payload, reference = store.payload, Reference.parse(request.image)
    stdio = Stdio(terminal=request.terminal, reads=request.reads)
    new = partial(Container, name=name, specification=request, payload=payload, stdio=stdio)
    inert = new(image=Image(reference, None), command=_NEVER)
    bound = named(payload.bound(reference, request.size if request.is_job else None))
    container: Container | None = None
    try:
        await first_of(signalled, bound)
        if signalled.done():
            inert.kill_early(signalled.result())
            return inert
        bind = bound.result()
        container = new(image=bind.image, command=request.resolve(bind.image), bind=bind, subject=bind.subject)
    except BindError as error:
        if not request.is_job or not store.requeues(error):
            if store.unused_credentials == reference.source and isinstance(error, ImageError | ImageNotHere):
                raise ImageError(f"{error}; {_UNUSED_CREDENTIALS}") from error
            raise
        _report_loss(store, name, reference, error)
        inert.loss = PayloadLost(str(error))
        return inert
    finally:
        if not bound.done():
            bound.cancel()
            await asyncio.wait([bound])
        if container is None and not bound.cancelled() and bound.exception() is None:
            await completed(payload.remove(bound.result()))  # no container owns this bind
    return container


def _report_loss(store: ContainerStore, name: str, reference: Reference, error: BindError) -> None:
    """Report that a job is lost.

    The job is not at fault, so that it must not be held: HTCondor requeues a job whose container is lost.
    """
    logger.warning("%s goes back to the queue: %s.", name, error)
    if isinstance(error, NotHere):
        store.background.start(partial(store.listener.left, reference, error), f"refusal of {reference}")
    elif not isinstance(error, ImageNotNow | ClusterError):  # these keep the next jobs away themselves
        store.background.start(store.job_ends.lost, f"loss of {name}")
