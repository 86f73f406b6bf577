"""Checks of the pod's spec: fields that the pilot relies on, and fields that isolate a job.

Without these checks, an invalid spec would show as one failed job after another, far from its cause.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from k8spilot.kube.pod import BIND, security_context
from k8spilot.payload_init.install import PROGRAM, TERMINATION_LOG
from k8spilot.payload_init.server import SOCKET
from k8spilot.preflight.gpus import gpu_warnings
from k8spilot.preflight.slot_size import size_faults, size_warnings
from k8spilot.settings import ENGINE, KILLING_SECONDS, MARGIN_SECONDS, PILOT, Settings

PAYLOAD_TEMPORARY: Final = ("/tmp", "/var/tmp")  # noqa: S108 -- in the payload container
CLEANED_OTHERWISE: Final = ("/dev/shm",)  # noqa: S108
"""Writable mounts of the payload container that the pilot empties without mounting them."""

_STRICT_SINCE: Final = 33
"""First Kubernetes 1.x with supplementalGroupsPolicy by default (KEP-3619)."""

_BIND: Final = ("K8SPILOT_BIND", f"metadata.annotations['{BIND}']")
"""Variable that payload-init sends in its hello (payload-init.c), and the field of its value."""

Json = dict[str, Any]


def shape_faults(pod: Json, settings: Settings) -> list[str]:
    """Return what is wrong with the pod, each as a phrase that says what to do.

    Args:
        pod: core/v1 Pod as the API server has it, as JSON.
        settings: settings of the pilot.
    """
    spec: Json = pod.get("spec", {})
    regular, init = _by_name(spec.get("containers")), _by_name(spec.get("initContainers"))
    faults: list[str] = []
    if not spec.get("shareProcessNamespace"):
        faults.append("set shareProcessNamespace: true; otherwise jobs cannot be signalled and measured")
    if spec.get("automountServiceAccountToken") is not False:
        faults.append("set automountServiceAccountToken: false; otherwise the job gets an API token")
    needed = settings.vacate_seconds + KILLING_SECONDS + MARGIN_SECONDS
    if has_condor(spec, settings) and spec.get("terminationGracePeriodSeconds", 30) < needed:
        faults.append(
            f"set terminationGracePeriodSeconds to {needed} or more; otherwise evicted jobs are killed at once"
        )
    name = settings.payload_container
    payload = init.get(name)
    if name in regular:
        faults.append(f"make {name} an init container with restartPolicy: Always; otherwise the pod never completes")
    elif payload is None:
        faults.append(f"add an init container {name} with restartPolicy: Always, in which the jobs run")
    elif payload.get("restartPolicy") != "Always":
        faults.append(f"set restartPolicy: Always for the init container {name}; otherwise the pilot never starts")
    if PILOT not in regular:
        faults.append(f"give the name {PILOT} to the container that runs k8spilot")
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
    """Return whether HTCondor runs in the pod, in the engine's container or in its own."""
    return "condor" in settings.services or ENGINE in _by_name(spec.get("initContainers"))


def _apart_faults(engine: Json, pilot: Json, spec: Json, settings: Settings) -> Iterator[str]:
    """Check that HTCondor cannot reach the engine's data, nor the engine HTCondor's."""
    if engine.get("restartPolicy") != "Always":
        yield f"set restartPolicy: Always for the init container {ENGINE}; otherwise {PILOT} never starts"
    uids = [security_context(container, spec).get("runAsUser") for container in (engine, pilot)]
    if None in uids or len({*uids, settings.payload_uid}) < 3:
        yield (
            f"set runAsUser to different numbers for {ENGINE} and {PILOT}, and to others than the jobs' "
            f"{settings.payload_uid}; otherwise one can read the other's files"
        )
    engine_secrets = set(_secrets_in(engine, spec))
    for secret in sorted(set(_secrets_in(pilot, spec)) & engine_secrets):
        yield f"give the secret {secret} to only one of {ENGINE} and {PILOT}"
    exchange = _mounts(engine).get(str(settings.exchange))
    volumes = _by_name(spec.get("volumes"))
    for mount in pilot.get("volumeMounts", []):
        if exchange is not None and mount["name"] == exchange["name"]:
            yield f"do not mount {mount['name']} in {PILOT}: HTCondor could control payload-init in place of the engine"
        sources = volumes.get(mount["name"], {}).get("projected", {}).get("sources", [])
        if any("serviceAccountToken" in source for source in sources):
            yield f"do not mount {mount['name']} in {PILOT}: HTCondor could follow a job's link to the API token"


