"""Settings of an operator: one environment variable for each field.

Names of OSPool's pilots have the same meaning as there. The project's own names begin with K8SPILOT_. An empty variable
counts as not set.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self, get_args

from k8spilot.common.errors import SettingsError
from k8spilot.common.logs import Format
from k8spilot.settings import parsers
from k8spilot.settings.constants import PREFIX
from k8spilot.settings.parsers import ImageRule, JobVariable
from k8spilot.settings.slots import MOST, SlotSettings, slots_of
from k8spilot.settings.spellings import contradictions

Service = Literal["engine", "condor"]
Level = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
Treatment = Literal["hold", "leave"]
Sizes = Literal["equal", "requested"]


def _of[Value](read: Callable[[str], Value], default: Value, variable: str = "", *, secret: bool = False) -> Value:
    """Return a field whose value `read` parses from a variable; by default K8SPILOT_ and the field's name."""
    value: Value = field(default=default, repr=not secret, metadata={"read": read, "variable": variable})
    return value


@dataclass(frozen=True)
class Settings:
    """All settings of one pilot."""

    # --- Pool, slot and lifetime: OSPool's names ---

    glidein_site: str | None = _of(parsers.plain, None, "GLIDEIN_Site")
    """Name of the site that the resource belongs to. Required if `K8SPILOT_SERVICES` includes condor (the default)."""

    glidein_resource_name: str | None = _of(parsers.plain, None, "GLIDEIN_ResourceName")
    """Name of the resource that this pilot is part of; the machine's name begins with it. Required if
    `K8SPILOT_SERVICES` includes condor (the default)."""

    glidein_randomize_name: bool = _of(parsers.flag, False, "GLIDEIN_RANDOMIZE_NAME")
    """Add a part of the pod's uid to the machine's name, so that it is different for every pod."""

    pool: str | None = _of(parsers.pool, None, "POOL")
    """The pool to join. Required if `K8SPILOT_SERVICES` includes condor (the default), unless `CONDOR_HOST` is set,
    which has priority."""

    itb: bool = _of(parsers.flag, False, "ITB")
    """With `POOL=ospool`, join the OSG's integration test bed instead. The slot advertises `Is_ITB_Site`."""

    condor_host: str | None = _of(parsers.hosts, None, "CONDOR_HOST")
    """A list of the central manager's hosts, with or without a port, separated by commas. Most pools have one."""

    use_ccb: bool = _of(parsers.flag, True, "USE_CCB")
    """Receive connections through the pool's connection broker (CCB). Turn it off only where access points can
    connect to pods."""

    ccb_range_low: int | None = _of(parsers.port, None, "CCB_RANGE_LOW")
    """First port of the central manager's connection brokers, if it has several. Needs `CCB_RANGE_HIGH`."""

    ccb_range_high: int | None = _of(parsers.port, None, "CCB_RANGE_HIGH")
    """Last port of the central manager's connection brokers. Needs `CCB_RANGE_LOW`."""

    token: str | None = _of(str, None, "TOKEN", secret=True)
    """The pool's IDTOKEN itself. A Secret mounted at `/etc/condor/tokens-orig.d` is better, since this value is
    part of the pod's specification."""

    num_cpus: int | None = _of(parsers.whole(1), None, "NUM_CPUS")
    """CPUs that the slot advertises. Not set: the CPU limit of the payload container."""

    memory: int | None = _of(parsers.whole(1), None, "MEMORY")
    """Memory that the slot advertises, in MiB. Not set: the memory limit of the payload container."""

    overcommit: bool = _of(parsers.flag, False)
    """Let `NUM_CPUS` and `MEMORY` be more than the payload container has, or let it have no limits. Jobs then get less
    than HTCondor promises them."""

    accept_jobs_for_hours: float = _of(parsers.number(above=0), 336.0, "ACCEPT_JOBS_FOR_HOURS")
    """How long after its start the pilot takes new jobs, in hours. The start is that of the pod, or that of the
    container in a pod with `restartPolicy: Always`."""

    retirement_hours: float = _of(parsers.number(least=0), 24.0, "RETIREMENT_HOURS")
    """How long a job may continue after that, in hours. Then the job is vacated, the pilot ends, and HTCondor runs
    the job elsewhere."""

    accept_idle_minutes: float = _of(parsers.number(least=0), 30.0, "ACCEPT_IDLE_MINUTES")
    """The pilot ends when it has not been claimed for this long, in minutes. 0 means never."""

    glidein_max_walltime: int | None = _of(parsers.whole(60), None, "GLIDEIN_Max_Walltime")
    """The pilot ends at the latest this many seconds after its start. New jobs are taken for this time
    minus `RETIREMENT_HOURS`, or for `ACCEPT_JOBS_FOR_HOURS`, whichever is shorter."""

    glidein_start_extra: str | None = _of(parsers.one_line, None, "GLIDEIN_Start_Extra")
    """A ClassAd expression that a job must also fulfil. A job for which it is undefined is not taken."""

    join_timeout_seconds: float = _of(parsers.number(least=0), 600.0)
    """A pilot that was never in the pool ends with exit code 1 after this many seconds. 0 means never."""

    osg_project_name: str | None = _of(parsers.plain, None, "OSG_PROJECT_NAME")
    """Take jobs of this project only."""

    extra_job_env: tuple[JobVariable, ...] = _of(parsers.job_environment, (), "EXTRA_JOB_ENV")
    """Variables that every job gets, in HTCondor's new syntax, for example `A=1 B='two words'`. A job's own
    variables have priority."""

    osg_squid_location: str | None = _of(parsers.plain, None, "OSG_SQUID_LOCATION")
    """The site's web proxy, `host:port`. It is in the slot's ad and in every job's environment, and HTCondor's file
    transfers use it unless `http_proxy` is set."""

    # --- The pod: the downward API ---

    pod_name: str = _of(parsers.plain, "", "POD_NAME")
    """`metadata.name` of the own pod. Required; the manifest sets it."""

    pod_namespace: str = _of(parsers.plain, "", "POD_NAMESPACE")
    """`metadata.namespace` of the own pod. Required; the manifest sets it."""

    pod_uid: str = _of(parsers.plain, "", "POD_UID")
    """`metadata.uid` of the own pod. The manifest sets it."""

    node_name: str = _of(parsers.plain, "", "NODE_NAME")
    """`spec.nodeName` of the own pod. The manifest sets it."""

    cluster: str | None = _of(parsers.plain, None)
    """Name of the cluster in the slot's ad, since Kubernetes has no name of its own."""

    payload_cpus: int | None = _of(parsers.limit, None, "PAYLOAD_CPUS")
    """`limits.cpu` of the payload container, rounded up. Required if `K8SPILOT_SERVICES` includes condor (the
    default), unless `NUM_CPUS` is set; the manifest sets it."""

    payload_memory_mb: int | None = _of(parsers.limit, None, "PAYLOAD_MEMORY_MB")
    """`limits.memory` of the payload container, in MiB. Required if `K8SPILOT_SERVICES` includes condor (the
    default), unless `MEMORY` is set; the manifest sets it."""

    payload_disk_mb: int = _of(parsers.whole(0), 0, "PAYLOAD_DISK_MB")
    """`limits.ephemeral-storage` of the payload container, in MiB. 0: the free space of the sandboxes' volume
    counts."""

    disk_headroom_percent: float = _of(parsers.number(least=0, most=90), 10.0)
    """Part of that limit, in percent, that the slot does not offer: for the pilot's files, and for what a job writes
    before its end. The kubelet evicts a pod above the limit."""

    # --- Jobs, images and logs ---

    services: tuple[Service, ...] = _of(parsers.several(parsers.one_of(get_args(Service))), ("engine", "condor"))
    """A list of the services that `k8spilot run` starts, separated by commas: `engine` serves the Docker sockets,
    `condor` is HTCondor."""

    payload_containers: int = _of(parsers.whole(1, MOST), 1)
    """Number of the pod's payload containers; each runs one job at a time. `k8spilot slots` makes the manifest of a pod
    with several, and sets this."""

    slot_sizes: Sizes = _of(parsers.one_of(get_args(Sizes)), "equal")
    """With several payload containers: one slot for each, `equal` in size, or one partitionable slot of which each job
    gets what it requests (`requested`). `k8spilot slots` sets this."""

    gpu_containers: int = _of(parsers.whole(0, MOST), 0)
    """With several payload containers: number of those that have GPUs, which are the last ones. `k8spilot slots` sets
    this."""

    container_gpus: int = _of(parsers.whole(0), 0)
    """Number of GPUs of each of these. `k8spilot slots` sets this."""

    payload_container: str = _of(parsers.plain, "payload")
    """Name of the payload container. With several, the names are this one with `-1`, `-2` and so on."""

    payload_uid: int = _of(parsers.whole(1), 65534)
    """User id of the payload container, and so of all jobs. With several, this is the user id of the first one, and
    each other one has the next number."""

    payload_gid: int = _of(parsers.whole(1), 65534)
    """Group id of the payload container. With several, as the user ids."""

    idle_after_seconds: float = _of(parsers.number(least=0), 5.0)
    """The payload container returns to the idle image this many seconds after the end of the last job."""

    reuse: bool = _of(parsers.flag, False)
    """Run consecutive jobs of one claim, and so of one user, in the same container if they have the same image. Needs a
    payload container with a read-only root file system (components `restricted` and `read-only-payload`)."""

    relist: bool = _of(parsers.flag, False)
    """Resize the pod by a thousandth of a CPU where a job follows within a second, so that the kubelet looks at it at
    once. The component `relist` sets this, and has the right for it."""

    bind_timeout_seconds: float = _of(parsers.number(above=0), 1800.0)
    """Time limit for a bind and its pull in seconds, from the registry's answer. If the image is the cause, HTCondor
    holds the job; otherwise the job goes back to the queue."""

    patience_seconds: float = _of(parsers.number(least=0), 120.0)
    """Seconds for which a job waits for a registry or an API server that does not answer, before it goes back to the
    queue. The slot then avoids that registry, or waits for the API server."""

    min_free_mb: int = _of(parsers.whole(0), 1024)
    """Free space in MiB that the volume for the jobs' sandboxes must have when the pilot starts."""

    vacate_seconds: int = _of(parsers.whole(1), 60)
    """Seconds between SIGTERM and SIGKILL for an evicted job, the transfer of its files included. The pod's grace
    period must be at least 40 s longer."""

    default_image: str | None = _of(parsers.image_or_expression, None)
    """The image of jobs that name none, or a ClassAd expression over the job (`TARGET`) and the slot (`MY`) that
    returns one. If it is not set or undefined, such jobs are not taken."""

    image_map: tuple[ImageRule, ...] = _of(parsers.image_rules, ())
    """A list of rules that map images that are files, for example in CVMFS, to images in a registry. The first rule
    that matches counts."""

    unmapped_images: Treatment | None = _of(parsers.one_of(get_args(Treatment)), None)
    """Treatment of jobs whose image is a file that no rule maps: `hold` them, or `leave` them to other execution
    points. Not set: `leave` in OSPool's pools, `hold` in others."""

    allowed_images: tuple[str, ...] = _of(parsers.repositories, ())
    """A list of registries and repositories whose images jobs may use, with all repositories below them. Not set:
    all."""

    require_digest: bool = _of(parsers.flag, False)
    """Jobs must name their images by a digest, so that the image that runs is the one that was reviewed."""

    refused_images: Treatment = _of(parsers.one_of(get_args(Treatment)), "leave")
    """Treatment of jobs whose image this site does not allow or cannot get, while another site may: `leave` them to
    other execution points, or `hold` them with the reason."""

    allow_image_volumes: bool = _of(parsers.flag, True)
    """Allow images that declare a `VOLUME`. What a job writes there is on the node's disk, and no limit of the pod
    counts it."""

    log_level: Level = _of(parsers.one_of(get_args(Level)), "INFO")
    """The least severe level that is logged. With DEBUG, HTCondor's daemons log more as well."""

    log_format: Format = _of(parsers.one_of(get_args(Format)), "text")
    """Log lines as text, or as one JSON object a line."""

    metrics_port: int = _of(parsers.whole(0, 65535), 9464)
    """TCP port of metrics and probes. 0 turns them off; remove the probes from the manifest then."""

    gpu_sample_seconds: float = _of(parsers.number(least=0.1, most=3.0), 1.0)
    """Interval in seconds at which the use and memory of the GPUs are sampled. A shorter one finds shorter peaks of
    memory."""

    confine_starter: bool = _of(parsers.flag, True)
    """With the component `restricted`: keep HTCondor's starters from the pool's credentials by Landlock. If off, a
    pilot starts without it, and the owner of a job can read the pool's token."""

    # --- Paths ---

    exchange: Path = _of(parsers.absolute, Path("/k8spilot"))
    """The exchange volume: payload-init and its socket."""

    socket: Path = _of(parsers.absolute, Path("/run/k8spilot/docker.sock"))
    """Socket of the Docker Engine API."""

    execute: Path = _of(parsers.absolute, Path("/var/lib/condor/execute"))
    """The volume of the jobs' sandboxes. The payload container mounts it at the same path."""

    scratch_folders: tuple[Path, ...] = _of(
        parsers.several(parsers.absolute), (Path("/k8spilot-payload/tmp"), Path("/k8spilot-payload/var-tmp"))
    )
    """A list of the folders, separated by commas, at which the pilot container mounts the other volumes that jobs can
    write to. They are emptied between jobs."""

    shared_memory: Path | None = _of(parsers.absolute, None)
    """Where the pilot container mounts the volume that the payload containers have at `/dev/shm`; `k8spilot slots` sets
    it. Not set: they have the `/dev/shm` of the pod."""

    gpu_metrics: Path = _of(parsers.absolute, Path("/k8spilot-gpu-metrics"))
    """The volume with the socket of the GPU sampler, shared with the sampler's ephemeral container."""

    pull_secret: Path = _of(parsers.absolute, Path("/etc/k8spilot/pull-secret/.dockerconfigjson"))
    """Registry credentials, as in a Secret of type `kubernetes.io/dockerconfigjson`. The file may be missing."""

    @cached_property
    def slots(self) -> tuple[SlotSettings, ...]:
        """The slots, one for each payload container."""
        return slots_of(self)

    @property
    def sockets(self) -> tuple[Path, ...]:
        """Sockets of the engine, in the order of their descriptors (supervisor/supervisor.c).

        The first one is for requests about the whole pilot. Two more follow for each slot, unless there is only one.
        """
        ends = [end for slot in self.slots for end in (slot.socket, slot.htcondor_socket)]
        return tuple(dict.fromkeys((self.socket, *ends)))

    @property
    def is_partitionable(self) -> bool:
        """Whether the payload containers without GPUs have one slot, of which each job gets the part it requests."""
        return self.payload_containers > max(1, self.gpu_containers) and self.slot_sizes == "requested"

    @property
    def dynamic_slots(self) -> tuple[SlotSettings, ...]:
        """The slots that are parts of the partitionable slot."""
        return tuple(slot for slot in self.slots if slot.is_dynamic)

    @property
    def gpu_slots(self) -> tuple[SlotSettings, ...]:
        """The slots of the payload containers that have GPUs, in a pod with several payload containers."""
        return tuple(slot for slot in self.slots if slot.gpus)

    @property
    def slot_disk_mb(self) -> int:
        """Disk that the slot promises, in MiB; 0 if the payload container has no limit."""
        return int(self.payload_disk_mb * (1 - self.disk_headroom_percent / 100))

    @property
    def accept_seconds(self) -> int:
        """Seconds in which the pilot takes new jobs."""
        longest = self.accept_jobs_for_hours * 3600
        if self.glidein_max_walltime is not None:
            longest = min(longest, self.glidein_max_walltime - self.retirement_hours * 3600)
        return round(longest)

    @property
    def life_seconds(self) -> int:
        """Seconds in which jobs may run."""
        return self.accept_seconds + round(self.retirement_hours * 3600)

    @classmethod
    def from_environment(cls) -> Self:
        """Return the settings of the process's environment.

        Raises:
            SettingsError: a variable is missing or invalid.
        """
        return cls.of(os.environ)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        """Return the settings of an environment.

        Raises:
            SettingsError: a variable is missing or invalid.
        """
        texts = {name.lower(): text for name, text in environment.items() if text}
        values: dict[str, Any] = {}
        faults = list(contradictions(environment, variables()))
        for name, setting in variables().items():
            if text := texts.get(name.lower()):
                try:
                    values[setting.name] = setting.metadata["read"](text)
                except ValueError as error:
                    faults.append(f"{name} is {text!r}, but {error}")
        if faults:
            raise SettingsError("; ".join(faults))
        return cls(**values)

    def __post_init__(self) -> None:
        """Check that the settings are consistent.

        Raises:
            SettingsError: they are not.
        """
        if missing := [name for name, value in self._needed() if not value]:
            raise SettingsError(f"{' and '.join(missing)} must be set in the environment of the pilot container")
        if (self.ccb_range_low is None) != (self.ccb_range_high is None):
            raise SettingsError("CCB_RANGE_LOW and CCB_RANGE_HIGH must be set together")
        if self.gpu_containers and not self.payload_containers > 1:
            raise SettingsError("K8SPILOT_GPU_CONTAINERS is for pods with several payload containers; remove it")
        if self.gpu_containers > self.payload_containers or bool(self.gpu_containers) != bool(self.container_gpus):
            raise SettingsError(
                f"K8SPILOT_GPU_CONTAINERS ({self.gpu_containers}) must not be above K8SPILOT_PAYLOAD_CONTAINERS "
                f"({self.payload_containers}), and must be set together with K8SPILOT_CONTAINER_GPUS"
            )
        low, high = self.ccb_range_low, self.ccb_range_high
        if low and high and low > high:
            raise SettingsError(f"CCB_RANGE_LOW ({low}) must not be above CCB_RANGE_HIGH ({high})")
        if self.itb and self.pool == "prod-ospool" and self.condor_host is None:
            raise SettingsError("ITB=true and POOL=prod-ospool contradict each other; set POOL=ospool, or remove ITB")
        wall = self.glidein_max_walltime
        if wall is not None and self.retirement_hours * 3600 >= wall:
            raise SettingsError(
                f"RETIREMENT_HOURS ({self.retirement_hours:g}) must be less than GLIDEIN_Max_Walltime ({wall} s); "
                "otherwise the pilot takes no job"
            )

    def _needed(self) -> list[tuple[str, object]]:
        """Return the required variables of the services, with their values."""
        needed: list[tuple[str, object]] = [
            ("POD_NAME", self.pod_name),
            ("POD_NAMESPACE", self.pod_namespace),
        ]
        if "condor" in self.services:
            needed += [
                ("GLIDEIN_Site", self.glidein_site),
                ("GLIDEIN_ResourceName", self.glidein_resource_name),
                ("CONDOR_HOST (or POOL)", self.condor_host or self.pool),
                ("NUM_CPUS (or PAYLOAD_CPUS)", self.num_cpus or self.payload_cpus),
                ("MEMORY (or PAYLOAD_MEMORY_MB)", self.memory or self.payload_memory_mb),
            ]
        return needed


def variables() -> dict[str, Field[Any]]:
    """Return the settings by the names of their environment variables."""
    return {setting.metadata["variable"] or f"{PREFIX}{setting.name.upper()}": setting for setting in fields(Settings)}
