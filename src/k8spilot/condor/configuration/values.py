"""Values for the template of HTCondor's configuration (k8spilot.condor.configuration.template).

Settings has checked every value from outside: no value here can end a string or begin a line.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import k8spilot
from k8spilot.condor.configuration import extra_attributes, image_expressions, slot_types
from k8spilot.condor.configuration.classads import check
from k8spilot.condor.configuration.per_slot_attributes import OWN, own
from k8spilot.condor.configuration.pools import Pool, resolve
from k8spilot.condor.configuration.template import ROOTLESS, TEMPLATE
from k8spilot.condor.folders import Folders
from k8spilot.gpu.monitoring.monitor_output import METRICS
from k8spilot.settings import KILLING_SECONDS, Settings
from k8spilot.settings.parsers import PLAIN

_POD: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
"""A pod's name: a DNS subdomain (RFC 1123)."""
_TAKEN: Final = frozenset(
    {"NUM_SLOTS", "MAX_SLOT_TYPES", *re.findall(r"^(\w+)[\w.]* *=", TEMPLATE.template, re.MULTILINE)}
)
"""Names that the template and the slot types set."""
UPDATE_SECONDS: Final = 120
"""Seconds between the startd's updates to the collector."""
_THREADS: Final = (
    "BLIS_NUM_THREADS",
    "DOTNET_PROCESSOR_COUNT",
    "LOKY_MAX_CPU_COUNT",
    "MC_CORES",
    "NUMBA_NUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",
    "RCPP_PARALLEL_NUM_THREADS",
)
"""Variables in which programs read how many threads to start, beside those of HTCondor's own list."""
_RESTART_SECONDS: Final = 10
"""Seconds after which the startd restarts its GPU monitor, which ends when the engine dies."""


def render(
    settings: Settings,
    folders: Folders,
    *,
    started: int,
    passwords: bool = False,
    slot_users: Sequence[str] | None = None,
    rootless: bool = False,
    facts: Mapping[str, str] | None = None,
) -> str:
    """Return the configuration.

    Args:
        settings: settings of the pilot, with those of the condor service.
        folders: paths of HTCondor's files.
        started: start of the pod, in seconds since the epoch. The lifetime counts from here, so that a restart in place
            does not begin a new lifetime.
        passwords: whether there is a pool password to authenticate with.
        slot_users: names of the accounts with the payload containers' uids, one for each slot; without it, `nobody`.
        rootless: whether HTCondor runs without root.
        facts: further attributes of the slot's ad, names and texts; texts with special characters are left out.

    Raises:
        SettingsError: an expression or an attribute of the operator is invalid.
    """
    pool = resolve(settings)
    retire, die = started + settings.accept_seconds, started + settings.life_seconds
    attributes = [
        *_attributes(settings, pool),
        ("GLIDEIN_ToRetire", str(retire)),
        ("GLIDEIN_ToDie", str(die)),
        *((name, f'"{value}"') for name, value in (facts or {}).items() if PLAIN.fullmatch(value)),
    ]
    taken = {name.lower() for name in (*_TAKEN, *(name for name, _ in attributes))}
    attributes += extra_attributes.read(folders.extra_attributes, taken).items()
    return TEMPLATE.substitute(
        **_files(folders),
        **_pool(settings, pool),
        **_slot(settings),
        **_life(settings),
        methods="IDTOKENS, PASSWORD, FS" if passwords else "IDTOKENS, FS",
        slots="\n".join(_of_slots(settings, slot_users or ["nobody"] * len(settings.slots))),
        # The sshd of a session would run as HTCondor's own account and read its configuration from the sandbox.
        ssh=not rootless,
        rootless=ROOTLESS if rootless else "",
        start=" && \\\n    ".join(f"({clause})" for clause in _start(settings, pool, rootless=rootless)),
        attributes="\n".join(f"{name} = {value}" for name, value in attributes),
        names=" ".join(name for name, _ in attributes),
    )