def _order_faults(payload: Json, spec: Json, settings: Settings) -> Iterator[str]:
    """Check that payload-init is installed before the payload container starts; kustomize's patches can change that."""
    programs = _mounts(payload).get(f"{settings.exchange}/bin")
    if programs is None:
        return  # reported below
    before = spec["initContainers"][
        : [container["name"] for container in spec["initContainers"]].index(payload["name"])
    ]
    fillers = [
        container
        for container in before
        for mount in container.get("volumeMounts", [])
        if mount["name"] == programs["name"] and not mount.get("readOnly")
    ]
    if settings.payload_uid in [security_context(container, spec).get("runAsUser") for container in fillers]:
        yield (
            "set runAsUser of the container that runs `k8spilot install` to another number than the jobs' "
            f"{settings.payload_uid}; otherwise jobs can reach their container's termination log"
        )
    if not fillers:
        yield (
            f"put an init container that runs `k8spilot install`, with the volume {programs['name']} at "
            f"{settings.exchange}/bin, before {payload['name']}"
        )


def _probe_faults(engine: Json, settings: Settings) -> Iterator[str]:
    """Check that the kubelet's probes use the engine's port: the kubelet kills a pilot that does not answer."""
    ports = {port.get("name"): port["containerPort"] for port in engine.get("ports", [])}
    for probe in ("startupProbe", "livenessProbe"):
        port = engine.get(probe, {}).get("httpGet", {}).get("port")
        if port is None or "engine" not in settings.services or ports.get(port, port) == settings.metrics_port:
            continue
        correction = (
            f"let {probe} of {engine['name']} use port {settings.metrics_port}"
            if settings.metrics_port
            else f"remove {probe}"
        )
        yield f"{correction} (K8SPILOT_METRICS_PORT is {settings.metrics_port}); otherwise a healthy pilot is killed"


def _program_faults(payload: Json, settings: Settings) -> Iterator[str]:
    """Check that the payload container runs payload-init with any image, and that payload-init knows its bind."""
    name = settings.payload_container
    if payload.get("imagePullPolicy") == "Never":
        yield f"set imagePullPolicy: IfNotPresent for {name}; otherwise no job's image can be pulled"
    command = [str(settings.exchange / PROGRAM), str(settings.exchange / SOCKET)]
    if payload.get("command") != command or payload.get("args"):
        yield f"set the command of {name} to {json.dumps(command)}, without args"
    log = str(settings.exchange / TERMINATION_LOG)
    if payload.get("terminationMessagePath") != log:
        yield (
            f"set terminationMessagePath: {log} for {name}; otherwise each job can fill the node's disk with its "
            "termination log, which no limit counts"
        )
    fields = {
        variable["name"]: variable.get("valueFrom", {}).get("fieldRef", {}) for variable in payload.get("env", [])
    }
    if fields.get(_BIND[0], {}).get("fieldPath") != _BIND[1]:
        yield (
            f'give {name} the variable {_BIND[0]} with valueFrom: {{fieldRef: {{fieldPath: "{_BIND[1]}"}}}}; otherwise '
            "the engine cannot tell for which image the container was created"
        )


def _payload_faults(payload: Json, spec: Json, settings: Settings) -> Iterator[str]:
    name = settings.payload_container
    if has_condor(spec, settings):
        yield from size_faults(payload, settings)
    security = security_context(payload, spec)
    if security.get("privileged") or security.get("capabilities", {}).get("add"):
        yield f"remove all privileges from {name}, which runs other people's programs"
    if security.get("allowPrivilegeEscalation") is not False:
        yield (
            f"set allowPrivilegeEscalation: false for {name}; otherwise a set-uid program of an image makes its job "
            "root, which can signal the pilot"
        )
    if security.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
        yield (
            f"set seccompProfile: {{type: RuntimeDefault}} for {name}; otherwise a job could leave keys in the kernel "
            "for the next job"
        )
    for shared in ("hostNetwork", "hostIPC"):
        if spec.get(shared):
            yield f"remove {shared}; otherwise jobs can reach the node's own programs"
    if (security.get("runAsUser"), security.get("runAsGroup")) != (settings.payload_uid, settings.payload_gid):
        yield (
            f"set runAsUser: {settings.payload_uid} and runAsGroup: {settings.payload_gid} for {name}, or set "
            "K8SPILOT_PAYLOAD_UID and K8SPILOT_PAYLOAD_GID to its own"
        )
    for secret in _secrets_in(payload, spec):
        yield f"remove the secret {secret} from {name}, where every job could read it"


