"""Checks of a pilot's manifest without a cluster: the output of `kubectl kustomize`, or any list of objects.

The checks find pods and the pod templates of controllers, the settings from ConfigMaps and from the containers'
environment, and the rights of the service account. Objects that exist in the cluster only (usually Secrets) cannot be
checked. Such an object is a warning if the pod does not start without it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import yaml

from k8spilot.common.errors import SettingsError
from k8spilot.gpu.discovery.claims import requested_claims
from k8spilot.kube.client import ACCOUNT
from k8spilot.preflight.finding import Finding, fault, good, judged, warning
from k8spilot.preflight.gpus import CLAIM_KINDS, claim_objects, controller_claims
from k8spilot.preflight.network_policies import network_findings
from k8spilot.preflight.pilot_container import CAPABILITIES
from k8spilot.preflight.pod_spec import shape_faults, shape_warnings
from k8spilot.preflight.rights import CLAIMS, RELIST, RIGHTS, WISHES, wishes
from k8spilot.preflight.settings import policy_findings, settings_findings, unknown_findings
from k8spilot.preflight.slot_size import is_placeholder, quantity
from k8spilot.settings import ENGINE, PILOT, Settings, variables

Json = dict[str, Any]

_MANY: Final = 1_000_000
"""Number of binds that no pilot reaches in its life."""
_UNKNOWN: Final = "unknown-until-it-runs"


def manifest_findings(text: str) -> list[Finding]:
    """Check all pods in a manifest.

    Raises:
        SettingsError: the manifest is invalid, or it has no pod.
    """
    try:
        return _findings(_Objects.parse(text))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise SettingsError(
            f"the manifest has an object of an invalid form ({type(error).__name__}: {error}); "
            "`kubectl apply --dry-run=server` shows where"
        ) from error


def pilot_environment(text: str) -> dict[str, str]:
    """Return the variables of the first pilot in a manifest, as far as the manifest defines them.

    Raises:
        SettingsError: the manifest is invalid, or it has no pilot.
    """
    return environment_in(_Objects.parse(text).all)


def environment_in(objects: Sequence[Json]) -> dict[str, str]:
    """Return the variables of the first pilot among Kubernetes objects, as far as these define them.

    Raises:
        SettingsError: there is no pilot.
    """
    found = _Objects(objects)
    for pod in found.pods():
        for container in pod["spec"]["containers"]:
            if container.get("name") == PILOT:
                return _environment(pod, container, found)[0]
    raise SettingsError(f"the manifest has no pod with a container {PILOT}; give the output of `kubectl kustomize`")


def _findings(objects: "_Objects") -> list[Finding]:
    pods = [pod for pod in objects.pods() if PILOT in _names(pod)] or list(objects.pods())
    if not pods:
        raise SettingsError(
            "the manifest has no Pod, and no object with a pod template (Job, Deployment); give the output of "
            "`kubectl kustomize`"
        )
    return [finding for pod in pods for finding in _pod_findings(pod, objects)]


class _Objects:
    """Objects of a manifest."""

    def __init__(self, objects: Sequence[Json]) -> None:
        self.all = objects

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the objects in a manifest."""
        try:
            documents = [item for item in yaml.safe_load_all(text) if item is not None]
        except yaml.YAMLError as error:
            raise SettingsError(f"the manifest is not YAML: {' '.join(str(error).split())}") from error
        if wrong := [item for item in documents if not isinstance(item, dict) or "kind" not in item]:
            raise SettingsError(f"the manifest has an object without a kind: {str(wrong[0])[:80]!r}")
        lists = [item for item in documents if item["kind"] == "List"]
        found: list[Json] = [item for item in documents if item["kind"] != "List"]
        return cls([*found, *(item for one in lists for item in one.get("items") or ())])

    def of(self, *kinds: str) -> list[Json]:
        """Return all objects of some kinds."""
        return [item for item in self.all if item.get("kind") in kinds]

    def named(self, kind: str, name: str) -> Json | None:
        """Return the object of that name, or None."""
        return next((item for item in self.of(kind) if item["metadata"].get("name") == name), None)

    def pods(self) -> Iterator[Json]:
        """Yield pods and pod templates, with their controllers."""
        for item in self.all:
            spec = item.get("spec") or {}
            owner = spec.get("jobTemplate", {}).get("spec") or spec
            pod = item if item["kind"] == "Pod" else owner.get("template")
            if isinstance(pod, dict) and "containers" in (pod.get("spec") or {}):
                metadata = {
                    "name": item["metadata"].get("name", ""),
                    "namespace": item["metadata"].get("namespace", ""),
                    "labels": (pod.get("metadata") or {}).get("labels") or {},
                }
                yield {
                    "metadata": metadata,
                    "spec": pod["spec"],
                    "about": f"{item['kind']}/{metadata['name']}",
                    "kind": item["kind"],
                    "owner": owner,
                }


def _names(pod: Json) -> set[str]:
    return {item.get("name", "") for item in pod["spec"]["containers"]}


