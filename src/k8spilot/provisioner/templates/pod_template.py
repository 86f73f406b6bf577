"""Pod templates: suspended CronJobs of the namespace, and the slots that their pilots would have.

CronJob is a built-in resource, and the ClusterRoles `admin` and `edit` allow it. They do not allow PodTemplates. A
CustomResourceDefinition needs the cluster's administrator. The pods of a Deployment must have restartPolicy Always, and
so never complete. The provisioner creates the pods itself: the CronJob is suspended, and only holds the pod template.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from k8spilot.common.errors import SettingsError
from k8spilot.condor.configuration import pools, slot_types
from k8spilot.condor.configuration.expected_ad import expected_attributes
from k8spilot.gpu.discovery.claims import requested_claims
from k8spilot.gpu.discovery.pod_request import PodRequest
from k8spilot.kube.pod import security_context
from k8spilot.preflight.gpus import claim_objects
from k8spilot.preflight.manifest import environment_in
from k8spilot.provisioner.limits import Limits, TemplateError, limits_of
from k8spilot.provisioner.planning.model import SlotKind, Template
from k8spilot.provisioner.planning.resources import UNLIMITED_KIB, Resources
from k8spilot.settings import PILOT, Settings

Json = dict[str, Any]

_LONGEST_NAME: Final = 39
"""Pods are called NAME-MMMMM-YYYYMMDD-HHMM-NNN, and their host names have at most 63 characters (a DNS label)."""
CLAIM_TEMPLATE: Final = "ResourceClaimTemplate"
SELECTOR: Final = "app.kubernetes.io/component=pilot-template"
"""Labels of the CronJobs that pilots are made from."""


async def template_of(cron_job: Json, sources: Sequence[Json], condor_host: str, now: float) -> Template:
    """Return a template.

    Args:
        cron_job: the CronJob object.
        sources: the objects of its namespace that `source_names` names, with their kind.
        condor_host: CONDOR_HOST of the pool whose jobs are counted.
        now: seconds since the epoch.

    Raises:
        TemplateError: pilots cannot be made from it.
    """
    limits = limits_in(cron_job)
    try:
        return await _template(cron_job, sources, limits=limits, condor_host=condor_host, now=now)
    except TemplateError:
        raise
    except SettingsError as error:
        raise TemplateError(f"its pilots could not start: {error}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TemplateError(f"its pod has an invalid form ({type(error).__name__}: {error})") from None


async def _template(cron_job: Json, sources: Sequence[Json], limits: Limits, condor_host: str, now: float) -> Template:
    metadata = cron_job["metadata"]
    environment = environment_in([{**cron_job, "kind": "CronJob"}, *sources])
    own = {"POD_NAME": f"{metadata['name']}-pilot", "POD_NAMESPACE": metadata["namespace"], "POD_UID": ""}
    settings = Settings.of({**environment, **own})
    pool = pools.resolve(settings).condor_host
    if pool != condor_host:
        raise TemplateError(f"its pilots would join the pool {pool}, but the provisioner counts jobs of {condor_host}")
    spec = pod_in(cron_job)["spec"]
    rootless = security_context(_container(cron_job, PILOT), spec).get("runAsUser", 0) != 0
    attributes = await expected_attributes(settings, now, rootless=rootless) | dict(limits.slot_attributes)
    payload = _container(cron_job, settings.slots[-1].container)  # of several, the last ones have the GPUs
    kinds = tuple(_kinds(settings, _gpus(payload, spec, sources), attributes, limits))
    return Template(metadata["name"], limits, kinds, version_of(cron_job, sources))


def limits_in(cron_job: Json) -> Limits:
    """Return the limits of a template.

    Raises:
        TemplateError: pilots cannot be made from it.
    """
    metadata = cron_job["metadata"]
    if len(metadata["name"]) > _LONGEST_NAME:
        raise TemplateError(f"its name has more than {_LONGEST_NAME} characters, and pilots are called after it")
    if cron_job["spec"].get("suspend") is not True:
        raise TemplateError("it is a CronJob that is not suspended; set suspend: true, since it only holds the pod")
    return limits_of(metadata.get("annotations") or {})


def pod_in(cron_job: Json) -> Json:
    """Return the pod, a PodTemplateSpec, in the object of a template."""
    pod: Json = cron_job["spec"]["jobTemplate"]["spec"]["template"]
    return pod


def version_of(cron_job: Json, sources: Sequence[Json] = ()) -> str:
    """Return a digest of the pod in a template, of the settings in its ConfigMaps and of its claims."""
    contents = (one["spec"] if "spec" in one else one.get("data") for one in sources)
    text = json.dumps([pod_in(cron_job), *contents], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def source_names(cron_job: Json) -> Iterator[tuple[str, str]]:
    """Yield kind and name of each object that the slots of a template's pilots follow from: ConfigMaps, and claims."""
    spec = pod_in(cron_job)["spec"]
    yield from (("ConfigMap", name) for name in dict.fromkeys(_config_map_names(spec)))
    yield from dict.fromkeys(one for one in claim_objects(spec) if one[0] == CLAIM_TEMPLATE)


