"""A pilot's manifest, checked where there is no cluster: what `kubectl kustomize` prints, or any list of objects.

Found are pods, and pod templates in what makes pods; the settings that they get from ConfigMaps and from their own
environment; the rights that their service account gets. What lies in the cluster only (Secrets, most of the time)
cannot be judged: it is a warning, if the pod does not start without it.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from k8spilot.common.errors import SettingsError
from k8spilot.kube.client import ACCOUNT
from k8spilot.preflight.container import CAPABILITIES
from k8spilot.preflight.finding import Finding, fault, good, judged, warning
from k8spilot.preflight.pod_spec import shape_faults, shape_warnings
from k8spilot.preflight.rights import RIGHTS, WISHES
from k8spilot.preflight.settings import expression_finding, policy_findings, unknown_findings
from k8spilot.settings import ENGINE, PILOT, Settings, variables

Json = dict[str, Any]

_UNITS: Final = {
    "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50,
}  # fmt: skip
"""Suffixes of quantities (apimachinery, resource.Quantity)."""

_MANY: Final = 1_000_000
"""Binds that a pilot does not live long enough to make."""
_UNKNOWN: Final = "unknown-until-it-runs"


def manifest_findings(text: str) -> list[Finding]:
    """Check all pods in a manifest.

    Raises:
        SettingsError: it cannot be read, or there is no pod in it.
    """
    try:
        return _findings(_Objects(text))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise SettingsError(
            f"the manifest has something that is not made as Kubernetes wants it ({type(error).__name__}: {error}); "
            "`kubectl apply --dry-run=server` says where"
        ) from error


def _findings(objects: "_Objects") -> list[Finding]:
    pods = [pod for pod in objects.pods() if PILOT in _names(pod)] or list(objects.pods())
    if not pods:
        raise SettingsError(
            "the manifest has no Pod, and nothing with a pod template (Job, Deployment); give what `kubectl kustomize` "
            "prints"
        )
    return [finding for pod in pods for finding in _pod_findings(pod, objects)]


class _Objects:
    """The objects of a manifest."""

    def __init__(self, text: str) -> None:
        try:
            documents = [one for one in yaml.safe_load_all(text) if one is not None]
        except yaml.YAMLError as error:
            raise SettingsError(f"the manifest is not YAML: {' '.join(str(error).split())}") from error
        if wrong := [one for one in documents if not isinstance(one, dict) or "kind" not in one]:
            raise SettingsError(f"the manifest has something without a kind: {str(wrong[0])[:80]!r}")
        lists = [one for one in documents if one["kind"] == "List"]
        self.all: list[Json] = [one for one in documents if one["kind"] != "List"]
        self.all += [item for one in lists for item in one.get("items") or ()]

    def of(self, *kinds: str) -> list[Json]:
        """All of some kinds."""
        return [one for one in self.all if one.get("kind") in kinds]

    def named(self, kind: str, name: str) -> Json | None:
        """The one of that name."""
        return next((one for one in self.of(kind) if one["metadata"].get("name") == name), None)

    def pods(self) -> Iterator[Json]:
        """Pods, and what pods would be made of, with what makes them."""
        for one in self.all:
            spec = one.get("spec") or {}
            owner = spec.get("jobTemplate", {}).get("spec") or spec
            found = one if one["kind"] == "Pod" else owner.get("template")
            if isinstance(found, dict) and "containers" in (found.get("spec") or {}):
                metadata = {"name": one["metadata"].get("name", ""), "namespace": one["metadata"].get("namespace", "")}
                yield {
                    "metadata": metadata,
                    "spec": found["spec"],
                    "about": f"{one['kind']}/{metadata['name']}",
                    "kind": one["kind"],
                    "owner": owner,
                }


def _names(pod: Json) -> set[str]:
    return {one.get("name", "") for one in pod["spec"]["containers"]}


def _pod_findings(pod: Json, objects: _Objects) -> Iterator[Finding]:
    about = pod["about"]
    pilot = next((one for one in pod["spec"]["containers"] if one.get("name") == PILOT), None)
    if pilot is None:
        yield fault(about, f"it has no container {PILOT}; name the container that runs k8spilot so")
        return
    environment, findings = _environment(pod, pilot, objects)
    yield from findings
    yield from unknown_findings(environment)
    try:
        settings = Settings.of(environment)
    except SettingsError as error:
        # With a ConfigMap that is in the cluster, it may be set there.
        yield (warning if findings else fault)("settings", str(error))
        # The shape can be judged all the same, by what is set where it is right.
        places = {name: value for name, value in environment.items() if name in _PLACES}
        try:
            settings = Settings.of({"K8SPILOT_SERVICES": "engine", "POD_NAME": "pod", "POD_NAMESPACE": "all", **places})
        except SettingsError:
            return
    else:
        yield expression_finding(settings)
        yield from policy_findings(settings)
    faults = [*shape_faults(pod, settings), *_pilot_faults(pilot, pod["spec"], environment)]
    yield from judged(about, faults, "it has what a pilot needs")
    yield from (warning(about, words) for words in shape_warnings(pod, settings))
    yield from _job_faults(pod)
    yield from _rights(pod, objects)
    yield from _missing(pod, objects)


def _pilot_faults(pilot: Json, spec: Json, environment: Mapping[str, str]) -> Iterator[str]:
    """What a pilot that runs would find wrong with its own container."""
    apart = next((one for one in spec.get("initContainers") or () if one.get("name") == ENGINE), None)
    engine = apart or pilot
    if ACCOUNT not in {Path(mount["mountPath"]) for mount in engine.get("volumeMounts") or ()}:
        yield (
            f"mount a projected serviceAccountToken at {ACCOUNT} in {engine['name']}, or it cannot change the image in "
            "its own pod"
        )
    if apart is not None or "condor" not in environment.get("K8SPILOT_SERVICES", "condor"):
        return
    security = {**(spec.get("securityContext") or {}), **(pilot.get("securityContext") or {})}
    if security.get("runAsUser", 0) != 0 or security.get("runAsNonRoot"):
        yield f"set runAsUser: 0 for {PILOT}, or HTCondor could not keep a job's sandbox from others"
    capabilities = security.get("capabilities") or {}
    added, dropped = (set(capabilities.get(what) or ()) for what in ("add", "drop"))
    if missing := [name for name in CAPABILITIES if {name, "ALL"} & dropped and not {name, "ALL"} & added]:
        yield f"add the capabilities {', '.join(missing)} in the securityContext of {PILOT}"


_PLACES: Final = frozenset(
    name for name, field in variables().items()
    if field.name in (
        "exchange", "execute", "scratch_folders", "payload_container", "payload_uid", "payload_gid", "metrics_port",
    )
)  # fmt: skip


def _environment(pod: Json, container: Json, objects: _Objects) -> tuple[dict[str, str], list[Finding]]:
    """The variables of a container, as far as the manifest says."""
    found: dict[str, str] = {}
    findings = []
    for source in container.get("envFrom") or ():
        reference = source.get("configMapRef")
        if reference is None:
            continue
        there = objects.named("ConfigMap", reference["name"])
        if there is not None:
            prefix = source.get("prefix", "")
            found |= {prefix + key: str(value) for key, value in (there.get("data") or {}).items()}
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
        found[variable["name"]] = str(value)
    return found, findings


def _value(source: Json, pod: Json, objects: _Objects) -> str:
    """What a variable will have; something that can be, where only the cluster knows."""
    if path := source.get("fieldRef", {}).get("fieldPath"):
        return str(pod["metadata"].get(path.removeprefix("metadata."), "")) or _UNKNOWN
    if asked := source.get("resourceFieldRef"):
        return str(_resource(asked, pod))
    if asked := source.get("configMapKeyRef"):
        there = objects.named("ConfigMap", asked["name"]) or {}
        return str((there.get("data") or {}).get(asked["key"], "" if asked.get("optional") else _UNKNOWN))
    return _UNKNOWN


def _resource(asked: Json, pod: Json) -> int:
    """A container's limit in units of the divisor, rounded up; 1 where only the node knows."""
    containers = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
    owner: Json = next((one for one in containers if one.get("name") == asked.get("containerName")), {})
    kind, _, resource = str(asked["resource"]).partition(".")
    amount = (owner.get("resources") or {}).get(kind, {}).get(resource)
    if amount is None:
        return 1
    return math.ceil(_quantity(amount) / _quantity(asked.get("divisor", "1")))


