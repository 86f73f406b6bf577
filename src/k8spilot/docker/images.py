"""Images: `pull` starts the bind, and the other requests return the bound image.

A pull lasts until the image runs, as people expect. If this pod has had the image before, it returns at once, and the
bind continues beside HTCondor's next steps. `create`, not `pull`, reports the failure of a bind: HTCondor keeps the
slot for 46 s after a failed pull, and frees it at once after a failed create, with the same message for the user.
"""

import base64
import json
import logging
from http import HTTPStatus
from typing import Final

from aiohttp import web

from k8spilot.common.errors import PilotError, Refused
from k8spilot.common.untrusted_json import read_json
from k8spilot.docker.json_http import json_answer
from k8spilot.docker.store import ContainerStore, NotFound, store_of
from k8spilot.model.image import Image
from k8spilot.model.reference import Reference
from k8spilot.registry.image_index import architecture

logger = logging.getLogger(__name__)


async def pull(request: web.Request) -> web.StreamResponse:
    """Serve POST /images/create: a stream of JSON lines."""
    store = store_of(request)
    name, tag = request.query.get("fromImage", ""), request.query.get("tag", "")
    if not name:
        raise Refused("k8spilot can pull images, but not import them")
    separator = "@" if ":" in tag else ":"
    text = f"{name}{separator}{tag}" if tag else name
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    await _write_status(response, f"Pulling from {name}")
    await bind_early(store, text, has_credentials=_has_credentials(request))
    await _write_status(response, f"Status: Image is bound for {text}")
    await response.write_eof()
    return response


async def bind_early(store: ContainerStore, text: str, *, has_credentials: bool) -> None:
    """Begin the bind of the image `text`, and wait for it as the module says. It does not fail.

    Args:
        store: containers of the slot.
        text: reference of the image, as the client wrote it.
        has_credentials: whether the client sends credentials, which the kubelet cannot use.
    """
    try:
        reference = Reference.parse(text)
        store.unused_credentials = reference.source if has_credentials else ""
        store.payload.begin(reference)
        if (image := await store.payload.pulled(reference)) is not None:
            store.remember(text, image)
    except PilotError as error:
        logger.info("The pull of %s does not start a bind: %s.", text, error)


def _has_credentials(request: web.Request) -> bool:
    """Return whether the client sends a user's own credentials (Engine API, "Authentication"): base64url of JSON."""
    header = request.headers.get("X-Registry-Auth", "")
    try:
        sent = read_json(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)) or b"{}")
    except ValueError:
        return False
    return isinstance(sent, dict) and any(
        sent.get(key) for key in ("username", "auth", "identitytoken", "registrytoken")
    )


async def _write_status(response: web.StreamResponse, status: str) -> None:
    await response.write(json.dumps({"status": status}).encode() + b"\r\n")


async def listing(_request: web.Request) -> web.Response:
    """Serve GET /images/json: an empty list.

    HTCondor then pulls for every job and leaves the clean-up to the kubelet.
    """
    return json_answer([])


async def inspect(request: web.Request) -> web.Response:
    """Serve GET /images/NAME/json."""
    image = store_of(request).image(request.match_info["name"])
    return json_answer(
        {
            "Id": image.identifier,
            "RepoTags": [f"{image.reference.repository}:{image.reference.tag}"] if image.reference.tag else [],
            "RepoDigests": [f"{image.reference.repository}@{image.digest}"] if image.digest else [],
            "Created": image.created,
            "Architecture": architecture_of(image),
            "Os": image.os,
            "Size": image.size,
            "Config": {
                "Entrypoint": list(image.entrypoint) or None,
                "Cmd": list(image.command) or None,
                "Env": list(image.environment),
                "WorkingDir": image.directory,
                "User": image.user,
                "Labels": None,
            },
            "RootFS": {"Type": "layers"},
            "Metadata": {"LastTagTime": image.created},
        }
    )


def architecture_of(image: Image) -> str:
    """Return Docker's word for the architecture of an image; the node's if the registry did not say it.

    HTCondor holds jobs whose image has another architecture.
    """
    return image.architecture or architecture()


async def tag(request: web.Request) -> web.Response:
    """Serve POST /images/NAME/tag."""
    store = store_of(request)
    repository, label = request.query.get("repo", ""), request.query.get("tag", "") or "latest"
    store.remember(f"{repository}:{label}", store.image(request.match_info["name"]))
    return web.Response(status=HTTPStatus.CREATED)


async def remove(request: web.Request) -> web.Response:
    """Serve DELETE /images/NAME: forget the name; the kubelet removes layers."""
    name = request.match_info["name"]
    store_of(request).forget(name)
    return json_answer([{"Untagged": name}])


async def nothing_else(request: web.Request) -> web.Response:
    """Serve GET of a network, volume or plugin: `docker inspect` of an unknown name requests each kind."""
    raise NotFound(f"No such object: {request.match_info['name']}")


ROUTES: Final = [
    web.post("/images/create", pull),
    web.get("/images/json", listing),
    web.get("/images/{name:.+}/json", inspect),
    web.post("/images/{name:.+}/tag", tag),
    web.delete("/images/{name:.+}", remove),
    web.get("/networks/{name:.+}", nothing_else),
    web.get("/volumes/{name:.+}", nothing_else),
    web.get("/plugins/{name:.+}/json", nothing_else),
    web.get("/services/{name:.+}", nothing_else),
    web.get("/tasks/{name:.+}", nothing_else),
    web.get("/nodes/{name:.+}", nothing_else),
    web.get("/secrets/{name:.+}", nothing_else),
    web.get("/configs/{name:.+}", nothing_else),
]
