"""Containers: create, start, attach, wait, kill, inspect, stats, rm, prune."""

import asyncio
import json
import logging
from http import HTTPStatus
from typing import Final

from aiohttp import web

from k8spilot.docker import views
from k8spilot.docker.answers import json_answer
from k8spilot.docker.signals import signal_number
from k8spilot.docker.state import ENGINE, JSON, Container, Engine
from k8spilot.docker.streams import frame, hung_up, take_over
from k8spilot.docker.translate import check_name, specification
from k8spilot.errors import PayloadLost, PilotError, Refused
from k8spilot.model.reference import Reference

logger = logging.getLogger(__name__)


class BadRequest(PilotError):
    """The request cannot be read."""


def _container(request: web.Request) -> Container:
    return request.app[ENGINE].find(request.match_info["id"])


async def create(request: web.Request) -> web.Response:
    """POST /containers/create: waits for the bind, and tells its errors."""
    engine = request.app[ENGINE]
    try:
        body = await request.json()
    except ValueError as error:
        raise BadRequest("the request is not JSON") from error
    name = request.query.get("name", "")
    check_name(name or "unnamed")
    if name in engine.containers:
        raise Refused(f"the container name {name} is in use; remove that container first")
    asked = specification(body, engine.execute)
    payload = engine.payload
    if asked.is_job:
        await _evict_orphans(engine)
    image = await payload.bound(Reference.parse(asked.image))
    try:
        command = asked.resolve(image)
    except BaseException:
        await payload.remove()
        raise
    container = Container(name, image, asked, payload, command)
    engine.containers[container.name] = container
    engine.remember(asked.image, image)
    return json_answer({"Id": container.identifier, "Warnings": []}, status=HTTPStatus.CREATED)


async def _evict_orphans(engine: Engine) -> None:
    """Remove jobs that HTCondor has lost sight of: a slot has one job, and its startd has just begun another."""
    for orphan in [one for one in engine.containers.values() if one.specification.is_job]:
        logger.warning("%s was never removed; it is now, since HTCondor has begun another job.", orphan.name)
        await _remove(engine, orphan)


async def start(request: web.Request) -> web.Response:
    """POST /containers/ID/start: releases the job."""
    container = _container(request)
    if container.run is not None:
        return web.Response(status=HTTPStatus.NOT_MODIFIED)
    await asyncio.shield(asyncio.ensure_future(_start(container)))  # whole or not at all, whoever hangs up
    return web.Response(status=HTTPStatus.NO_CONTENT)


async def _start(container: Container) -> None:
    try:
        container.run = await container.payload.start(container.command, container.sinks)
    except PilotError as error:
        if isinstance(error, PayloadLost):
            container.lost = error  # no error of the job's, which would be held for one
        else:
            container.error = str(error)
        container.settled.set()
        raise
    except Exception as error:
        # Whatever it is: a container that has not run must not look like one that ended well.
        container.lost = PayloadLost(f"the pilot failed to start the job ({error!r}); it goes back to the queue")
        container.settled.set()
        raise
    logger.info("%s runs.", container.name)
    container.run.ended.add_done_callback(lambda _: container.settled.set())
    if container.lost is not None:
        container.run.forsake()