def _of_slots(settings: Settings, accounts: Sequence[str]) -> Iterator[str]:
    """Yield the account of each slot's jobs (jic_shadow.cpp, initUserPrivNoOwner), and the folder of their sandboxes.

    The startd writes a job's use of its GPUs into the sandbox (refresh_sandbox_ad in Resource.cpp), and looks in the
    folder of the slot. Dynamic slots have that of their partitionable slot in HTCondor, but no GPUs here.
    """
    for slot, account in zip(settings.slots, accounts, strict=True):
        yield f"{slot.name.upper()}_USER = {account}"
        if not (slot.is_only or slot.is_dynamic):
            yield f"{slot.name.upper()}_EXECUTE = {slot.execute}"


def pod_of(settings: Settings, machine: str) -> str:
    """Return the pod of a machine of the same resource (`machine_name`), or an empty string.

    A job can have set the machine's name. Only a name that a pod can have is returned, so that a URL keeps its form.
    """
    resource = _resource(settings)
    rest = machine.removeprefix(f"{resource}.") if resource else machine
    if not resource or rest == machine:
        return ""
    pod = re.sub(r"^[a-f0-9]{10}\.", "", rest) if settings.glidein_randomize_name else rest
    return pod if _POD.fullmatch(pod) else ""


def _resource(settings: Settings) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "-", settings.glidein_resource_name or "").strip(".-")[:63]


def machine_name(settings: Settings) -> str:
    """Return the machine's name: the resource, the pod's uid if names are to be random, and the pod."""
    resource = _resource(settings)
    unique = re.sub(r"[^a-f0-9]", "", settings.pod_uid)[:10] if settings.glidein_randomize_name else ""
    return ".".join(part for part in (resource, unique, settings.pod_name) if part)


def _files(folders: Folders) -> dict[str, object]:
    return {
        "drop_ins": folders.drop_ins,
        "log": folders.log,
        "lock": folders.lock,
        "run": folders.run,
        "spool": folders.spool,
        "execute": folders.execute,
        "docker": folders.docker_client,
        "tokens": folders.tokens,
        "passwords": folders.passwords,
        "guard": folders.guard,
        "starter": folders.starter,
        "gpus": folders.gpus,
        "gpu_monitor": gpu_monitor(folders),
    }


def gpu_monitor(folders: Folders) -> str:
    """HTCondor's configuration of the GPU monitor (scripts/gpu-monitor.sh), several lines.

    By it, a job's ad gets

    GPUsAverageUsage, GPUsUsage         how many GPUs were busy on average, 0.5 for half of the time of one
    GPUsMemoryUsage                     the most memory that was in use on one of them, MiB
    GPU0AverageUsage, GPU0MemoryUsage   the same of the first GPU that the job sees, and so on
    """
    return f"""\
use feature : Monitor( GPUs, WaitForExit, {_RESTART_SECONDS}, {folders.gpu_monitor}, {METRICS} )
STARTD_CRON_GPUs_MONITOR_CONDITION = TotalGPUs > 0
STARTD_JOB_ATTRS = $(STARTD_JOB_ATTRS) GPUsUsage GPUsMemoryUsage"""


def _pool(settings: Settings, pool: Pool) -> dict[str, object]:
    return {
        "condor_host": pool.condor_host,
        "collector_host": pool.collector_host,
        "ccb_address": pool.ccb_address,
        "machine": machine_name(settings),
        "domain": f"{settings.pod_name}.{settings.pod_namespace}.{settings.pod_uid or 'pod'}",
        "update": UPDATE_SECONDS,
        # The collector drops the slot after three lost updates.
        "lifetime": UPDATE_SECONDS * 3 + 30,
        "debug": "D_SUB_SECOND D_PID D_CAT" + (" D_FULLDEBUG" if settings.log_level == "DEBUG" else ""),
    }