def _secrets_in(container: Json, spec: Json) -> Iterator[str]:
    """Yield the secrets that a container can read: mounted, projected or in its environment."""
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
    name, payload_mounts = settings.payload_container, _mounts(payload)
    execute, slot = str(settings.execute), f"{settings.execute}/slot"
    sandboxes = _mounts(pilot).get(execute)
    if engine is pilot:
        if not _is_shared(payload_mounts.get(execute), sandboxes):
            yield f"mount the volume execute at {execute} in both {name} and {PILOT}"
    elif (
        not _is_shared(payload_mounts.get(slot), sandboxes)
        or payload_mounts[slot].get("subPath") != "slot"
        or execute in payload_mounts
    ):
        # Without root, no process could take the volume's own folder from the job.
        yield (
            f"mount the volume execute at {execute} in {PILOT}, and its subPath: slot at {slot} in {name}; otherwise a "
            "job could replace that folder"
        )


def _volume_faults(payload: Json, pilot: Json, engine: Json, spec: Json, settings: Settings) -> Iterator[str]:
    yield from _sandbox_faults(payload, pilot, engine, settings)
    name, other = settings.payload_container, engine["name"]
    payload_mounts, engine_mounts = _mounts(payload), _mounts(engine)
    exchange, execute, slot = str(settings.exchange), str(settings.execute), f"{settings.execute}/slot"
    if not _is_shared(payload_mounts.get(exchange), engine_mounts.get(exchange)):
        yield f"mount the volume exchange at {exchange} in both {name} and {other}"
    programs = f"{exchange}/bin"
    if not payload_mounts.get(programs, {}).get("readOnly"):
        yield (
            f"mount a separate volume at {programs} in {name} with readOnly: true (the one that `k8spilot install` "
            "fills); otherwise an image could contain its own payload-init there"
        )
    if exchange in payload_mounts and not payload_mounts[exchange].get("readOnly"):
        yield f"mount {exchange} with readOnly: true in {name}; otherwise a job could change the next job's programs"
    for path in PAYLOAD_TEMPORARY:
        if path not in payload_mounts:
            yield f"mount an emptyDir at {path} in {name}, which the pilot can empty between jobs"
    emptied = {
        engine_mounts[str(folder)]["name"] for folder in settings.scratch_folders if str(folder) in engine_mounts
    }
    for path, mount in payload_mounts.items():
        if (
            path in (exchange, programs, execute, slot, *CLEANED_OTHERWISE)
            or mount.get("readOnly")
            or _is_read_only(mount, spec)
        ):
            continue
        if mount["name"] not in emptied:
            yield (
                f"mount the volume {mount['name']} ({path} in {name}) in {other} as well and name the folder in "
                "K8SPILOT_SCRATCH_FOLDERS, or mount it with readOnly: true; otherwise a job could leave files for the "
                "next job"
            )


def _is_shared(mount: Json | None, other: Json | None) -> bool:
    return mount is not None and other is not None and mount["name"] == other["name"]


def _is_read_only(mount: Json, spec: Json) -> bool:
    volume = _by_name(spec.get("volumes")).get(mount["name"], {})
    return any(kind in volume for kind in ("configMap", "secret", "projected", "downwardAPI", "image"))


def _mounts(container: Json) -> dict[str, Json]:
    return {mount["mountPath"].rstrip("/"): mount for mount in container.get("volumeMounts", [])}


def _by_name(items: list[Json] | None) -> dict[str, Json]:
    return {item["name"]: item for item in items or []}


def group_warnings(pod: Json, version: str) -> Iterator[str]:
    """Check that images cannot add jobs to groups, if the API server supports it (`version`, as v1.36.3)."""
    match = re.match(r"v1\.(\d+)", version)
    policy = pod.get("spec", {}).get("securityContext", {}).get("supplementalGroupsPolicy")
    if match is not None and int(match[1]) >= _STRICT_SINCE and policy != "Strict":
        yield (
            "set securityContext: {supplementalGroupsPolicy: Strict} if the node's runtime supports it (containerd "
            "2.0, CRI-O 1.31); otherwise jobs are held whose image has their user in its /etc/group"
        )


def shape_warnings(pod: Json, settings: Settings) -> Iterator[str]:
    """Yield problems that a pilot can run with, each as a phrase that says what to do."""
    spec: Json = pod.get("spec", {})
    containers: list[Json] = [*spec.get("initContainers", ()), *spec.get("containers", ())]
    for payload in [container for container in containers if container["name"] == settings.payload_container]:
        others = [container for container in containers if container is not payload]
        yield from gpu_warnings(payload, others)
        yield from size_warnings(payload, others)
    deadline = spec.get("activeDeadlineSeconds")
    if has_condor(spec, settings) and deadline is not None and settings.life_seconds > deadline:
        yield (
            f"set GLIDEIN_Max_Walltime to {max(deadline - settings.vacate_seconds - 60, 60)} or less, or remove "
            f"activeDeadlineSeconds ({deadline}); otherwise the kubelet ends the pod before the pilot's own end"
        )
