"""Images: `pull` begins the bind, the rest answers from what was bound.

A pull lasts until the image runs, as people expect of one, unless this pod has had the image before: then it answers at
once, and the bind goes on beside HTCondor's next steps. Failures of a bind are told by `create` and not here: HTCondor
keeps the slot for 46 s when a pull fails, and frees it at once when a create does, with the same words for the user.
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
from k8spilot.docker.store import STORE, NotFound
from k8spilot.model.reference import Reference
from k8spilot.registry.image_index import architecture
from k8spilot.settings import SENDS_CREDENTIALS

logger = logging.getLogger(__name__)


async def pull(request: web.Request) -> web.StreamResponse:
    """POST /images/create: a stream of JSON lines."""
    engine = request.app[STORE]
    name, tag = request.query.get("fromImage", ""), request.query.get("tag", "")
    if not name:
        raise Refused("images can be pulled here, not imported")
    separator = "@" if ":" in tag else ":"
    text = f"{name}{separator}{tag}" if tag else name
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    await _say(response, f"Pulling from {name}")
    try:
        reference = Reference.parse(text)
        engine.unused_credentials = reference.source if _has_credentials(request) else ""
        engine.payload.begin(reference)
        if (image := await engine.payload.pulled(reference)) is not None:
            engine.remember(text, image)
    except PilotError as error:
        logger.info("The pull of %s does not begin a bind: %s.", text, error)
    await _say(response, f"Status: Image is bound for {text}")
    await response.write_eof()
    return response


def _has_credentials(request: web.Request) -> bool:
    """Whether the client sends a user's own credentials (Engine API, "Authentication"): base64url of JSON.

    HTCondor's client sends none, but says that its job has some (condor/scripts/docker-client.sh).
    """
    if SENDS_CREDENTIALS in request.headers:
        return True
    header = request.headers.get("X-Registry-Auth", "")
    try:
        sent = read_json(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)) or b"{}")
    except ValueError:
        return False
    return isinstance(sent, dict) and any(
        sent.get(key) for key in ("username", "auth", "identitytoken", "registrytoken")
    )


async def _say(response: web.StreamResponse, status: str) -> None:
    await response.write(json.dumps({"status": status}).encode() + b"\r\n")


async def listing(_request: web.Request) -> web.Response:
    """GET /images/json: none, so that HTCondor pulls for every job and leaves the cleaning to the kubelet."""
    return json_answer([])


async def inspect(request: web.Request) -> web.Response:
    """GET /images/NAME/json."""
    image = request.app[STORE].image(request.match_info["name"])
    return json_answer(
        {
            "Id": image.identifier,
            "RepoTags": [f"{image.reference.repository}:{image.reference.tag}"] if image.reference.tag else [],
            "RepoDigests": [f"{image.reference.repository}@{image.digest}"] if image.digest else [],
            "Created": image.created,
            # HTCondor holds jobs whose image has another architecture; without a registry's word the kubelet's must do.
            "Architecture": image.architecture or architecture(),
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


async def tag(request: web.Request) -> web.Response:
    """POST /images/NAME/tag."""
    engine = request.app[STORE]
    repository, label = request.query.get("repo", ""), request.query.get("tag", "") or "latest"
    engine.remember(f"{repository}:{label}", engine.image(request.match_info["name"]))
    return web.Response(status=HTTPStatus.CREATED)


async def remove(request: web.Request) -> web.Response:
    """DELETE /images/NAME: the name is forgotten; layers are the kubelet's."""
    name = request.match_info["name"]
    request.app[STORE].forget(name)
    return json_answer([{"Untagged": name}])


async def nothing_else(request: web.Request) -> web.Response:
    """GET of a network, volume or plugin: `docker inspect` of an unknown name asks for each kind."""
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