def _config_map_names(spec: Json) -> Iterator[str]:
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        for source in container.get("envFrom") or ():
            if "configMapRef" in source:
                yield source["configMapRef"]["name"]
        for variable in container.get("env") or ():
            if reference := (variable.get("valueFrom") or {}).get("configMapKeyRef"):
                yield reference["name"]


def _container(cron_job: Json, name: str) -> Json:
    spec = pod_in(cron_job)["spec"]
    containers = (*(spec.get("initContainers") or ()), *spec["containers"])
    container: Json | None = next((one for one in containers if one["name"] == name), None)
    if container is None:
        raise TemplateError(f"its pod has no container {name}; use the pod of k8spilot's manifests")
    return container


def _gpus(payload: Json, spec: Json, sources: Sequence[Json]) -> int:
    """Return the number of GPUs of a payload container.

    Raises:
        TemplateError: it is not known, because of a claim.
    """
    claims = requested_claims(spec, [one for one in sources if one["kind"] == CLAIM_TEMPLATE])
    for entry in (payload.get("resources") or {}).get("claims") or ():
        if entry["name"] not in claims:
            raise TemplateError(
                f"the number of devices of its claim {entry['name']} is not known: use a ResourceClaimTemplate with a "
                "fixed number, and let the provisioner get resourceclaimtemplates, as the component provisioner does"
            )
    return PodRequest.of(payload, claims).count


def _kinds(settings: Settings, gpus: int, attributes: Mapping[str, str], limits: Limits) -> Iterator[SlotKind]:
    """Yield the slots of a pilot (condor/configuration/slot_types.py), those without GPUs first."""
    cpus, memory = settings.num_cpus or settings.payload_cpus or 0, slot_types.memory(settings)
    disk = settings.slot_disk_mb * 1024 or UNLIMITED_KIB
    plain = len(settings.slots) - len(settings.gpu_slots)
    if plain:
        times = plain if settings.is_partitionable else 1
        slot_gpus = 0 if settings.gpu_slots else gpus
        room = Resources(cpus * times, memory * times, disk * times, slot_gpus)
        number = 1 if settings.is_partitionable else plain
        yield _kind(number, room, jobs=times, attributes=attributes, limits=limits)
    if settings.gpu_slots:
        room = Resources(cpus, memory, disk, settings.container_gpus)
        yield _kind(len(settings.gpu_slots), room, jobs=1, attributes=attributes, limits=limits)


def _kind(number: int, room: Resources, jobs: int, attributes: Mapping[str, str], limits: Limits) -> SlotKind:
    amounts = {"Cpus": f"{room.cpus:g}", "Memory": str(room.memory), "Disk": str(room.disk), "GPUs": str(room.gpus)}
    totals = {f"TotalSlot{name}": value for name, value in amounts.items()}
    devices = ", ".join(f'[ Id = "GPU-{place}"; {limits.gpu_properties} ]' for place in range(room.gpus))
    slot = {
        **amounts,
        **totals,
        "PartitionableSlot": str(jobs > 1).lower(),
        "SlotType": '"Partitionable"' if jobs > 1 else '"Static"',
        **({"AvailableGPUs": f"{{ {devices} }}"} if room.gpus else {}),
    }
    lines = "\n".join(f"{name} = {value}" for name, value in {**attributes, **slot}.items())
    return SlotKind(number, room, jobs, lines)