def _slot(settings: Settings) -> dict[str, object]:
    return {
        "slot_types": "\n".join(slot_types.lines(settings)),
        "cpus": len(settings.slots) * (settings.num_cpus or settings.payload_cpus or 0),
        "memory": len(settings.slots) * slot_types.memory(settings),
        "disk": f"DISK = {len(settings.slots) * settings.slot_disk_mb * 1024}" if settings.slot_disk_mb else "",
        "environment": _job_environment(settings),
        "threads": " ".join(_THREADS),
        "start_extra": _expression("GLIDEIN_Start_Extra", settings.glidein_start_extra),
        "images": image_expressions.configuration(),
    }


def _life(settings: Settings) -> dict[str, object]:
    return {
        "vacate": settings.vacate_seconds,
        "killing": KILLING_SECONDS,
        "graceful": settings.vacate_seconds + 5,
        "fast": KILLING_SECONDS + 5,
        "idle": round(settings.accept_idle_minutes * 60),
        "all_idle": _all_idle(settings),
    }


def _all_idle(settings: Settings) -> str:
    """Return the expression for a startd without jobs. HTCondor evaluates it over the ad of each of its slots."""
    clauses = ["PartitionableSlot =?= true && (NumDynamicSlots ?: 0) == 0"] if settings.is_partitionable else []
    for slot in settings.slots:
        prefix = "" if slot.is_only else f"{slot.name}_"
        if slot.gpus:  # without its GPUs it is missing, or broken and in the state Owner
            clauses.append(f'stringListMember({prefix}State, "Unclaimed,Owner") isnt false')
        elif not slot.is_dynamic:
            clauses.append(f'{prefix}State == "Unclaimed" && {prefix}Activity == "Idle"')
    return " && ".join(clauses)


# Networks that START accepts. The engine refuses the last two with a hold reason.
_NETWORKS: Final = "bridge,nat,host,none"


def _start(settings: Settings, pool: Pool, *, rootless: bool) -> Iterable[str]:
    """Yield the conditions that a job must meet, one expression each.

    The pool groups jobs for matchmaking by the job attributes that START refers to. No expression here may use an
    attribute that differs between the jobs of a cluster, such as the arguments.
    """
    yield "time() < GLIDEIN_ToRetire"
    if most := len(settings.dynamic_slots):
        yield f"(MY.DSlotID ?: 0) <= {most} && (MY.NumDynamicSlots ?: 0) < {most}"
    if 0 < len(settings.gpu_slots) < len(settings.slots):  # jobs without GPUs have the other slots
        yield "(MY.GPUs ?: 0) == 0 || (TARGET.RequestGPUs ?: 0) > 0"
    # Jobs of other universes would run in the pilot container.
    yield "TARGET.JobUniverse == 5 && MY.HasDocker =?= true"
    # A starter that cannot run `docker create` reports to the startd that docker is gone. The slot then takes no job
    # until the ad is corrected (k8spilot.condor.ads.startd_ad). An unknown network has this effect.
    yield f'TARGET.DockerNetworkType is undefined || stringListMember(TARGET.DockerNetworkType, "{_NETWORKS}")'
    if rootless:  # HTCondor refuses a user's own plugin at each start of the job, which would then start again
        yield "TARGET.TransferPlugins is undefined"
    # A debugger or similar tool beside the job would run in the pilot container.
    yield "TARGET.ToolDaemonCmd is undefined"
    yield "isString(MY.K8SJobImage)"
    yield from image_expressions.policy(settings, pool)
    # Images that were not available here (k8spilot.condor.ads.publisher).
    yield image_expressions.NOT_AVOIDED
    # Without the Kubernetes API no image can be bound (k8spilot.condor.ads.publisher).
    yield "time() >= (MY.K8SApiAwayUntil ?: 0)"
    # Jobs of several users failed one after another (k8spilot.model.black_hole).
    yield "MY.IsBlackHole isnt true"
    # HTCondor treats a missing list as an empty list.
    yield 'TARGET.DESIRED_Sites is undefined || stringListMember(MY.GLIDEIN_Site, TARGET.DESIRED_Sites, ",")'
    yield 'stringListMember(MY.GLIDEIN_Site, TARGET.UNDESIRED_Sites, ",") isnt true'
    if settings.osg_project_name:
        yield f'TARGET.ProjectName =?= "{settings.osg_project_name}"'
    yield from pool.start
    # A job that lacks an attribute of START_EXTRA makes it undefined. The slot does not take such a job.
    yield "MY.START_EXTRA =?= true"


