"""What a pilot needs around it, checked before it takes its first job.

Each fault is one sentence for the operator. A pod that is put together wrongly would otherwise show it by jobs that
fail, one after the other, far from here.
"""

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp
from kubernetes.aio.client import ApiClient, ApiException, AuthorizationV1Api, CoreV1Api

from k8spilot.errors import SurroundingsError
from k8spilot.payload_init.channel import SOCKET
from k8spilot.payload_init.install import PROGRAM
from k8spilot.settings import KILLING_SECONDS, Settings

PILOT: Final = "pilot"
"""Name of the container that k8spilot runs in."""

VERBS: Final = ("get", "list", "watch", "patch")
"""What the pilot does to pods: it reads and watches its own, and changes an image in it."""

MARGIN_SECONDS: Final = 20
"""What ends beside the job within the pod's grace period: HTCondor's daemons and the payload container."""

TIMEOUT_SECONDS: Final = 20.0

PAYLOAD_TEMPORARY: Final = ("/tmp", "/var/tmp")  # noqa: S108 -- the payload container's, not ours
CLEANED_OTHERWISE: Final = ("/dev/shm",)  # noqa: S108
"""Writable mounts of the payload container that the pilot empties without mounting them."""

Json = dict[str, Any]
T = TypeVar("T")


async def check(settings: Settings, api: ApiClient) -> None:
    """Check the pilot's own container, its rights in the cluster and its pod.

    Raises:
        SurroundingsError: with the first fault; all faults of the pod's shape count as one.
    """
    if fault := next(local_faults(settings), None):
        raise SurroundingsError(fault)
    await _check_rights(settings, api)
    pod = await _own_pod(settings, api)
    if faults := shape_faults(pod, settings):
        raise SurroundingsError(f"the pod {_name(settings)} is not put together right: {'; '.join(faults)}")


def local_faults(settings: Settings) -> Iterator[str]:
    """List what is wrong in the own container: programs and volumes."""
    for service, program in (("condor", "condor_master"), ("condor", "docker"), ("engine", "skopeo")):
        if service in settings.services and not shutil.which(program):
            yield f"{program} is not on PATH; use k8spilot's image, or one with HTCondor and the docker CLI installed"
    first = settings.exchange / PROGRAM
    if "engine" in settings.services and not os.access(first, os.X_OK):
        yield (
            f"{first} is missing; an init container must run `k8spilot install` with the exchange volume at "
            f"{settings.exchange}"
        )
    volumes = [settings.execute, *(settings.scratch_folders if "engine" in settings.services else ())]
    for volume in volumes:
        if not _is_writable(volume):
            yield f"{volume} cannot be written to; mount the payload container's volume there, without readOnly"


def _is_writable(folder: Path) -> bool:
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".k8spilot-"):
            return True
    except OSError:
        return False


async def _check_rights(settings: Settings, api: ApiClient) -> None:
    allowed = await asyncio.gather(*(_is_allowed(settings, api, verb) for verb in VERBS))
    if denied := [verb for verb, may in zip(VERBS, allowed, strict=True) if not may]:
        raise SurroundingsError(
            f"the pod's service account may not {', '.join(denied)} pods in the namespace {settings.pod_namespace}; "
            "apply the project's manifests there (kubectl apply -k) and set serviceAccountName in the pod"
        )


async def _is_allowed(settings: Settings, api: ApiClient, verb: str) -> bool:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {
            "resourceAttributes": {
                "namespace": settings.pod_namespace,
                "verb": verb,
                "resource": "pods",
                "version": "v1",
            }
        },
    }
    answer = await _ask(
        AuthorizationV1Api(api).create_self_subject_access_review(review, _request_timeout=TIMEOUT_SECONDS)
    )
    return bool(answer.status and answer.status.allowed)


async def _own_pod(settings: Settings, api: ApiClient) -> Json:
    core = CoreV1Api(api)
    response = await _ask(
        core.read_namespaced_pod_without_preload_content(
            settings.pod_name, settings.pod_namespace, _request_timeout=TIMEOUT_SECONDS
        )
    )
    body = json.loads(await response.read())
    if response.status == 200 and isinstance(body, dict):
        return body
    if response.status == 404:
        raise SurroundingsError(
            f"there is no pod {_name(settings)}; POD_NAME and POD_NAMESPACE must come from metadata.name and "
            "metadata.namespace by the downward API"
        )
    raise SurroundingsError(f"the pod {_name(settings)} cannot be read: {body.get('message', response.status)}")


async def _ask(request: Awaitable[T]) -> T:
    """Wait for an answer of the API server; what keeps it from answering becomes a sentence."""
    try:
        return await request
    except ApiException as error:
        if error.status == 401:
            raise SurroundingsError(
                "the Kubernetes API does not accept the pod's token; mount a projected serviceAccountToken of the "
                "pod's own service account at /var/run/secrets/kubernetes.io/serviceaccount"
            ) from error
        raise SurroundingsError(f"the Kubernetes API refuses the pilot ({error.status} {error.reason})") from error
    except (aiohttp.ClientError, OSError) as error:  # a TimeoutError is an OSError
        where = f"{os.environ.get('KUBERNETES_SERVICE_HOST')}:{os.environ.get('KUBERNETES_SERVICE_PORT')}"
        raise SurroundingsError(
            f"the Kubernetes API at {where} cannot be reached ({str(error) or type(error).__name__}); the network "
            "policies must let the pod connect to it"
        ) from error


def _name(settings: Settings) -> str:
    return f"{settings.pod_namespace}/{settings.pod_name}"


