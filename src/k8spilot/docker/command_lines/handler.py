"""The request in which condor/docker-client.c sends HTCondor's command lines for docker, and its answer.

The request has the words of the line, each with a NUL at its end. Before them are the words of DOCKER_EXTRA_ARGUMENTS,
whose number is in a header: the engine need not see HTCondor's configuration. The answer has Docker's frames
(hijack.py): what the client writes to its standard output (1) and standard error (2), and last its exit status (3), or
a frame that tells it to become docker's own client (4).
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from aiohttp import web

from k8spilot.common import logs
from k8spilot.common.aio import first_of, side_by_side
from k8spilot.common.errors import PilotError, Refused
from k8spilot.docker import attach, containers, creation, images, removal
from k8spilot.docker.command_lines import answers, grammar
from k8spilot.docker.command_lines.create import parse_create
from k8spilot.docker.command_lines.grammar import (
    Architecture,
    Create,
    Exec,
    Info,
    Kill,
    Line,
    OfContainer,
    Prune,
    Pull,
    Start,
)
from k8spilot.docker.container import Container
from k8spilot.docker.create_request.options import LABEL
from k8spilot.docker.hijack import MULTIPLEXED_STREAM, frame, hung_up, take_over
from k8spilot.docker.htcondor_socket import COMMAND
from k8spilot.docker.json_http import BadRequest, body_of
from k8spilot.docker.signals import signal_number
from k8spilot.docker.store import ContainerStore, NotFound, store_of, subject_of
from k8spilot.docker.system import description
from k8spilot.model.container_state import ContainerState
from k8spilot.settings import SENDS_CREDENTIALS

logger = logging.getLogger(__name__)

_EXTRA_WORDS: Final = "K8spilot-Extra-Words"
_LABELS: Final = {"K8spilot-Gpus": "k8spilot.gpus", "K8spilot-Disk": "k8spilot.disk"}
"""Header with a number of the job's ad, which the engine does not see without root -> label of the container."""
_STATUS, _BECOME_DOCKER = 3, 4
"""Streams of the last frame."""
_FAILED, _NO_STATUS = 1, 125
_DEFECT: Final = "the pilot failed with an internal error; its log has the details"


@dataclass(frozen=True, slots=True)
class _Answer:
    """Texts that the client writes, and its exit status."""

    code: int = 0
    output: str = ""
    errors: str = ""
    becomes_docker: bool = False

    def frames(self) -> bytes:
        """Return the answer's frames."""
        texts = [frame(stream, _raw(text)) for stream, text in ((1, self.output), (2, self.errors)) if text]
        last = frame(_BECOME_DOCKER, b"") if self.becomes_docker else frame(_STATUS, bytes([self.code]))
        return b"".join(texts) + last


async def command(request: web.Request) -> web.StreamResponse:
    """Serve POST /htcondor/command."""
    store = store_of(request)
    try:
        line = await _read_line(request)
        logger.debug("HTCondor's docker client: %s.", type(line).__name__)  # its words can have secrets
        if isinstance(line, Start):
            return await _start(request, store, line)
        answer = await _run(request, store, line)
    except grammar.UnknownLine as error:
        logger.warning("HTCondor's docker client is refused: %s.", error)
        answer = _Answer(_FAILED, errors=f"k8spilot: {error}\n")
    except web.HTTPException as error:
        answer = _failed(error.text or error.reason)
    except PilotError as error:
        answer = _failed(error)
    except ConnectionError:
        raise
    except Exception:
        logger.exception("A command of HTCondor's failed; this is a defect of k8spilot.")
        answer = _failed(_DEFECT)
    return web.Response(body=answer.frames(), headers={"Content-Type": MULTIPLEXED_STREAM})


async def _read_line(request: web.Request) -> Line:
    *words, rest = (await body_of(request)).decode(errors="surrogateescape").split("\0")
    count = request.headers.get(_EXTRA_WORDS, "0")
    if rest or not grammar.is_number(count) or int(count) >= len(words):
        raise BadRequest("the request is not a command line")
    extra, words = words[: int(count)], words[int(count) :]
    if words[0] != "create":
        return grammar.parse(words)
    labels = {label: request.headers[header] for header, label in _LABELS.items() if header in request.headers}
    try:
        return parse_create(words[1:], extra, labels)
    except grammar.UnknownLine as error:
        store = store_of(request)
        logs.about(subject_of(next((name for option, name in pairwise(words) if option == "--name"), "")))
        store.listener.held(error, "create")
        store.payload.give_up()  # the image that its starter has pulled
        raise