def _attributes(settings: Settings, pool: Pool) -> list[tuple[str, str]]:
    """Return attributes of the machine beyond HTCondor's own: names and ClassAd expressions."""
    texts = {
        "GLIDEIN_Site": settings.glidein_site,
        "GLIDEIN_ResourceName": settings.glidein_resource_name,
        "GLIDECLIENT_Group": pool.group,
        "K8SNamespace": settings.pod_namespace,
        "K8SPodName": settings.pod_name,
        "K8SPodUID": settings.pod_uid,
        "K8SPhysicalHostName": settings.node_name,
        "K8SClusterName": settings.cluster,
        "K8SPilotVersion": k8spilot.__version__,
        "OSG_SQUID_LOCATION": settings.osg_squid_location,
    }
    osg = ("OSPool", "OSG_NODE_VALIDATED", "IsOsgVoContainer") if pool.is_osg else ()
    if pool.is_itb:
        osg = (*osg, "Is_ITB_Site")
    return [
        *((name, f'"{value}"') for name, value in texts.items() if value),
        *image_expressions.attributes(settings, pool),
        *((name, "True") for name in osg),
        *_of_the_node(settings),
        *((name, own(part, max(len(settings.dynamic_slots) - 1, 0))) for name, part in OWN.items()),
        ("IsBlackHole", "time() < (MY.K8SBlackHoleUntil ?: 0)"),
        ("ACCEPT_JOBS_FOR_HOURS", f"{settings.accept_jobs_for_hours:g}"),
        ("ACCEPT_IDLE_MINUTES", f"{settings.accept_idle_minutes:g}"),
        *((("GLIDEIN_Max_Walltime", str(wall)),) if (wall := settings.glidein_max_walltime) else ()),
    ]


def _of_the_node(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield node attributes that OSPool's jobs require, in the form of OSPool's pilots.

    Source: osg-flock, osgvo-advertise-base.
    """
    if match := re.match(r"(\d+)\.(\d+)\.(\d+)", os.uname().release):
        major, minor, patch = (int(part) for part in match.groups())
        yield "OSG_HOST_KERNEL_VERSION", str(10000 * major + 100 * minor + patch)
    volume = settings.shared_memory
    # The pod's, so that the job has it, too, unless its containers have a volume there.
    memory = os.statvfs(volume if volume is not None and volume.is_dir() else "/dev/shm")  # noqa: S108
    yield "SHM_AVAILABLE", str(memory.f_blocks * memory.f_frsize // 1024)


def _job_environment(settings: Settings) -> str:
    """Return the jobs' environment in HTCondor's quoted form, in which spaces need quotes around them."""
    names = {
        "GLIDEIN_Site": settings.glidein_site,
        "GLIDEIN_ResourceName": settings.glidein_resource_name,
        "OSG_SITE_NAME": settings.glidein_resource_name,
        "OSG_SQUID_LOCATION": settings.osg_squid_location,
        **dict(settings.extra_job_env),
    }
    return " ".join(f"{name}='{_literal(value)}'" for name, value in names.items() if value is not None)


def _literal(text: str) -> str:
    """Return the text for a place between single quotes in HTCondor's configuration, which expands macros."""
    return text.replace("'", "''").replace("$", "$(DOLLAR)")


def _expression(variable: str, text: str | None) -> str:
    """Return `text` if it is a ClassAd expression. HTCondor would report an invalid one too late."""
    if text is None:
        return "true"
    check(text, f"{variable} is {text!r}, but it must be a valid ClassAd expression", parse=True)
    return text
