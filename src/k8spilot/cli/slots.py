"""`k8spilot slots`: a rendered manifest whose pod has several payload containers in place of one.

Kustomize cannot repeat a container. So this works on its output, after all overlays and components: whatever they have
changed in the payload container, all of its copies have.
"""

import copy
import logging
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import yaml

from k8spilot.cli.slot_shares import Shares, divide, together
from k8spilot.common.errors import SettingsError
from k8spilot.gpu.discovery.claims import NO_CLAIMS, Claims, requested_claims
from k8spilot.gpu.discovery.verdict import VISIBLE
from k8spilot.gpu.monitoring.sampler_volume import SIDECAR
from k8spilot.preflight.gpus import CLAIM_KINDS
from k8spilot.preflight.slot_size import quantity
from k8spilot.settings import ENGINE, PILOT, SLOT_SIZES, Settings, SlotSettings
from k8spilot.settings.slots import BIND

logger = logging.getLogger(__name__)

Json = dict[str, Any]

_FIRST_ID: Final = 64301
"""User and group id of the first payload container's jobs: the image's account job1 (Dockerfile)."""
_MORE_MEMORY: Final = {PILOT: {"requests": 32, "limits": 128}, ENGINE: {"requests": 4, "limits": 64}}
"""MiB that HTCondor's container needs for the programs of one job more, and the engine's for its requests."""
_EXECUTE: Final = str(Settings.execute)
_INSTALL: Final = "install"
_COPY: Final = re.compile(rf"{Settings.payload_container}-\d+")
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108
_SHM: Final = "shm"
"""Volume at /dev/shm of the payload containers."""
_SHM_FOLDER: Final = "/k8spilot-payload/shm"
"""Where the engine's container has it."""
_EXCHANGE: Final = "exchange"
_KNOWN: Final = {
    "POD_NAME": "any",
    "POD_NAMESPACE": "any",
    "K8SPILOT_SERVICES": "engine",
    "K8SPILOT_PAYLOAD_UID": str(_FIRST_ID),
    "K8SPILOT_PAYLOAD_GID": str(_FIRST_ID),
}
"""Variables from which the slots follow, and those that are required and do not matter here."""


def with_slots(
    text: str, number: int, *, equal: bool = False, gpu_containers: int | None = None, only: str | None = None
) -> str:
    """Return the manifest `text` with `number` payload containers, of one partitionable slot or `equal` in size.

    The GPUs of the payload container are those of the last `gpu_containers`, None for all. Each of these has a slot of
    its own. With `only`, the pods of objects with another name stay as they are.

    Raises:
        SettingsError: it is not YAML, has no payload container, or that has too little for so many.
    """
    try:
        documents = [item for item in yaml.safe_load_all(text) if item is not None]
    except yaml.YAMLError as error:
        raise SettingsError(f"the manifest is not YAML: {' '.join(str(error).split())}") from error
    chosen = [item for item in documents if only is None or item.get("metadata", {}).get("name") == only]
    specs = [spec for item in chosen for spec in _pod_specs(item) if _payload_place(spec) is not None]
    if not specs:
        of = f"no object {only} whose pod has" if only is not None else "no pod with"
        raise SettingsError(
            f"the manifest has {of} an init container {Settings.payload_container}; give the output of "
            "`kubectl kustomize`, before it has several payload containers"
        )
    shared = []
    claim_objects = [one for kind in CLAIM_KINDS.values() for one in _objects(documents, kind)]
    for spec in specs:
        of_gpus = multiply(spec, number, gpu_containers, requested_claims(spec, claim_objects))
        if not equal and of_gpus < number:
            make_partitionable(spec, number - of_gpus)
            shared.append(spec)
    if shared:
        accounts = {str(spec.get("serviceAccountName", "default")) for spec in shared}
        rights = list(_resize_rights(documents, accounts))
        if not rights:
            logger.warning(
                "The manifest binds no Role to the service account %s: let it patch pods/resize, or the slots "
                "will be of equal size.",
                ", ".join(sorted(accounts)),
            )
        documents += rights
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=1000)


