"""Checks of the pod's spec: fields that the pilot relies on, and fields that isolate a job.

Without these checks, an invalid spec would show as one failed job after another, far from its cause.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from k8spilot.gpu.discovery.claims import NO_CLAIMS, Claims
from k8spilot.gpu.discovery.pod_request import PodRequest
from k8spilot.kube.pod import security_context
from k8spilot.kube.relist import why_not
from k8spilot.payload_init.install import PROGRAM, SOCKET, TERMINATION_LOG
from k8spilot.preflight.gpus import gpu_warnings, shared_claims, unused_claims
from k8spilot.preflight.pod_volumes import by_name, mounts_of, volume_faults
from k8spilot.preflight.slot_size import size_faults, size_warnings
from k8spilot.settings import ENGINE, KILLING_SECONDS, MARGIN_SECONDS, PILOT, Settings, SlotSettings

_STRICT_SINCE: Final = 33
"""First Kubernetes 1.x with supplementalGroupsPolicy by default (KEP-3619)."""

_BIND: Final = "K8SPILOT_BIND"
"""Variable that payload-init sends in its hello (payload-init.c)."""

Json = dict[str, Any]


def shape_faults(pod: Json, settings: Settings, claims: Claims = NO_CLAIMS) -> list[str]:
    """Return what is wrong with the pod, each as a phrase that says what to do.

    Args:
        pod: core/v1 Pod as the API server has it, as JSON.
        settings: settings of the pilot.
        claims: claims of the pod, as far as they are known.
    """
    spec: Json = pod.get("spec", {})
    regular, init = by_name(spec.get("containers")), by_name(spec.get("initContainers"))
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
    for slot in settings.slots:
        faults += _place_faults(slot.container, regular, init)
    if PILOT not in regular:
        faults.append(f"give the name {PILOT} to the container that runs k8spilot")
        return faults
    pilot = regular[PILOT]
    engine = init.get(ENGINE, pilot)
    faults += _probe_faults(engine, settings)
    if engine is not pilot and len(settings.slots) > 1 and not settings.confine_starter:
        faults.append(
            "remove K8SPILOT_CONFINE_STARTER=false, or use one payload container: without root, the starters of all "
            "slots are one user, and a job could read other jobs' files through a starter that is not confined"
        )
    if engine is not pilot:
        faults += _apart_faults(engine, pilot, spec, settings)
    faults += shared_claims([init[slot.container] for slot in settings.slots if slot.container in init])
    for slot in settings.slots:
        if (payload := init.get(slot.container)) is not None:
            faults += _order_faults(payload, slot, spec, settings)
            faults += _program_faults(payload, slot, settings)
            faults += _payload_faults(payload, slot, spec=spec, settings=settings, claims=claims)
            faults += volume_faults(payload, slot, pilot=pilot, engine=engine, spec=spec, settings=settings)
    return faults


def _place_faults(name: str, regular: dict[str, Json], init: dict[str, Json]) -> Iterator[str]:
    """Check that a payload container is a native sidecar."""
    if name in regular:
        yield f"make {name} an init container with restartPolicy: Always; otherwise the pod never completes"
    elif name not in init:
        yield f"add an init container {name} with restartPolicy: Always, in which the jobs run"
    elif init[name].get("restartPolicy") != "Always":
        yield f"set restartPolicy: Always for the init container {name}; otherwise the pilot never starts"


def has_condor(spec: Json, settings: Settings) -> bool:
    """Return whether HTCondor runs in the pod, in the engine's container or in its own."""
    return "condor" in settings.services or ENGINE in by_name(spec.get("initContainers"))


def _apart_faults(engine: Json, pilot: Json, spec: Json, settings: Settings) -> Iterator[str]:
    """Check that HTCondor cannot reach the engine's data, nor the engine HTCondor's."""
    if engine.get("restartPolicy") != "Always":
        yield f"set restartPolicy: Always for the init container {ENGINE}; otherwise {PILOT} never starts"
    uids = [security_context(container, spec).get("runAsUser") for container in (engine, pilot)]
    of_jobs = {slot.uid for slot in settings.slots}
    if None in uids or len({*uids, *of_jobs}) < 2 + len(of_jobs):
        yield (
            f"set runAsUser to different numbers for {ENGINE} and {PILOT}, and to others than the jobs' "
            f"{', '.join(map(str, sorted(of_jobs)))}; otherwise one can read the other's files"
        )
    engine_secrets = set(_secrets_in(engine, spec))
    for secret in sorted(set(_secrets_in(pilot, spec)) & engine_secrets):
        yield f"give the secret {secret} to only one of {ENGINE} and {PILOT}"
    exchange = mounts_of(engine).get(str(settings.exchange))
    volumes = by_name(spec.get("volumes"))
    for mount in pilot.get("volumeMounts", []):
        if exchange is not None and mount["name"] == exchange["name"]:
            yield f"do not mount {mount['name']} in {PILOT}: HTCondor could control payload-init in place of the engine"
        sources = volumes.get(mount["name"], {}).get("projected", {}).get("sources", [])
        if any("serviceAccountToken" in source for source in sources):
            yield f"do not mount {mount['name']} in {PILOT}: HTCondor could follow a job's link to the API token"