def _quantity(text: object) -> float:
    number = str(text).rstrip("".join(_UNITS))
    try:
        return float(number) * _UNITS[str(text)[len(number) :]]
    except (ValueError, KeyError):
        raise SettingsError(f"the manifest has the quantity {text!r}, which is none") from None


def _job_faults(pod: Json) -> Iterator[Finding]:
    """See that a Job does not take binds for failures: it counts restarts of init containers (job_controller.go)."""
    if pod["kind"] not in ("Job", "CronJob") or pod["spec"].get("restartPolicy") != "OnFailure":
        return
    limit = pod["owner"].get("backoffLimit", 6)
    if limit < _MANY:
        yield fault(
            pod["about"],
            f"set backoffLimit: 2147483647 (it is {limit}), or restartPolicy: Never, since a Job takes each change of "
            "the payload container's image for a failure, and ends the pod",
        )


def _rights(pod: Json, objects: _Objects) -> Iterator[Finding]:
    account = pod["spec"].get("serviceAccountName", "default")
    bindings = [
        one
        for one in objects.of("RoleBinding", "ClusterRoleBinding")
        for subject in one.get("subjects") or ()
        if subject.get("kind") == "ServiceAccount" and subject.get("name") == account and _is_near(one, pod)
    ]
    if not bindings:
        yield warning(
            "rights",
            f"the manifest binds no role to the service account {account}, so its rights are not checked; the "
            "project's are in manifests/serviceAccount.yaml",
        )
        return
    roles = [objects.named(one["roleRef"]["kind"], one["roleRef"]["name"]) for one in bindings]
    rules = [rule for role in roles if role is not None for rule in role.get("rules") or ()]
    missing = [
        (resource, verb)
        for resource, verbs in {**RIGHTS, **WISHES}.items()
        for verb in verbs
        if not any(_allows(rule, resource, verb, pod) for rule in rules)
    ]
    if needed := [f"{verb} {resource}" for resource, verb in missing if resource in RIGHTS]:
        yield fault("rights", f"the role of the service account {account} lacks {', '.join(needed)}; add it")
    if wished := [f"{verb} {resource}" for resource, verb in missing if resource in WISHES]:
        yield warning(
            "rights", f"the role of the service account {account} lacks {', '.join(wished)}, so pods tell less"
        )
    if not missing:
        yield good("rights", f"the service account {account} has the rights that a pilot needs")


