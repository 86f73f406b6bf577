"""Commands beside a job in its container: `docker exec`, which condor_ssh_to_job also uses."""

import asyncio
from http import HTTPStatus
from typing import Final

from aiohttp import web

from k8spilot.common.errors import Refused
from k8spilot.docker import serializers
from k8spilot.docker.attach import Output, carry, close, resized
from k8spilot.docker.container import Container, Execution
from k8spilot.docker.containers import begun, find
from k8spilot.docker.create_request.specification import execution_command
from k8spilot.docker.hijack import take_over
from k8spilot.docker.json_http import json_answer, json_body, keep
from k8spilot.docker.store import store_of
from k8spilot.payload.command.exec_session import ExecSession
from k8spilot.payload.command.stdio import Stdio

_SUPPORTED: Final = frozenset({"Cmd", "Env", "WorkingDir", "Tty"} | {"AttachStdin", "AttachStdout", "AttachStderr"})
_CLIENT_ONLY: Final = frozenset({"Detach", "DetachKeys", "ConsoleSize", "Container"})
"""Options that concern the client only, or that repeat the path."""


async def create(request: web.Request) -> web.Response:
    """Serve POST /containers/ID/exec."""
    container = find(request)
    await begun(container)
    _check_running(container)
    body = await json_body(request)
    for key, value in body.items():
        if key not in _SUPPORTED | _CLIENT_ONLY and value:
            raise Refused(
                f"docker exec does not support {key} here ({str(value)[:80]}): the command runs as the job does"
            )
    stdio = Stdio(terminal=bool(body.get("Tty")), reads=bool(body.get("AttachStdin")), keeps=False)
    command = execution_command(container.command, body, is_job=container.specification.is_job)
    execution = Execution(container=container, command=command, body={**body, "Cmd": list(body["Cmd"])}, stdio=stdio)
    execution.kept = keep(request)
    store_of(request).add_execution(execution)
    return json_answer({"Id": execution.identifier}, status=HTTPStatus.CREATED)


def _check_running(container: Container) -> None:
    if container.paused:
        raise Refused(f"container {container.name} is paused; unpause it first")
    if not container.running:
        raise Refused(f"container {container.name} is not running")


async def start(request: web.Request) -> web.StreamResponse:
    """Serve POST /exec/ID/start: the connection carries the streams until the command has ended, and then closes."""
    execution = _find(request)
    body = await json_body(request)
    if execution.session is not None:
        raise Refused(f"exec {execution.identifier[:12]} has been started already")
    stdio, options = execution.stdio, execution.body
    _check_running(execution.container)
    if body.get("Detach"):
        _begin(execution)
        return web.Response(status=HTTPStatus.OK)
    response, input_ = await take_over(request, framed=not stdio.terminal)
    wanted = {number for number, name in ((1, "AttachStdout"), (2, "AttachStderr")) if options.get(name)}
    sink = Output(response, stdio, wanted).write
    settled = asyncio.Event()
    session = _begin(execution)
    session.ended.add_done_callback(lambda _: settled.set())
    try:
        reads = bool(options.get("AttachStdin"))
        await carry(request, stdio, sink=sink, settled=settled, input_=input_ if reads else None)
        if reads and settled.is_set():
            await close(request, input_)
    finally:  # as in attach
        if not session.ended.done():
            stdio.hang_up()
    return response


def _begin(execution: Execution) -> ExecSession:
    run = execution.container.run
    assert run is not None  # it is running
    execution.session = session = run.execute(execution.command, execution.stdio)
    return session


async def inspect(request: web.Request) -> web.Response:
    """Serve GET /exec/ID/json."""
    return json_answer(serializers.execution(_find(request)))


async def resize(request: web.Request) -> web.Response:
    """Serve POST /exec/ID/resize?h=&w=."""
    return resized(request, _find(request).stdio)


def _find(request: web.Request) -> Execution:
    return store_of(request).execution(request.match_info["id"])


ROUTES: Final = [
    web.post("/containers/{id}/exec", create),
    web.post("/exec/{id}/start", start),
    web.post("/exec/{id}/resize", resize),
    web.get("/exec/{id}/json", inspect),
]