class _Dumper(yaml.SafeDumper):
    """Writes YAML 1.1 whose texts stay texts for readers of YAML 1.2, which take 1e3 for a number."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if re.fullmatch(r"[-+.]?\d[\w.+-]*", text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _pod_specs(item: object) -> Iterator[Json]:
    """Yield the specifications of pods in an object, at any depth: of a Pod, a Job, a Deployment, a List."""
    if isinstance(item, dict):
        if isinstance(item.get("containers"), list) and isinstance(item.get("initContainers"), list):
            yield item
        else:
            for value in item.values():
                yield from _pod_specs(value)
    elif isinstance(item, list):
        for value in item:
            yield from _pod_specs(value)


def _payload_place(spec: Json) -> int | None:
    names = [container.get("name") for container in spec["initContainers"]]
    return names.index(Settings.payload_container) if Settings.payload_container in names else None


def multiply(spec: Json, number: int, gpu_containers: int | None = None, claims: Claims = NO_CLAIMS) -> int:
    """Give a pod's specification `number` payload containers in place of one. Return how many have GPUs.

    Args:
        spec: specification of the pod.
        number: number of payload containers.
        gpu_containers: number of those with GPUs; None for all.
        claims: what the claims of the pod request, as far as the manifest says.

    Raises:
        SettingsError: the payload container has too little for so many.
    """
    place = _payload_place(spec)
    assert place is not None
    payload = spec["initContainers"][place]
    _check(spec, payload)
    shares = divide(payload, number, gpu_containers, claims)
    of_gpus = {"K8SPILOT_GPU_CONTAINERS": str(shares.gpu_containers), "K8SPILOT_CONTAINER_GPUS": str(shares.gpus)}
    known = Settings.of(_KNOWN | of_gpus | {"K8SPILOT_PAYLOAD_CONTAINERS": str(number)})
    slots = known.slots
    spec["initContainers"][place : place + 1] = [_copy(payload, slot, shares, known) for slot in slots]
    _repeat_claims(spec, payload, known.gpu_slots)
    spec.setdefault("volumes", []).append({"name": _SHM, "emptyDir": {"medium": "Memory"}})
    for container in (*spec["initContainers"], *spec["containers"]):
        if container["name"] == _INSTALL:
            _install(container, slots, known)
        elif container["name"] in _MORE_MEMORY:
            _report(container, known)
            _enlarge(container, number)
            mounts = container["volumeMounts"]
            if any(mount["name"] == _EXCHANGE for mount in mounts):  # it has the engine
                mounts.append({"name": _SHM, "mountPath": _SHM_FOLDER})
    return shares.gpu_containers


def make_partitionable(spec: Json, number: int) -> None:
    """Let the first `number` payload containers of a pod's specification share what they have together.

    Raises:
        SettingsError: it cannot be computed what that is.
    """
    if "resources" in spec:
        raise SettingsError("the pod has resources of its own; remove spec.resources, which k8spilot computes")
    lasting = [
        *(container for container in spec["initContainers"] if container.get("restartPolicy") == "Always"),
        *spec["containers"],
    ]
    payloads = [one for one in lasting if _COPY.fullmatch(one["name"])]
    spec["resources"] = {kind: together(lasting, kind, number) for kind in ("requests", "limits")}
    limits = payloads[0]["resources"]["limits"]
    literals = {
        "PAYLOAD_CPUS": str(round(quantity(limits["cpu"]))),
        "PAYLOAD_MEMORY_MB": str(round(quantity(limits["memory"]) / 2**20)),
    }
    for container in lasting:
        if container["name"] in _MORE_MEMORY:  # a container that starts anew would see the size of the present job
            variables = [one for one in container["env"] if one["name"] not in literals]
            added = {**(literals if container["name"] == PILOT else {}), SLOT_SIZES: "requested"}
            container["env"] = [*variables, *({"name": name, "value": value} for name, value in added.items())]


def _resize_rights(documents: list[object], accounts: set[str]) -> Iterator[Json]:
    """Yield a Role and a RoleBinding for `pods/resize`, for each of the pods' service accounts that has a binding.

    They have names of their own: other pilots of the namespace, which do not need the right, do not take it away when
    they are applied.
    """
    done: set[tuple[str, str]] = set()
    for binding in _objects(documents, "RoleBinding"):
        for subject in binding.get("subjects") or ():
            key = str(subject.get("namespace")), str(subject.get("name"))
            if subject.get("kind") != "ServiceAccount" or key[1] not in accounts or key in done:
                continue
            done.add(key)
            kept = {name: binding["metadata"][name] for name in ("namespace", "labels") if name in binding["metadata"]}
            metadata = {**kept, "name": f"{key[1]}-resize"}
            rule = {"apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"]}
            yield {"apiVersion": binding["apiVersion"], "kind": "Role", "metadata": metadata, "rules": [rule]}
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": metadata["name"]}
            kind = {"apiVersion": binding["apiVersion"], "kind": "RoleBinding"}
            yield {**kind, "metadata": metadata, "roleRef": role, "subjects": [subject]}


def _objects(item: object, kind: str) -> Iterator[Json]:
    """Yield the objects of a kind, at any depth."""
    if isinstance(item, list):
        for value in item:
            yield from _objects(value, kind)
    elif isinstance(item, dict):
        if item.get("kind") == kind:
            yield item
        else:
            yield from _objects(item.get("items"), kind)


def _check(spec: Json, payload: Json) -> None:
    """Check that the payload container can be repeated.

    Raises:
        SettingsError: it cannot.
    """
    if any(volume["name"] == _SHM for volume in spec.get("volumes") or ()):
        raise SettingsError(f"the pod has a volume {_SHM} already, which k8spilot adds; give yours another name")
    for mount in payload.get("volumeMounts", ()):
        path = mount["mountPath"]
        is_part = mount.get("subPathExpr") or (mount.get("subPath") and not path.startswith(_EXECUTE))
        if path.rstrip("/") == _SHARED_MEMORY or is_part:
            raise SettingsError(
                f"the payload container mounts {mount['name']} at {path} in a way that k8spilot does not repeat (a "
                "subPath, or shared memory); remove that mount, or use one payload container"
            )


def _copy(payload: Json, slot: SlotSettings, shares: Shares, settings: Settings) -> Json:
    """Return a payload container of several."""
    own = copy.deepcopy(payload)
    own["name"], own["resources"] = slot.container, copy.deepcopy(shares.with_gpus if slot.gpus else shares.plain)
    if settings.gpu_slots and not slot.gpus:  # an image may set the variable, for which a node's runtime gives GPUs
        variables = [one for one in own.get("env") or () if one["name"] != VISIBLE]
        own["env"] = [*variables, {"name": VISIBLE, "value": "void"}]
    own.setdefault("securityContext", {}).update(runAsUser=slot.uid, runAsGroup=slot.gid)
    for variable in own.get("env", ()):
        reference = variable.get("valueFrom", {}).get("fieldRef", {})
        if reference.get("fieldPath") == f"metadata.annotations['{BIND}']":
            reference["fieldPath"] = f"metadata.annotations['{slot.bind_annotation}']"
    programs, execute = f"{settings.exchange}/bin", str(settings.execute)
    for mount in own.get("volumeMounts", ()):
        path = mount["mountPath"].rstrip("/")
        if path == execute or path.startswith(f"{execute}/"):
            mount.update(mountPath=str(slot.execute), subPath=slot.sub_path)
        elif path != programs and (path == str(settings.exchange) or not mount.get("readOnly")):
            mount["subPath"] = slot.sub_path
    own.setdefault("volumeMounts", []).append({"name": _SHM, "mountPath": _SHARED_MEMORY, "subPath": slot.sub_path})
    return own


def _repeat_claims(spec: Json, payload: Json, gpu_slots: Sequence[SlotSettings]) -> None:
    """Give each payload container with GPUs claims of its own, in place of those of the one container.

    A claim in the pod is for one ResourceClaim, so that containers with the same claim would have the same devices.

    Raises:
        SettingsError: a claim is not made from a template, or another container has it, too.
    """
    entries = (payload.get("resources") or {}).get("claims") or []
    names = dict.fromkeys(entry["name"] for entry in entries)
    if not names:
        return
    own: list[Json] = []
    for claim in [one for one in spec.get("resourceClaims") or () if one["name"] in names]:
        if "resourceClaimTemplateName" not in claim:
            raise SettingsError(
                f"the claim {claim['name']} of the payload container is one ResourceClaim, which several payload "
                "containers would share; use resourceClaimTemplateName"
            )
        own += [{**claim, "name": f"{claim['name']}-{slot.number}"} for slot in gpu_slots]
    spec["resourceClaims"] = [*(one for one in spec["resourceClaims"] if one["name"] not in names), *own]
    repeated = {
        slot.container: [{**one, "name": f"{one['name']}-{slot.number}"} for one in entries] for slot in gpu_slots
    }
    for container in (*spec["initContainers"], *spec["containers"]):
        claims = (container.get("resources") or {}).get("claims") or ()
        if container["name"] == SIDECAR:
            container["resources"]["claims"] = [entry for own_entries in repeated.values() for entry in own_entries]
        elif container["name"] in repeated:
            container["resources"]["claims"] = repeated[container["name"]]
        elif shared := next((one["name"] for one in claims if one["name"] in names), None):
            raise SettingsError(
                f"the container {container['name']} has the claim {shared} of the payload container, too, which "
                "becomes a claim for each payload container; give it another one"
            )


def _install(container: Json, slots: tuple[SlotSettings, ...], settings: Settings) -> None:
    """Let `k8spilot install` make the parts of the volumes that the payload containers mount."""
    folders = [folder for slot in slots for folder in (slot.exchange / "bin", slot.execute)]
    args = container.get("args") or [_INSTALL]
    container["args"] = [*args, *(word for folder in folders for word in ("--folder", str(folder)))]
    mounts = container.setdefault("volumeMounts", [])
    if all(mount["mountPath"] != str(settings.execute) for mount in mounts):
        mounts.append({"name": "execute", "mountPath": str(settings.execute)})


def _report(container: Json, settings: Settings) -> None:
    """Set the variables of the pilot, or of a part of it that has a container of its own."""
    variables = container.setdefault("env", [])
    for variable in variables:
        reference = variable.get("valueFrom", {}).get("resourceFieldRef", {})
        if reference.get("containerName") == settings.payload_container:
            reference["containerName"] = settings.slots[0].container
    variables += [
        {"name": "K8SPILOT_PAYLOAD_CONTAINERS", "value": str(settings.payload_containers)},
        {"name": "K8SPILOT_PAYLOAD_UID", "value": str(settings.payload_uid)},
        {"name": "K8SPILOT_PAYLOAD_GID", "value": str(settings.payload_gid)},
        {"name": "K8SPILOT_SHARED_MEMORY", "value": _SHM_FOLDER},
    ]
    if settings.gpu_slots:
        variables += [
            {"name": "K8SPILOT_GPU_CONTAINERS", "value": str(settings.gpu_containers)},
            {"name": "K8SPILOT_CONTAINER_GPUS", "value": str(settings.container_gpus)},
        ]


def _enlarge(container: Json, number: int) -> None:
    """Give a container of the pilot memory for more jobs."""
    for kind, more in _MORE_MEMORY[container["name"]].items():
        values = (container.get("resources") or {}).get(kind) or {}
        if (value := values.get("memory")) is not None and re.match(r"\d", str(value)):
            values["memory"] = f"{round(quantity(value) / 2**20) + more * (number - 1)}Mi"
