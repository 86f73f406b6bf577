"""Handlers of containers: start, wait, kill, pause, inspect and list (create: creation.py; rm: removal.py)."""

import asyncio
import contextlib
import json
import logging
import math
import signal
from http import HTTPStatus
from typing import Final

from aiohttp import web

from k8spilot.common import logs
from k8spilot.common.aio import completed, first_of, is_set_within, side_by_side
from k8spilot.common.errors import PayloadLost, PilotError, Refused
from k8spilot.common.untrusted_json import read_json
from k8spilot.docker import creation, removal, serializers
from k8spilot.docker.container import Container
from k8spilot.docker.json_http import BadRequest, flag, json_answer
from k8spilot.docker.signals import signal_number
from k8spilot.docker.store import JSON, ContainerStore, store_of
from k8spilot.model.container_state import ContainerState
from k8spilot.payload.run import Run

logger = logging.getLogger(__name__)

_REPORT_SECONDS: Final = 5.0
"""Seconds to wait for payload-init's report that a released command runs. It usually takes milliseconds."""


def find(request: web.Request) -> Container:
    """Return the container that the path names. Log lines of the request are about its job."""
    container = store_of(request).find(request.match_info["id"])
    logs.about(container.subject)
    return container


async def start(request: web.Request) -> web.Response:
    """Serve POST /containers/ID/start: release the job."""
    container = find(request)
    if container.run is not None:
        return web.Response(status=HTTPStatus.NOT_MODIFIED)
    await begin(store_of(request), container)
    return web.Response(status=HTTPStatus.NO_CONTENT)


async def begin(store: ContainerStore, container: Container) -> None:
    """Release the job of a created container, and wait until its command runs.

    Raises:
        PilotError: it cannot be started.
    """
    if container.state is ContainerState.CREATED and not container.is_returning:
        container.begin_start()
        await completed(_start(store, container))


async def _start(store: ContainerStore, container: Container) -> None:
    try:
        run = await _released(container)
        if run is None:
            return
        await run.begun()
    except PilotError as error:
        # In a later state the container has run, or its end is final.
        if container.state is ContainerState.STARTING:
            if isinstance(error, PayloadLost):
                if await _is_vacated(container, error):  # not an error of the job, which HTCondor would hold for one
                    return
            else:
                container.fail(error)
                store.listener.held(error, "start")
        raise
    except Exception as error:
        # For any error: a container that has not run must not look like a successful one.
        if container.state is ContainerState.STARTING:
            container.lose(
                PayloadLost(f"the pilot failed to start the job ({error!r}); the job goes back to the queue")
            )
        raise
    logger.info("%s runs.", container.name)
    if container.specification.removes_itself:
        store.background.start(lambda: _remove_at_end(store, container), f"--rm of {container.name}")
    if container.deferred is not None:
        with contextlib.suppress(Refused, PayloadLost):  # it has ended
            run.kill(container.deferred)


async def _is_vacated(container: Container, error: PayloadLost) -> bool:
    """Lose the container. Return whether HTCondor has vacated its job, so that its end is a signal."""
    container.lose(error)
    await container.settled.wait()
    return container.state is ContainerState.KILLED


async def _released(container: Container) -> Run | None:
    """Release its command, unless it is killed first; return None then."""
    async with side_by_side(_release(container), container.settled.wait()) as (releasing, settled):
        await first_of(releasing, settled)
        if container.state is ContainerState.KILLED:
            return None
        if not releasing.done():
            raise Refused(f"container {container.name} was removed before it started")
        run: Run = releasing.result()
        return run


async def _release(container: Container) -> Run:
    """Release the command, and change the states of container and payload container in the same moment."""
    assert container.bind is not None
    run = await container.payload.start(
        container.bind, container.command, container.stdio, container.specification.disk
    )
    container.release(run)
    return run


async def _remove_at_end(store: ContainerStore, container: Container) -> None:
    await container.settled.wait()
    if store.containers.get(container.name) is container:
        try:
            await removal.remove(store, container)
        except PilotError as error:
            logger.warning("%s cannot be removed: %s.", container.name, error)


async def wait(request: web.Request) -> web.StreamResponse:
    """Serve POST /containers/ID/wait: headers at once, so that the CLI continues with start; the status at the end."""
    container = find(request)
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    condition = request.query.get("condition", "")
    if condition == "removed":
        await container.removed.wait()
    elif not (condition in ("", "not-running") and container.run is None):
        await container.settled.wait()
    await response.write(json.dumps(ending(container)).encode())
    await response.write_eof()
    return response


def ending(container: Container) -> JSON:
    """Return the answer to `wait`: the status, or 125 with an error for a container that has none of its own."""
    try:
        outcome = container.outcome
    except PayloadLost as error:
        return {"StatusCode": 125, "Error": {"Message": str(error)}}
    if container.error:
        return {"StatusCode": 128, "Error": {"Message": container.error}}
    return {"StatusCode": 0 if outcome is None else outcome.code}


async def kill(request: web.Request) -> web.Response:
    """Serve POST /containers/ID/kill?signal=."""
    send(store_of(request), request.match_info["id"], signal_number(request.query.get("signal", "KILL")))
    return web.Response(status=HTTPStatus.NO_CONTENT)


def send(store: ContainerStore, name: str, number: int) -> None:
    """Send a signal to a container, also to one that is not created yet.

    Raises:
        PilotError: there is no such container, or it does not run.
    """
    if not store.kill_early(name, number):
        _signal(store.find(name), number)