def _pod_findings(pod: Json, objects: _Objects) -> Iterator[Finding]:
    about = pod["about"]
    pilot = next((item for item in pod["spec"]["containers"] if item.get("name") == PILOT), None)
    if pilot is None:
        yield fault(about, f"it has no container {PILOT}; give this name to the container that runs k8spilot")
        return
    environment, findings = _environment(pod, pilot, objects)
    yield from findings
    yield from unknown_findings(environment)
    try:
        settings = Settings.of(environment)
    except SettingsError as error:
        # The setting may be in a ConfigMap that exists in the cluster only.
        yield (warning if findings else fault)("settings", str(error))
        # The pod's spec can still be checked with the valid settings.
        places = {name: value for name, value in environment.items() if name in _PLACES}
        try:
            settings = Settings.of({"K8SPILOT_SERVICES": "engine", "POD_NAME": "pod", "POD_NAMESPACE": "all", **places})
        except SettingsError:
            return
    else:
        yield from settings_findings(settings)
        yield from policy_findings(settings)
    claims = requested_claims(pod["spec"], objects.of(*CLAIM_KINDS.values()))
    faults = [*shape_faults(pod, settings, claims), *_pilot_faults(pilot, pod["spec"], environment)]
    yield from judged(about, faults, "it has what a pilot needs")
    yield from (warning(about, words) for words in shape_warnings(pod, settings, claims))
    yield from (warning(about, words) for words in controller_claims(pod["spec"], pod["kind"]))
    yield from _job_faults(pod)
    yield from _rights(pod, settings, objects)
    yield from _missing(pod, objects)
    policies = [one for one in objects.of("NetworkPolicy") if _is_in_namespace(one, pod)]
    yield from network_findings(pod["metadata"]["labels"], policies, settings.metrics_port)


def _pilot_faults(pilot: Json, spec: Json, environment: Mapping[str, str]) -> Iterator[str]:
    """Yield faults that a running pilot would find in its own container."""
    containers = [*(spec.get("initContainers") or ()), *spec["containers"]]
    if images := sorted({str(item.get("image")) for item in containers if is_placeholder(str(item.get("image", "")))}):
        yield f"replace the image {', '.join(images)}, a placeholder, by the one that you have built"
    engine_container = next((item for item in spec.get("initContainers") or () if item.get("name") == ENGINE), None)
    engine = engine_container or pilot
    if ACCOUNT not in {Path(mount["mountPath"]) for mount in engine.get("volumeMounts") or ()}:
        yield (
            f"mount a projected serviceAccountToken at {ACCOUNT} in {engine['name']}; otherwise it cannot change the "
            "image in its own pod"
        )
    if engine_container is not None or "condor" not in environment.get("K8SPILOT_SERVICES", "condor"):
        return
    security = {**(spec.get("securityContext") or {}), **(pilot.get("securityContext") or {})}
    if security.get("runAsUser", 0) != 0 or security.get("runAsNonRoot"):
        yield f"set runAsUser: 0 for {PILOT}; otherwise HTCondor cannot protect a job's sandbox from other jobs"
    capabilities = security.get("capabilities") or {}
    added, dropped = (set(capabilities.get(what) or ()) for what in ("add", "drop"))
    if missing := [name for name in CAPABILITIES if {name, "ALL"} & dropped and not {name, "ALL"} & added]:
        yield f"add the capabilities {', '.join(missing)} in the securityContext of {PILOT}"


_PLACES: Final = frozenset(
    name for name, field in variables().items()
    if field.name in (
        "exchange", "execute", "scratch_folders", "metrics_port",
        "payload_containers", "gpu_containers", "container_gpus", "payload_container", "payload_uid", "payload_gid",
    )
)  # fmt: skip


def _environment(pod: Json, container: Json, objects: _Objects) -> tuple[dict[str, str], list[Finding]]:
    """Return the variables of a container, as far as the manifest defines them."""
    values: dict[str, str] = {}
    findings = []
    for source in container.get("envFrom") or ():
        reference = source.get("configMapRef")
        if reference is None:
            continue
        config_map = objects.named("ConfigMap", reference["name"])
        if config_map is not None:
            prefix = source.get("prefix", "")
            values |= {prefix + key: str(value) for key, value in (config_map.get("data") or {}).items()}
        elif not reference.get("optional"):
            findings.append(
                warning(
                    "settings",
                    f"the ConfigMap {reference['name']} is not in the manifest, so its settings are not checked",
                )
            )
    for variable in container.get("env") or ():
        value = (
            variable.get("value", "") if "valueFrom" not in variable else _value(variable["valueFrom"], pod, objects)
        )
        values[variable["name"]] = str(value)
    return values, findings


def _value(source: Json, pod: Json, objects: _Objects) -> str:
    """Return the value of a variable; a placeholder where only the cluster has it."""
    if path := source.get("fieldRef", {}).get("fieldPath"):
        return str(pod["metadata"].get(path.removeprefix("metadata."), "")) or _UNKNOWN
    if request := source.get("resourceFieldRef"):
        return str(_resource(request, pod))
    if request := source.get("configMapKeyRef"):
        config_map = objects.named("ConfigMap", request["name"]) or {}
        return str((config_map.get("data") or {}).get(request["key"], "" if request.get("optional") else _UNKNOWN))
    return _UNKNOWN


