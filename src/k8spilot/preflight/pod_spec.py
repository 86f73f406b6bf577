"""The pod's shape: what the pilot relies on, and what keeps a job from what is not its own.

A pod that is put together wrongly would otherwise show it by jobs that fail, one after the other, far from here.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from k8spilot.kube.pod import BIND, security_context
from k8spilot.payload_init.install import PROGRAM, TERMINATION_LOG
from k8spilot.payload_init.server import SOCKET
from k8spilot.preflight.gpus import gpu_warnings
from k8spilot.settings import ENGINE, KILLING_SECONDS, MARGIN_SECONDS, PILOT, Settings

PAYLOAD_TEMPORARY: Final = ("/tmp", "/var/tmp")  # noqa: S108 -- the payload container's, not ours
CLEANED_OTHERWISE: Final = ("/dev/shm",)  # noqa: S108
"""Writable mounts of the payload container that the pilot empties without mounting them."""

_STRICT_SINCE: Final = 33
"""The Kubernetes 1.x that has supplementalGroupsPolicy by default (KEP-3619)."""

_BIND: Final = ("K8SPILOT_BIND", f"metadata.annotations['{BIND}']")
"""The variable of which payload-init speaks in its hello (payload-init.c), and the field that it is taken from."""

Json = dict[str, Any]


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
    if has_condor(spec, settings) and spec.get("terminationGracePeriodSeconds", 30) < needed:
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
        return faults
    pilot = regular[PILOT]
    engine = init.get(ENGINE, pilot)
    faults += _probe_faults(engine, settings)
    if engine is not pilot:
        faults += _apart_faults(engine, pilot, spec, settings)
    if payload is not None:
        faults += _order_faults(payload, spec, settings)
        faults += _program_faults(payload, settings)
        faults += _payload_faults(payload, spec, settings)
        faults += _volume_faults(payload, pilot, engine, spec, settings)
    return faults


def has_condor(spec: Json, settings: Settings) -> bool:
    """Whether HTCondor runs in the pod: beside the engine, or in a container of its own."""
    return "condor" in settings.services or ENGINE in _by_name(spec.get("initContainers"))


def _apart_faults(engine: Json, pilot: Json, spec: Json, settings: Settings) -> Iterator[str]:
    """See that nothing of the engine's is in HTCondor's reach, and the other way round."""
    if engine.get("restartPolicy") != "Always":
        yield f"set restartPolicy: Always for the init container {ENGINE}, or {PILOT} never starts"
    uids = [security_context(one, spec).get("runAsUser") for one in (engine, pilot)]
    if None in uids or len({*uids, settings.payload_uid}) < 3:
        yield (
            f"set runAsUser to different numbers for {ENGINE} and {PILOT}, and to others than the jobs' "
            f"{settings.payload_uid}, or one can read what is the other's"
        )
    theirs = set(_secrets_in(engine, spec))
    for secret in sorted(set(_secrets_in(pilot, spec)) & theirs):
        yield f"do not let both {ENGINE} and {PILOT} have the secret {secret}"
    exchange = _mounts(engine).get(str(settings.exchange))
    volumes = _by_name(spec.get("volumes"))
    for mount in pilot.get("volumeMounts", []):
        if exchange is not None and mount["name"] == exchange["name"]:
            yield f"do not mount {mount['name']} in {PILOT}: HTCondor could speak to payload-init in the engine's place"
        sources = volumes.get(mount["name"], {}).get("projected", {}).get("sources", [])
        if any("serviceAccountToken" in source for source in sources):
            yield f"do not mount {mount['name']} in {PILOT}: HTCondor could give a job that links to it the API token"


def _order_faults(payload: Json, spec: Json, settings: Settings) -> Iterator[str]:
    """See that payload-init is where the payload container starts it; kustomize's patches change that order."""
    programs = _mounts(payload).get(f"{settings.exchange}/bin")
    if programs is None:
        return  # told below
    before = spec["initContainers"][: [one["name"] for one in spec["initContainers"]].index(payload["name"])]
    fillers = [
        one
        for one in before
        for mount in one.get("volumeMounts", [])
        if mount["name"] == programs["name"] and not mount.get("readOnly")
    ]
    if settings.payload_uid in [security_context(one, spec).get("runAsUser") for one in fillers]:
        yield (
            "set runAsUser of the container that runs `k8spilot install` to another number than the jobs' "
            f"{settings.payload_uid}, or they can come to their container's termination log"
        )
    if not fillers:
        yield (
            f"put an init container that runs `k8spilot install`, with the volume {programs['name']} at "
            f"{settings.exchange}/bin, before {payload['name']}"
        )