async def attach(request: web.Request) -> web.StreamResponse:
    """POST /containers/ID/attach: the connection carries frames of output until the end, and then closes."""
    container = _container(request)
    wanted = {number for number, name in ((1, "stdout"), (2, "stderr")) if request.query.get(name) in ("1", "true")}
    response = await take_over(request)

    async def sink(stream: int, data: bytes) -> None:
        if stream in wanted:
            await response.write(frame(stream, data))

    container.sinks.append(sink)
    gone = asyncio.ensure_future(hung_up(request))
    settled = asyncio.ensure_future(container.settled.wait())
    try:
        await asyncio.wait([gone, settled], return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        settled.cancel()
        if sink in container.sinks:
            container.sinks.remove(sink)
    if not container.settled.is_set() and not container.sinks and container.specification.is_job:
        _forsake(container)
    return response


def _forsake(container: Container) -> None:
    """The starter's `docker start -a` has died. HTCondor would take that for the job's end, with the CLI's status."""
    container.lost = PayloadLost("HTCondor's docker client went away before the job ended; it goes back to the queue")
    if container.run is not None:
        container.run.forsake()


async def wait(request: web.Request) -> web.StreamResponse:
    """POST /containers/ID/wait: headers at once, so that the CLI goes on to start; the status at the end."""
    container = _container(request)
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    if not (request.query.get("condition", "") in ("", "not-running") and container.run is None):
        await container.settled.wait()
    await response.write(json.dumps(_ending(container)).encode())
    await response.write_eof()
    return response


def _ending(container: Container) -> JSON:
    try:
        outcome = container.outcome
    except PayloadLost as error:
        return {"StatusCode": 125, "Error": {"Message": str(error)}}
    if container.error:
        return {"StatusCode": 128, "Error": {"Message": container.error}}
    return {"StatusCode": 0 if outcome is None else outcome.code}


async def kill(request: web.Request) -> web.Response:
    """POST /containers/ID/kill?signal=."""
    container = _container(request)
    number = signal_number(request.query.get("signal", "KILL"))
    if not container.running:
        raise Refused(f"container {container.name} is not running")
    container.payload.kill(number)
    return web.Response(status=HTTPStatus.NO_CONTENT)


async def inspect(request: web.Request) -> web.Response:
    """GET /containers/ID/json."""
    return json_answer(views.inspect(_container(request)))


async def listing(request: web.Request) -> web.Response:
    """GET /containers/json."""
    everything = request.query.get("all") in ("1", "true")
    shown = [one for one in request.app[ENGINE].containers.values() if everything or one.running]
    return json_answer([views.summary(one) for one in shown])


async def stats(request: web.Request) -> web.Response:
    """GET /containers/ID/stats?stream=0: compact, since HTCondor reads it with sscanf; and the connection closes."""
    container = _container(request)
    if request.query.get("stream", "1") not in ("0", "false"):
        raise web.HTTPNotImplemented(text="a stream of stats is not served yet; ask with stream=0")
    run = container.run
    if run is None:
        raise Refused(f"container {container.name} has not been started")
    response = json_answer(views.stats(container, run.usage, run.traffic))
    response.force_close()
    return response


async def remove(request: web.Request) -> web.Response:
    """DELETE /containers/ID: ends the job if `force` is given, and frees the payload container."""
    container = _container(request)
    if container.running and request.query.get("force") not in ("1", "true"):
        raise Refused(f"container {container.name} runs; stop it first, or remove it with force")
    await _remove(request.app[ENGINE], container)
    return web.Response(status=HTTPStatus.NO_CONTENT)


async def prune(request: web.Request) -> web.Response:
    """POST /containers/prune?filters={"label": ...}: removes what does not run and has the labels."""
    engine = request.app[ENGINE]
    try:
        filters = json.loads(request.query.get("filters", "{}"))
        labels = dict(one.partition("=")[::2] for one in filters.get("label", ()))
    except (ValueError, AttributeError, TypeError) as error:
        raise BadRequest('the filters are not of the form {"label": ["name=value"]}') from error
    gone = [
        one
        for one in engine.containers.values()
        if not one.running and all(one.specification.labels.get(key) == value for key, value in labels.items())
    ]
    for container in gone:
        await _remove(engine, container)
    return json_answer({"ContainersDeleted": [one.identifier for one in gone], "SpaceReclaimed": 0})


async def _remove(engine: Engine, container: Container) -> None:
    engine.containers.pop(container.name, None)
    # Shielded: a client that goes away in the middle must not leave a container half removed.
    await asyncio.shield(asyncio.ensure_future(container.payload.remove()))
    container.settled.set()


ROUTES: Final = [
    web.post("/containers/create", create),
    web.post("/containers/prune", prune),
    web.get("/containers/json", listing),
    web.get("/containers/{id:.+}/json", inspect),  # `docker inspect` asks here for images first, slashes and all
    web.post("/containers/{id}/start", start),
    web.post("/containers/{id}/attach", attach),
    web.post("/containers/{id}/wait", wait),
    web.post("/containers/{id}/kill", kill),
    web.get("/containers/{id}/stats", stats),
    web.delete("/containers/{id}", remove),
]