def _resource(request: Json, pod: Json) -> int:
    """Return a container's limit in units of the divisor, rounded up; 1 where only the node has it."""
    containers = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
    owner: Json = next((item for item in containers if item.get("name") == request.get("containerName")), {})
    kind, _, resource = str(request["resource"]).partition(".")
    amount = (owner.get("resources") or {}).get(kind, {}).get(resource)
    if amount is None:
        return 1
    return math.ceil(quantity(amount) / quantity(request.get("divisor", "1")))


def _job_faults(pod: Json) -> Iterator[Finding]:
    """Check that a Job does not count binds as failures: it counts restarts of init containers (job_controller.go)."""
    if pod["kind"] not in ("Job", "CronJob") or pod["spec"].get("restartPolicy") != "OnFailure":
        return
    limit = pod["owner"].get("backoffLimit", 6)
    if limit < _MANY:
        yield fault(
            pod["about"],
            f"set backoffLimit: 2147483647 (it is {limit}), or restartPolicy: Never, because a Job counts each change "
            "of the payload container's image as a failure, and ends the pod",
        )


def _rights(pod: Json, settings: Settings, objects: _Objects) -> Iterator[Finding]:
    account = pod["spec"].get("serviceAccountName", "default")
    bindings = [
        item
        for item in objects.of("RoleBinding", "ClusterRoleBinding")
        for subject in item.get("subjects") or ()
        if subject.get("kind") == "ServiceAccount" and subject.get("name") == account and _is_near(item, pod)
    ]
    if not bindings:
        yield warning(
            "rights",
            f"the manifest binds no role to the service account {account}, so its rights are not checked; the "
            "project's are in manifests/serviceAccount.yaml",
        )
        return
    roles = [objects.named(item["roleRef"]["kind"], item["roleRef"]["name"]) for item in bindings]
    rules = [rule for role in roles if role is not None for rule in role.get("rules") or ()]
    missing = [
        (resource, verb)
        for resource, verbs in {**RIGHTS, **wishes(settings, pod)}.items()
        for verb in verbs
        if not any(_allows(rule, resource, verb, pod) for rule in rules)
    ]
    if needed := [f"{verb} {resource}" for resource, verb in missing if resource in RIGHTS]:
        yield fault("rights", f"the role of the service account {account} lacks {', '.join(needed)}; add it")
    if any(resource in CLAIMS for resource, _ in missing):
        yield warning(
            "rights",
            f"the role of the service account {account} lacks get resourceclaims, so that the devices of the claim "
            "are not compared with the GPUs that the payload container sees; use the component gpu-dra",
        )
    if wished := [f"{verb} {resource}" for resource, verb in missing if resource in WISHES]:
        yield warning(
            "rights", f"the role of the service account {account} lacks {', '.join(wished)}, so pods have fewer Events"
        )
    if any(resource in RELIST for resource, _ in missing):
        yield warning(
            "rights",
            f"the role of the service account {account} lacks patch pods/resize, so that K8SPILOT_RELIST has no "
            "effect; use the component relist, which has the right and the setting",
        )
    if not missing:
        yield good("rights", f"the service account {account} has the rights that a pilot needs")


def _is_near(binding: Json, pod: Json) -> bool:
    """Return whether a binding applies to the pod's namespace."""
    return binding["kind"] == "ClusterRoleBinding" or _is_in_namespace(binding, pod)


def _is_in_namespace(item: Json, pod: Json) -> bool:
    """Return whether an object is in the pod's namespace. Objects without a namespace are in the same one."""
    return len({one["metadata"].get("namespace") or "" for one in (item, pod)} - {""}) < 2


def _allows(rule: Json, resource: str, verb: str, pod: Json) -> bool:
    resource, _, group = resource.partition(".")
    for field, wanted in (("apiGroups", group), ("resources", resource), ("verbs", verb)):
        if not {wanted, "*"} & set(rule.get(field) or ()):
            return False
    names = rule.get("resourceNames")
    return not names or (pod["kind"] == "Pod" and pod["metadata"]["name"] in names)


def _missing(pod: Json, objects: _Objects) -> Iterator[Finding]:
    """Yield a warning for each Secret and ConfigMap that the pod requires and the manifest lacks."""
    wanted = {
        (kind, source.get("secretName") or source.get("name", ""))
        for volume in pod["spec"].get("volumes") or ()
        for item in (volume, *(volume.get("projected") or {}).get("sources", ()))
        for kind, source in (("Secret", item.get("secret")), ("ConfigMap", item.get("configMap")))
        if source and not source.get("optional")
    }
    wanted |= set(claim_objects(pod["spec"]))
    # The cluster creates this ConfigMap in every namespace.
    for kind, name in sorted(wanted - {("ConfigMap", "kube-root-ca.crt")}):
        if objects.named(kind, name) is None:
            yield warning(
                "volumes",
                f"the {kind} {name} is required and not in the manifest; create it in the namespace before the pod",
            )