async def _run(request: web.Request, store: ContainerStore, line: Line) -> _Answer:
    match line:
        case Pull(image):
            answer = await _pull(request, store, image)
        case Create():
            answer = await _create(request, store, line)
        case Kill(number, name):
            logs.about(subject_of(name))
            containers.send(store, name, signal_number(number))
            answer = _Answer(output=f"{name}\n")
        case OfContainer(what, name):
            answer = await _OF_CONTAINER[what](store, name)
        case Architecture(image):
            answer = _architecture(store, image)
        case Info():
            answer = _Answer(output=answers.info(description(store)))
        case Prune():
            removed = await containers.remove_stopped(store, {"label": [f"{LABEL}=True"]})
            answer = _Answer(output=answers.pruned(removed))
        case Exec() | Start():
            answer = _Answer(becomes_docker=True)
    return answer


async def _pull(request: web.Request, store: ContainerStore, image: str) -> _Answer:
    """Begin to bind an image. After a failed pull HTCondor would keep the slot: `create` has the same error."""
    if image:
        await images.bind_early(store, image, has_credentials=SENDS_CREDENTIALS in request.headers)
    return _Answer(output=f"{image}\n" if image else "")


async def _create(request: web.Request, store: ContainerStore, line: Create) -> _Answer:
    if line.pulls:
        await _pull(request, store, str(line.body["Image"]))
    container = await creation.created(store, line.name, dict(line.body), request)
    return _Answer(output=f"{container.identifier}\n")


async def _start(request: web.Request, store: ContainerStore, line: Start) -> web.StreamResponse:
    """Serve `start -a`: the connection carries the streams until the end, and then the status."""
    container = _find(store, line.name)
    is_first = container.run is None and container.state is not ContainerState.STARTING
    response, input_ = await take_over(request)
    if not is_first:  # HTCondor starts each container once
        async with side_by_side(hung_up(request), container.settled.wait()) as waits:
            await first_of(*waits)
        await response.write(_ended(container).frames())
        return response
    output = attach.Output(response, container.stdio, {1, 2})
    reading = input_ if container.specification.reads else None
    async with side_by_side(
        attach.lead(request, container, output.write, reading), containers.begin(store, container)
    ) as (streams, beginning):
        await first_of(streams, beginning)
        error = beginning.exception() if beginning.done() and not beginning.cancelled() else None
        if error is None:
            await streams
            answer = _ended(container)
        else:
            answer = _failed(error if isinstance(error, PilotError) else _DEFECT)
    await response.write(answer.frames())
    if reading is not None and container.settled.is_set():
        await attach.close(request, reading)
    return response


def _ended(container: Container) -> _Answer:
    ending = containers.ending(container)
    if (error := ending.get("Error")) is None:
        return _Answer(ending["StatusCode"])
    return _Answer(_NO_STATUS, errors=f"Error waiting for container: {error['Message']}\n")


async def _remove(store: ContainerStore, name: str) -> _Answer:
    try:
        container = _find(store, name)
    except NotFound as error:  # not a failure, with -f
        return _Answer(errors=_failed(error).errors)
    await removal.remove(store, container)
    return _Answer(output=f"{name}\n")


async def _pause(store: ContainerStore, name: str) -> _Answer:
    (await containers.begun(_find(store, name))).pause()
    return _Answer(output=f"{name}\n")


async def _resume(store: ContainerStore, name: str) -> _Answer:
    (await containers.begun(_find(store, name))).resume()
    return _Answer(output=f"{name}\n")


async def _inspect(store: ContainerStore, name: str) -> _Answer:
    """Show a container. HTCondor would take one that was never started for a successful job."""
    try:
        container = _find(store, name)
    except NotFound:
        return _Answer(_FAILED, errors=f"Error: No such object: {name}\n")
    if answers.was_never_started(container):
        return _Answer(
            _FAILED,
            errors="k8spilot: docker's client ended before it started the job, which goes back to the queue\n",
        )
    return _Answer(output=answers.inspection(container))


_OF_CONTAINER: Final[Mapping[str, Callable[[ContainerStore, str], Awaitable[_Answer]]]] = {
    "rm": _remove,
    "pause": _pause,
    "unpause": _resume,
    "inspect": _inspect,
}


def _architecture(store: ContainerStore, image: str) -> _Answer:
    """Answer nothing for an image that a new engine does not know: HTCondor then assumes the right architecture."""
    try:
        return _Answer(output=f"{images.architecture_of(store.image(image))}\n")
    except NotFound:
        return _Answer()


def _find(store: ContainerStore, name: str) -> Container:
    container = store.find(name)
    logs.about(container.subject)
    return container


def _failed(error: object) -> _Answer:
    """Return the answer to a request that the engine refuses, in the words of docker's client."""
    logger.log(logging.DEBUG if isinstance(error, Refused | NotFound) else logging.WARNING, "%s", error)
    return _Answer(_FAILED, errors=f"Error response from daemon: {error}\n")


def _raw(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


ROUTES: Final = [web.post(COMMAND, command)]