def _is_near(binding: Json, pod: Json) -> bool:
    """Whether a binding counts in the pod's namespace; what has none is applied to the same one."""
    namespaces = {one["metadata"].get("namespace") or "" for one in (binding, pod)} - {""}
    return binding["kind"] == "ClusterRoleBinding" or len(namespaces) < 2


def _allows(rule: Json, resource: str, verb: str, pod: Json) -> bool:
    for field, wanted in (("apiGroups", ""), ("resources", resource), ("verbs", verb)):
        if not {wanted, "*"} & set(rule.get(field) or ()):
            return False
    names = rule.get("resourceNames")
    return not names or (pod["kind"] == "Pod" and pod["metadata"]["name"] in names)


def _missing(pod: Json, objects: _Objects) -> Iterator[Finding]:
    """Tell of Secrets and ConfigMaps that the pod waits for and the manifest lacks."""
    wanted = {
        (kind, source.get("secretName") or source.get("name", ""))
        for volume in pod["spec"].get("volumes") or ()
        for one in (volume, *(volume.get("projected") or {}).get("sources", ()))
        for kind, source in (("Secret", one.get("secret")), ("ConfigMap", one.get("configMap")))
        if source and not source.get("optional")
    }
    # The cluster makes this one in every namespace.
    for kind, name in sorted(wanted - {("ConfigMap", "kube-root-ca.crt")}):
        if objects.named(kind, name) is None:
            yield warning(
                "volumes",
                f"the {kind} {name} is neither optional nor in the manifest; make it in the namespace, or the pod does "
                "not start",
            )