def shape_faults(pod: Json, settings: Settings) -> list[str]:
    """List what is wrong with the pod, each as a phrase that says what to do.

    Args:
        pod: core/v1 Pod as the API server has it, as JSON.
        settings: what the pilot expects.
    """
    spec: Json = pod.get("spec", {})
    regular, init = _by_name(spec.get("containers")), _by_name(spec.get("initContainers"))
    faults: list[str] = []
    if not spec.get("shareProcessNamespace"):
        faults.append("set shareProcessNamespace: true, or the job cannot be signalled and measured")
    if spec.get("automountServiceAccountToken") is not False:
        faults.append("set automountServiceAccountToken: false, or the job gets an API token")
    needed = settings.vacate_seconds + KILLING_SECONDS + MARGIN_SECONDS
    if "condor" in settings.services and spec.get("terminationGracePeriodSeconds", 30) < needed:
        faults.append(f"set terminationGracePeriodSeconds to {needed} or more, or evicted jobs are killed at once")
    name = settings.payload_container
    payload = init.get(name)
    if name in regular:
        faults.append(f"make {name} an init container with restartPolicy: Always, or the pod never completes")
    elif payload is None:
        faults.append(f"add an init container {name} with restartPolicy: Always, in which the jobs run")
    elif payload.get("restartPolicy") != "Always":
        faults.append(f"set restartPolicy: Always for the init container {name}, or the pilot never starts")
    if PILOT not in regular:
        faults.append(f"name the container that runs k8spilot {PILOT}")
    if payload is not None and PILOT in regular:
        faults += _payload_faults(payload, spec, settings)
        faults += _volume_faults(payload, regular[PILOT], spec, settings)
    return faults


def _payload_faults(payload: Json, spec: Json, settings: Settings) -> Iterator[str]:
    name = settings.payload_container
    if payload.get("imagePullPolicy") == "Never":
        yield f"set imagePullPolicy: IfNotPresent for {name}, or no job's image can be pulled"
    command = [str(settings.exchange / PROGRAM), str(settings.exchange / SOCKET)]
    if payload.get("command") != command or payload.get("args"):
        yield f"set the command of {name} to {json.dumps(command)}, without args"
    security = {**spec.get("securityContext", {}), **payload.get("securityContext", {})}
    if security.get("privileged") or security.get("capabilities", {}).get("add"):
        yield f"take all privileges from {name}, which runs other people's programs"
    if (security.get("runAsUser"), security.get("runAsGroup")) != (settings.payload_uid, settings.payload_gid):
        yield (
            f"set runAsUser: {settings.payload_uid} and runAsGroup: {settings.payload_gid} for {name}, or set "
            "K8SPILOT_PAYLOAD_UID and K8SPILOT_PAYLOAD_GID to its own"
        )
    for secret in _secrets_in(payload, spec):
        yield f"do not let {name} have the secret {secret}, which every job could read"


def _secrets_in(container: Json, spec: Json) -> Iterator[str]:
    """List the secrets that a container can read: mounted, projected or in its environment."""
    volumes = _by_name(spec.get("volumes"))
    for mount in container.get("volumeMounts", []):
        volume = volumes.get(mount["name"], {})
        if secret := volume.get("secret"):
            yield secret["secretName"]
        for source in volume.get("projected", {}).get("sources", []):
            if "serviceAccountToken" in source:
                yield f"in the volume {mount['name']} (an API token)"
            elif "secret" in source:
                yield source["secret"]["name"]
    for variable in container.get("env", []):
        if secret := variable.get("valueFrom", {}).get("secretKeyRef"):
            yield secret["name"]
    for source in container.get("envFrom", []):
        if secret := source.get("secretRef"):
            yield secret["name"]


def _volume_faults(payload: Json, pilot: Json, spec: Json, settings: Settings) -> Iterator[str]:
    name = settings.payload_container
    theirs, ours = _mounts(payload), _mounts(pilot)
    exchange, execute = str(settings.exchange), str(settings.execute)
    for path, what in ((exchange, "exchange"), (execute, "execute")):
        if path not in theirs or path not in ours or theirs[path]["name"] != ours[path]["name"]:
            yield f"mount the volume {what} at {path} in both {name} and {PILOT}"
    programs = f"{exchange}/bin"
    if not theirs.get(programs, {}).get("readOnly"):
        yield (
            f"mount a volume of its own at {programs} in {name} with readOnly: true (the one that `k8spilot install` "
            "fills), or an image could bring its own payload-init there"
        )
    if exchange in theirs and not theirs[exchange].get("readOnly"):
        yield f"mount {exchange} with readOnly: true in {name}, or a job could change what the next one runs"
    for path in PAYLOAD_TEMPORARY:
        if path not in theirs:
            yield f"mount an emptyDir at {path} in {name}, which the pilot can empty between jobs"
    emptied = {ours[str(folder)]["name"] for folder in settings.scratch_folders if str(folder) in ours}
    for path, mount in theirs.items():
        if (
            path in (exchange, programs, execute, *CLEANED_OTHERWISE)
            or mount.get("readOnly")
            or _is_read_only(mount, spec)
        ):
            continue
        if mount["name"] not in emptied:
            yield (
                f"mount the volume {mount['name']} ({path} in {name}) in {PILOT} as well and name the folder in "
                "K8SPILOT_SCRATCH_FOLDERS, or mount it with readOnly: true, or a job could leave files for the next"
            )


def _is_read_only(mount: Json, spec: Json) -> bool:
    volume = _by_name(spec.get("volumes")).get(mount["name"], {})
    return any(kind in volume for kind in ("configMap", "secret", "projected", "downwardAPI", "image"))


def _mounts(container: Json) -> dict[str, Json]:
    return {mount["mountPath"].rstrip("/"): mount for mount in container.get("volumeMounts", [])}


def _by_name(things: list[Json] | None) -> dict[str, Json]:
    return {thing["name"]: thing for thing in things or []}
