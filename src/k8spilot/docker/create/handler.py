"""The beginning of a container: its image is bound."""

import asyncio
import logging
import secrets
from dataclasses import replace
from http import HTTPStatus
from typing import Final

from aiohttp import web

from k8spilot.common import logs
from k8spilot.common.aio import first_of
from k8spilot.common.errors import ImageError, NotNow, PayloadLost, PilotError, Untimely
from k8spilot.docker.container import Container
from k8spilot.docker.create.devices import visible
from k8spilot.docker.create.gpu_request import requested_gpus
from k8spilot.docker.create.specification import Specification, check_name, specification
from k8spilot.docker.htcondor_socket import check_request, follow_starter
from k8spilot.docker.json_http import json_answer, json_body, keep
from k8spilot.docker.removal import clear_slot, whole
from k8spilot.docker.store import JSON, STORE, ContainerStore, is_htcondors, subject_of
from k8spilot.model.command import Command
from k8spilot.model.image import Image
from k8spilot.model.reference import Reference
from k8spilot.payload.stdio import Stdio

logger = logging.getLogger(__name__)

_NEVER: Final = Command((b"",))
"""The command of a container that will not run."""
_UNUSED_CREDENTIALS: Final = (
    "the credentials that the job sends (docker_send_credentials) cannot be given to the kubelet, which pulls with the "
    "site's own pull secret: ask the site for access"
)


async def create(request: web.Request) -> web.Response:
    """POST /containers/create: waits for the bind, and tells its errors."""
    engine = request.app[STORE]
    body = await json_body(request)
    name = request.query.get("name") or f"unnamed-{secrets.token_hex(4)}"
    check_name(name)
    logs.about(subject_of(name))
    try:
        if is_htcondors(request):
            check_request(name, body)
        container = await _create_as(engine, name, body)
        container.kept = keep(request)
        if is_htcondors(request):
            engine.tasks.create_task(follow_starter(engine, container), name=f"starter of {name}")
    except PilotError as error:
        engine.listener.held(error, "create")
        raise
    return json_answer({"Id": container.identifier, "Warnings": []}, status=HTTPStatus.CREATED)


async def _create_as(engine: ContainerStore, name: str, body: JSON) -> Container:
    if name in engine.containers or name in engine.creating:
        raise Untimely(f"the container name {name} is in use; remove that container first")
    place = engine.place()
    asked = specification(body, place)
    if not asked.is_job:
        engine.check_room()
    elif place.gpus.usable:
        wanted = requested_gpus(asked.environment, place.execute) if asked.gpus is None else asked.gpus
        asked = replace(asked, environment=tuple(visible(asked.environment, wanted)))
    signalled = engine.begin_create(name)
    try:
        if asked.is_job:
            await clear_slot(engine, but=name)
        container = await _create(engine, name, asked, signalled)
    finally:
        engine.end_create(name)
    engine.containers[container.name] = container
    engine.remember(asked.image, container.image)
    return container


async def _create(engine: ContainerStore, name: str, asked: Specification, signalled: asyncio.Future[int]) -> Container:
    """Bind, and make a container of it; or one that will not run, when it was killed meanwhile or its image is away."""
    payload, reference = engine.payload, Reference.parse(asked.image)
    stdio = Stdio(terminal=asked.terminal, reads=asked.reads)
    nothing = Container(name, Image(reference, None), asked, payload, _NEVER, stdio)
    binding = asyncio.ensure_future(payload.bound(reference))
    container: Container | None = None
    try:
        await first_of(signalled, binding)
        if signalled.done():
            nothing.kill_early(signalled.result())
            return nothing
        bind = binding.result()
        container = Container(name, bind.image, asked, payload, asked.resolve(bind.image), stdio, bind, bind.subject)
    except ImageError as error:
        if engine.unused_credentials == reference.source:
            raise ImageError(f"{error}; {_UNUSED_CREDENTIALS}") from error
        raise
    except NotNow as error:
        if not asked.is_job:
            raise
        # Nothing is wrong with the job, so it must not be held: HTCondor gives one back whose container is lost.
        logger.warning("%s goes back to the queue: %s.", name, error)
        nothing.lose(PayloadLost(str(error)))
        return nothing
    finally:
        if not binding.done():
            binding.cancel()
            await asyncio.wait([binding])
        if container is None and not binding.cancelled() and binding.exception() is None:
            await whole(payload.remove(binding.result()))  # it was bound for nobody
    return container