def _signal(container: Container, number: int) -> None:
    if container.is_returning:
        if number == signal.SIGKILL:  # of a starter that vacates its job; others may be the user's own
            container.kill_lost(number)
        return
    container.record_signal()
    match container.state:
        case ContainerState.RUNNING | ContainerState.FORSAKEN:
            running(container).kill(number)
        case ContainerState.CREATED | ContainerState.STARTING if container.specification.is_job:
            # Also while it starts: its command waits for the pod's status, a minute if the API server is unavailable.
            container.kill_early(number)
        case ContainerState.STARTING:
            container.defer(number)
        case _:
            raise Refused(f"container {container.name} is not running")


async def pause(request: web.Request) -> web.Response:
    """Serve POST /containers/ID/pause: stop all its processes."""
    (await begun(find(request))).pause()
    return web.Response(status=HTTPStatus.NO_CONTENT)


async def resume(request: web.Request) -> web.Response:
    """Serve POST /containers/ID/unpause."""
    (await begun(find(request))).resume()
    return web.Response(status=HTTPStatus.NO_CONTENT)


def running(container: Container) -> Run:
    """Return the run of a container.

    Raises:
        Refused: it does not run.
    """
    if container.run is None or not container.running:
        raise Refused(f"container {container.name} is not running")
    return container.run


async def begun(container: Container) -> Run:
    """Wait, for a limited time, until the command of a container has begun, and return its run.

    A client can see the command's first output before payload-init's report arrives that the command runs. A job can
    withhold that report, so the wait has a limit. After the limit the run refuses to pause, and to execute a command.

    Raises:
        Refused: the container does not run.
    """
    run = running(container)
    with contextlib.suppress(PilotError, TimeoutError):
        async with asyncio.timeout(_REPORT_SECONDS):
            await run.begun()
    return run


async def stop(request: web.Request) -> web.Response:
    """Serve POST /containers/ID/stop?t=: SIGTERM, and SIGKILL after `t` seconds; default 10."""
    container = find(request)
    if not container.running:
        return web.Response(status=HTTPStatus.NOT_MODIFIED)
    try:
        patience = float(request.query.get("t", "10"))
        if math.isnan(patience):
            raise ValueError  # noqa: TRY301
    except ValueError as error:
        raise BadRequest("t must be the number of seconds before SIGKILL") from error
    run = running(container)
    container.record_signal()
    run.kill(signal_number(request.query.get("signal", "TERM")))
    await is_set_within(container.settled, patience if patience >= 0 else None)
    if container.running:
        run.kill(signal_number("KILL"))
        await container.settled.wait()
    return web.Response(status=HTTPStatus.NO_CONTENT)


async def inspect(request: web.Request) -> web.Response:
    """Serve GET /containers/ID/json."""
    return json_answer(serializers.inspect(find(request)))


async def listing(request: web.Request) -> web.Response:
    """Serve GET /containers/json."""
    filters = _filters(request, "label", "name", "id", "status")
    everything = flag(request, "all") or "status" in filters
    shown = [item for item in store_of(request).containers.values() if everything or item.running]
    return json_answer([serializers.summary(item) for item in shown if _passes(item, filters)])


async def remove(request: web.Request) -> web.Response:
    """Serve DELETE /containers/ID: end the job if `force` is given, and free the payload container."""
    container = find(request)
    if container.active and not flag(request, "force"):
        raise Refused(f"container {container.name} runs; stop it first, or remove it with force")
    await removal.remove(store_of(request), container)
    return web.Response(status=HTTPStatus.NO_CONTENT)


async def prune(request: web.Request) -> web.Response:
    """Serve POST /containers/prune?filters={"label": ...}: remove the stopped containers that have the labels."""
    removed = await remove_stopped(store_of(request), _filters(request, "label"))
    return json_answer({"ContainersDeleted": removed, "SpaceReclaimed": 0})


async def remove_stopped(store: ContainerStore, filters: dict[str, list[str]]) -> list[str]:
    """Remove the stopped containers that pass the filters, and return their ids."""
    stopped = [item for item in store.containers.values() if not item.active and _passes(item, filters)]
    for container in stopped:
        await removal.remove(store, container)
    return [item.identifier for item in stopped]


def _filters(request: web.Request, *served: str) -> dict[str, list[str]]:
    """Return the filters by name. Values are lists or the keys of an object: docker-py and the CLI send either.

    Raises:
        BadRequest: they have another form, or one is not `served`.
    """
    try:
        filters = {
            name: [str(value) for value in values]
            for name, values in read_json(request.query.get("filters") or "{}").items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise BadRequest('the filters are not of the form {"label": ["name=value"]}') from error
    if others := filters.keys() - set(served):
        raise BadRequest(f"the filter {min(others)} is not supported; supported filters: {', '.join(served)}")
    return filters


def _passes(container: Container, filters: dict[str, list[str]]) -> bool:
    """Return whether it has all labels, and one value of every other filter."""
    texts = {"name": container.name, "id": container.identifier, "status": serializers.status(container)}
    return all(_has(container, label) for label in filters.get("label", ())) and all(
        any(value.removeprefix("/") in texts[name] for value in values)
        for name, values in filters.items()
        if name != "label"
    )


def _has(container: Container, label: str) -> bool:
    """Return whether it has the label: `name=value`, or `name` with any value."""
    name, separator, value = label.partition("=")
    labels = container.specification.labels
    return name in labels and (not separator or labels[name] == value)


ROUTES: Final = [
    web.post("/containers/create", creation.create),
    web.post("/containers/prune", prune),
    web.get("/containers/json", listing),
    web.get("/containers/{id:.+}/json", inspect),  # `docker inspect` first requests images here, slashes included
    web.post("/containers/{id}/start", start),
    web.post("/containers/{id}/stop", stop),
    web.post("/containers/{id}/wait", wait),
    web.post("/containers/{id}/kill", kill),
    web.post("/containers/{id}/pause", pause),
    web.post("/containers/{id}/unpause", resume),
    web.delete("/containers/{id}", remove),
]