def _order_faults(payload: Json, slot: SlotSettings, spec: Json, settings: Settings) -> Iterator[str]:
    """Check that payload-init is installed before the payload container starts; kustomize's patches can change that."""
    programs = mounts_of(payload).get(f"{settings.exchange}/bin")
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
    if slot.uid in [security_context(container, spec).get("runAsUser") for container in fillers]:
        yield (
            "set runAsUser of the container that runs `k8spilot install` to another number than the jobs' "
            f"{slot.uid}; otherwise jobs can reach their container's termination log"
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


def _program_faults(payload: Json, slot: SlotSettings, settings: Settings) -> Iterator[str]:
    """Check that the payload container runs payload-init with any image, and that payload-init knows its bind."""
    name = slot.container
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
    field = f"metadata.annotations['{slot.bind_annotation}']"
    if fields.get(_BIND, {}).get("fieldPath") != field:
        yield (
            f'give {name} the variable {_BIND} with valueFrom: {{fieldRef: {{fieldPath: "{field}"}}}}; otherwise '
            "the engine cannot tell for which image the container was created"
        )


def _payload_faults(payload: Json, slot: SlotSettings, spec: Json, settings: Settings, claims: Claims) -> Iterator[str]:
    name = slot.container
    if has_condor(spec, settings):
        yield from size_faults(payload, settings)
    request = PodRequest.of(payload, claims)
    if not slot.is_only and not request.uncounted and request.count != slot.gpus:
        correction = (
            f"give {name} {slot.gpus} GPUs in place of {request.count}" if slot.gpus else (f"remove the GPUs of {name}")
        )
        yield (
            f"{correction}, or correct K8SPILOT_GPU_CONTAINERS and K8SPILOT_CONTAINER_GPUS; `k8spilot slots` makes "
            "such a manifest"
        )
    yield from _security_faults(name, security_context(payload, spec), slot, settings)
    for shared in ("hostNetwork", "hostIPC"):
        if spec.get(shared):
            yield f"remove {shared}; otherwise jobs can reach the node's own programs"
    for secret in _secrets_in(payload, spec):
        yield f"remove the secret {secret} from {name}, where every job could read it"


def _security_faults(name: str, security: Json, slot: SlotSettings, settings: Settings) -> Iterator[str]:
    """Check the rights of the jobs' processes."""
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
    if (security.get("runAsUser"), security.get("runAsGroup")) != (slot.uid, slot.gid):
        yield (
            f"set runAsUser: {slot.uid} and runAsGroup: {slot.gid} for {name}, or set "
            "K8SPILOT_PAYLOAD_UID and K8SPILOT_PAYLOAD_GID to its own"
        )
    if settings.reuse and not security.get("readOnlyRootFilesystem"):
        yield (
            f"set readOnlyRootFilesystem: true for {name}, as the components restricted and read-only-payload do, or "
            "remove K8SPILOT_REUSE; otherwise jobs of one claim could leave each other files in their image"
        )


def _secrets_in(container: Json, spec: Json) -> Iterator[str]:
    """Yield the secrets that a container can read: mounted, projected or in its environment."""
    volumes = by_name(spec.get("volumes"))
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


def group_warnings(pod: Json, version: str) -> Iterator[str]:
    """Check that images cannot add jobs to groups, if the API server supports it (`version`, as v1.36.3)."""
    match = re.match(r"v1\.(\d+)", version)
    policy = pod.get("spec", {}).get("securityContext", {}).get("supplementalGroupsPolicy")
    if match is not None and int(match[1]) >= _STRICT_SINCE and policy != "Strict":
        yield (
            "set securityContext: {supplementalGroupsPolicy: Strict} if the node's runtime supports it (containerd "
            "2.0, CRI-O 1.31); otherwise jobs are held whose image has their user in its /etc/group"
        )


def shape_warnings(pod: Json, settings: Settings, claims: Claims = NO_CLAIMS) -> Iterator[str]:
    """Yield problems that a pilot can run with, each as a phrase that says what to do."""
    spec: Json = pod.get("spec", {})
    containers: list[Json] = [*spec.get("initContainers", ()), *spec.get("containers", ())]
    names = {slot.container for slot in settings.slots}
    others = [container for container in containers if container["name"] not in names]
    for payload in [container for container in containers if container["name"] in names]:
        yield from gpu_warnings(payload, others, claims)
        yield from size_warnings(payload, others)
        if settings.relist and (words := why_not(payload)):
            yield f"remove K8SPILOT_RELIST, which has no effect here: {words}"
    yield from unused_claims(spec, [one["name"] for one in containers if one["name"] in names])
    deadline = spec.get("activeDeadlineSeconds")
    if has_condor(spec, settings) and deadline is not None and settings.life_seconds > deadline:
        yield (
            f"set GLIDEIN_Max_Walltime to {max(deadline - settings.vacate_seconds - 60, 60)} or less, or remove "
            f"activeDeadlineSeconds ({deadline}); otherwise the kubelet ends the pod before the pilot's own end"
        )