def _probe_faults(engine: Json, settings: Settings) -> Iterator[str]:
    """See that the kubelet asks where the engine answers: it ends a pilot that it does not hear."""
    ports = {port.get("name"): port["containerPort"] for port in engine.get("ports", [])}
    for probe in ("startupProbe", "livenessProbe"):
        asked = engine.get(probe, {}).get("httpGet", {}).get("port")
        if asked is None or "engine" not in settings.services or ports.get(asked, asked) == settings.metrics_port:
            continue
        mend = (
            f"let {probe} of {engine['name']} ask port {settings.metrics_port}"
            if settings.metrics_port
            else f"remove {probe}"
        )
        yield f"{mend} (K8SPILOT_METRICS_PORT is {settings.metrics_port}), or the kubelet ends a pilot that is well"


def _program_faults(payload: Json, settings: Settings) -> Iterator[str]:
    """See that the container runs payload-init, whatever its image, and that this knows what for."""
    name = settings.payload_container
    if payload.get("imagePullPolicy") == "Never":
        yield f"set imagePullPolicy: IfNotPresent for {name}, or no job's image can be pulled"
    command = [str(settings.exchange / PROGRAM), str(settings.exchange / SOCKET)]
    if payload.get("command") != command or payload.get("args"):
        yield f"set the command of {name} to {json.dumps(command)}, without args"
    log = str(settings.exchange / TERMINATION_LOG)
    if payload.get("terminationMessagePath") != log:
        yield (
            f"set terminationMessagePath: {log} for {name}, or each job can fill the node's disk by its termination "
            "log, which no limit counts"
        )
    fields = {one["name"]: one.get("valueFrom", {}).get("fieldRef", {}) for one in payload.get("env", [])}
    if fields.get(_BIND[0], {}).get("fieldPath") != _BIND[1]:
        yield (
            f'give {name} the variable {_BIND[0]} with valueFrom: {{fieldRef: {{fieldPath: "{_BIND[1]}"}}}}, or nobody '
            "can tell for which image a container of it was made"
        )


def _payload_faults(payload: Json, spec: Json, settings: Settings) -> Iterator[str]:
    name = settings.payload_container
    security = security_context(payload, spec)
    if security.get("privileged") or security.get("capabilities", {}).get("add"):
        yield f"take all privileges from {name}, which runs other people's programs"
    if security.get("allowPrivilegeEscalation") is not False:
        yield (
            f"set allowPrivilegeEscalation: false for {name}, or a set-uid program of an image makes its job root, who "
            "can signal the pilot"
        )
    if security.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
        yield (
            f"set seccompProfile: {{type: RuntimeDefault}} for {name}, or a job could leave keys in the kernel for the "
            "next"
        )
    for shared in ("hostNetwork", "hostIPC"):
        if spec.get(shared):
            yield f"leave {shared} out, or jobs meet the node's own programs"
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


def _sandbox_faults(payload: Json, pilot: Json, engine: Json, settings: Settings) -> Iterator[str]:
    name, theirs = settings.payload_container, _mounts(payload)
    execute, slot = str(settings.execute), f"{settings.execute}/slot"
    sandboxes = _mounts(pilot).get(execute)
    if engine is pilot:
        if not _is_shared(theirs.get(execute), sandboxes):
            yield f"mount the volume execute at {execute} in both {name} and {PILOT}"
    elif not _is_shared(theirs.get(slot), sandboxes) or theirs[slot].get("subPath") != "slot" or execute in theirs:
        # Nobody is root, so that nobody could take the volume's own folder from the job.
        yield (
            f"mount the volume execute at {execute} in {PILOT}, and of it subPath: slot at {slot} in {name}, or a job "
            "could put something else in that folder's place"
        )


def _volume_faults(payload: Json, pilot: Json, engine: Json, spec: Json, settings: Settings) -> Iterator[str]:
    yield from _sandbox_faults(payload, pilot, engine, settings)
    name, other = settings.payload_container, engine["name"]
    theirs, ours = _mounts(payload), _mounts(engine)
    exchange, execute, slot = str(settings.exchange), str(settings.execute), f"{settings.execute}/slot"
    if not _is_shared(theirs.get(exchange), ours.get(exchange)):
        yield f"mount the volume exchange at {exchange} in both {name} and {other}"
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
            path in (exchange, programs, execute, slot, *CLEANED_OTHERWISE)
            or mount.get("readOnly")
            or _is_read_only(mount, spec)
        ):
            continue
        if mount["name"] not in emptied:
            yield (
                f"mount the volume {mount['name']} ({path} in {name}) in {other} as well and name the folder in "
                "K8SPILOT_SCRATCH_FOLDERS, or mount it with readOnly: true, or a job could leave files for the next"
            )


def _is_shared(one: Json | None, other: Json | None) -> bool:
    return one is not None and other is not None and one["name"] == other["name"]


def _is_read_only(mount: Json, spec: Json) -> bool:
    volume = _by_name(spec.get("volumes")).get(mount["name"], {})
    return any(kind in volume for kind in ("configMap", "secret", "projected", "downwardAPI", "image"))


def _mounts(container: Json) -> dict[str, Json]:
    return {mount["mountPath"].rstrip("/"): mount for mount in container.get("volumeMounts", [])}


def _by_name(things: list[Json] | None) -> dict[str, Json]:
    return {thing["name"]: thing for thing in things or []}


def group_warnings(pod: Json, version: str) -> Iterator[str]:
    """See that images cannot put jobs into groups, where the API server (of `version`, as v1.36.3) can have it so."""
    match = re.match(r"v1\.(\d+)", version)
    policy = pod.get("spec", {}).get("securityContext", {}).get("supplementalGroupsPolicy")
    if match is not None and int(match[1]) >= _STRICT_SINCE and policy != "Strict":
        yield (
            "set securityContext: {supplementalGroupsPolicy: Strict} if the node's runtime knows it (containerd 2.0, "
            "CRI-O 1.31), or jobs are held whose image's /etc/group has their user in it"
        )


def shape_warnings(pod: Json, settings: Settings) -> Iterator[str]:
    """List what a pilot can live with, but should not: each a phrase that says what to do."""
    spec: Json = pod.get("spec", {})
    containers: list[Json] = [*spec.get("initContainers", ()), *spec.get("containers", ())]
    for payload in [one for one in containers if one["name"] == settings.payload_container]:
        yield from gpu_warnings(payload, [one for one in containers if one is not payload])
    if spec.get("restartPolicy", "Always") == "Always":
        yield (
            "set restartPolicy: OnFailure, or a pilot that has come to its end is started again, and ends again at "
            "once, since its life counts from the pod's start"
        )
    deadline = spec.get("activeDeadlineSeconds")
    if has_condor(spec, settings) and deadline is not None and settings.life_seconds > deadline:
        yield (
            f"set GLIDEIN_Max_Walltime to {max(deadline - settings.vacate_seconds - 60, 60)} or less, or leave "
            f"activeDeadlineSeconds ({deadline}) out, or the kubelet ends the pod before the pilot's own end"
        )
