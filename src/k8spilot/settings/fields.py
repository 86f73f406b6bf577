"""Settings of an operator: one environment variable for each field.

Names of OSPool's pilots have the same meaning as there. The project's own names begin with K8SPILOT_. An empty variable
counts as not set.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeVar, get_args

from k8spilot.common.errors import SettingsError
from k8spilot.common.logs import Format
from k8spilot.settings import parsers
from k8spilot.settings.parsers import ImageRule

SENDS_CREDENTIALS: Final = "X-K8spilot-Sends-Credentials"
"""Header of HTCondor's docker client for a job that sends credentials (docker_send_credentials)."""
KILLING_SECONDS: Final = 20
"""Seconds that HTCondor waits for a starter that kills its job at once (KILLING_TIMEOUT)."""

MARGIN_SECONDS: Final = 20
"""Seconds of the pod's grace period for the end of HTCondor's daemons and the payload container."""

PILOT: Final = "pilot"
"""Name of the container that runs k8spilot."""

ENGINE: Final = "engine"
"""Name of the engine's container, if the engine has its own (components/restricted)."""

Service = Literal["engine", "condor"]


Level = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
Unmapped = Literal["hold", "leave"]

Value = TypeVar("Value")


def _of(read: Callable[[str], Value], default: Value, variable: str = "", *, secret: bool = False) -> Value:
    """Return a field whose value `read` parses from a variable; by default K8SPILOT_ and the field's name."""
    value: Value = field(default=default, repr=not secret, metadata={"read": read, "variable": variable})
    return value


@dataclass(frozen=True)
class Settings:
    """All settings of one pilot."""

    # --- The pool: OSPool's names ---

    glidein_site: str | None = _of(parsers.plain, None, "GLIDEIN_Site")
    """Site of the resource; required for the condor service."""

    glidein_resource_name: str | None = _of(parsers.plain, None, "GLIDEIN_ResourceName")
    """Resource that this pilot belongs to; required for the condor service. The machine's name begins with it."""

    glidein_randomize_name: bool = _of(parsers.flag, False, "GLIDEIN_RANDOMIZE_NAME")
    """Include a part that differs between pods in the machine's name; default false."""

    pool: str | None = _of(parsers.hosts, None, "POOL")
    """Pool to join: ospool, itb, path-facility or a central manager's host; CONDOR_HOST has priority."""

    condor_host: str | None = _of(parsers.hosts, None, "CONDOR_HOST")
    """Host of the central manager, with or without a port; several are separated by commas."""

    use_ccb: bool = _of(parsers.flag, True, "USE_CCB")
    """Accept connections through the pool's connection broker; default true. Off only if access points can connect
    to pods."""

    ccb_range_low: int | None = _of(parsers.port, None, "CCB_RANGE_LOW")
    """First port of the central manager's brokers, if it has several; requires CCB_RANGE_HIGH."""

    ccb_range_high: int | None = _of(parsers.port, None, "CCB_RANGE_HIGH")
    """Last port of the central manager's brokers."""

    token: str | None = _of(str, None, "TOKEN", secret=True)
    """The pool's IDTOKEN itself. A Secret mounted at /etc/condor/tokens-orig.d is better."""

    num_cpus: int | None = _of(parsers.whole(1), None, "NUM_CPUS")
    """CPUs of the slot; default: those of the payload container."""

    memory: int | None = _of(parsers.whole(1), None, "MEMORY")
    """Memory of the slot in MiB; default: the payload container's."""

    accept_jobs_for_hours: float = _of(parsers.number(above=0), 336.0, "ACCEPT_JOBS_FOR_HOURS")
    """Hours after its pod's start in which the pilot takes new jobs; default 336."""

    retirement_hours: float = _of(parsers.number(least=0), 24.0, "RETIREMENT_HOURS")
    """Hours that a job may run after that; default 24. Then it is vacated, and the pilot ends. HTCondor runs the job
    elsewhere."""

    accept_idle_minutes: float = _of(parsers.number(least=0), 30.0, "ACCEPT_IDLE_MINUTES")
    """Minutes without a claim after which the pilot ends; default 30. 0 means never."""

    glidein_max_walltime: int | None = _of(parsers.whole(60), None, "GLIDEIN_Max_Walltime")
    """Longest life of the pilot in seconds after its pod's start, in spite of the hours above. RETIREMENT_HOURS of
    it are reserved, so that the pilot takes new jobs for a shorter time."""

    glidein_start_extra: str | None = _of(parsers.one_line, None, "GLIDEIN_Start_Extra")
    """Additional ClassAd expression that a job must meet."""

    osg_project_name: str | None = _of(parsers.plain, None, "OSG_PROJECT_NAME")
    """Take jobs of this project only."""

    # --- The pod: the downward API ---

    pod_name: str = _of(parsers.plain, "", "POD_NAME")
    """metadata.name of the own pod."""

    pod_namespace: str = _of(parsers.plain, "", "POD_NAMESPACE")
    """metadata.namespace of the own pod."""

    pod_uid: str = _of(parsers.plain, "", "POD_UID")
    """metadata.uid of the own pod."""

    node_name: str = _of(parsers.plain, "", "NODE_NAME")
    """spec.nodeName of the own pod."""

    cluster: str | None = _of(parsers.plain, None)
    """Name of the cluster, because Kubernetes has none."""

    payload_cpus: int | None = _of(parsers.whole(1), None, "PAYLOAD_CPUS")
    """limits.cpu of the payload container, rounded up."""

    payload_memory_mb: int | None = _of(parsers.whole(1), None, "PAYLOAD_MEMORY_MB")
    """limits.memory of the payload container in MiB."""

    payload_disk_mb: int = _of(parsers.whole(0), 0, "PAYLOAD_DISK_MB")
    """limits.ephemeral-storage of the payload container in MiB; 0, as without a limit, means EXECUTE's free space."""

    # --- The pilot ---

    services: tuple[Service, ...] = _of(parsers.several(parsers.one_of(get_args(Service))), ("engine", "condor"))
    """Services that `k8spilot run` starts: the engine, HTCondor (condor), or both."""

    payload_container: str = _of(parsers.plain, "payload")
    """Name of the container whose image changes with the job; default payload."""

    payload_uid: int = _of(parsers.whole(1), 65534)
    """uid of the payload container; default 65534."""

    payload_gid: int = _of(parsers.whole(1), 65534)
    """gid of the payload container; default 65534."""

    idle_after_seconds: float = _of(parsers.number(least=0), 5.0)
    """Seconds from the last job's end to the return to the idle image; default 5."""

    bind_timeout_seconds: float = _of(parsers.number(above=0), 1800.0)
    """Limit of a bind in seconds, including the pull of the image; default 1800. After that the job is held."""

    patience_seconds: float = _of(parsers.number(least=0), 120.0)
    """Seconds that a job waits for an unavailable registry or Kubernetes API; default 120. Then the job returns to
    the queue, and for a while the slot takes no jobs that need the same."""

    min_free_mb: int = _of(parsers.whole(0), 1024)
    """Free space for the jobs' sandboxes that the pilot requires at its start, in MiB; default 1024."""

    vacate_seconds: int = _of(parsers.whole(1), 60)
    """Seconds between SIGTERM and SIGKILL of an evicted job; default 60. The pod's grace period must be longer."""

    default_image: str | None = _of(parsers.image_or_expression, None)
    """Image of jobs that request none, or a ClassAd expression over the job (TARGET) and the slot (MY) for it.
    Without an image the slot does not take such jobs."""

    image_map: tuple[ImageRule, ...] = _of(parsers.image_rules, ())
    """Rules that map an image that is a file, for example in CVMFS, to an image of a registry; the first match
    counts."""

    unmapped_images: Unmapped | None = _of(parsers.one_of(get_args(Unmapped)), None)
    """Treatment of jobs whose image is a file that no rule maps: hold them, or leave them to other execution points.
    The default is leave in the OSG's pools, and hold in others."""

    allowed_images: tuple[str, ...] = _of(parsers.repositories, ())
    """Registries and repositories whose images jobs may use, including the repositories below them; by default all."""

    require_digest: bool = _of(parsers.flag, False)
    """Require a digest in the names of jobs' images, so that the image that runs is the one that was reviewed;
    default false."""

    allow_image_volumes: bool = _of(parsers.flag, True)
    """Allow images that declare volumes: folders on the node's disk that no limit of the pod counts; default true."""

    log_level: Level = _of(parsers.one_of(get_args(Level)), "INFO")
    """Level of the log; default INFO. DEBUG also makes HTCondor's daemons verbose."""

    log_format: Format = _of(parsers.one_of(get_args(Format)), "text")
    """Format of the log: text lines for people, or JSON objects; default text."""

    metrics_port: int = _of(parsers.whole(0, 65535), 9464)
    """TCP port of metrics and probes; default 9464. 0 disables it."""

    gpu_sample_seconds: float = _of(parsers.number(least=0.1, most=3.0), 1.0)
    """Seconds between measurements of the GPUs' utilization and memory, if there are GPUs; default 1."""

    confine_starter: bool = _of(parsers.flag, True)
    """Without root, prevent HTCondor's starters from reading the pool's credentials, with Landlock; default true. On
    a kernel without Landlock a pilot starts only if this is off, and then a job's owner can read the pool's token."""

    # --- Paths ---

    exchange: Path = _of(parsers.absolute, Path("/k8spilot"))
    """Volume for the communication of the pilot and payload-init."""

    socket: Path = _of(parsers.absolute, Path("/run/k8spilot/docker.sock"))
    """Socket of the Docker Engine API."""

    execute: Path = _of(parsers.absolute, Path("/var/lib/condor/execute"))
    """Volume of the jobs' sandboxes, which the payload container mounts at the same path."""

    scratch_folders: tuple[Path, ...] = _of(
        parsers.several(parsers.absolute), (Path("/k8spilot-payload/tmp"), Path("/k8spilot-payload/var-tmp"))
    )
    """The pilot's mount paths of the payload container's other writable volumes. The pilot empties them between
    jobs."""

    gpu_metrics: Path = _of(parsers.absolute, Path("/k8spilot-gpu-metrics"))
    """Volume of the GPU metrics, which the pilot shares with the GPU metrics container."""

    pull_secret: Path = _of(parsers.absolute, Path("/etc/k8spilot/pull-secret/.dockerconfigjson"))
    """Credentials for registries, as in a Secret of type kubernetes.io/dockerconfigjson; optional."""

    @property
    def htcondor_socket(self) -> Path:
        """Socket of the same API for HTCondor's docker client only."""
        return self.socket.with_name(f"htcondor-{self.socket.name}")

    @property
    def sockets(self) -> tuple[Path, Path]:
        """Docker sockets, in the order of their descriptors (supervisor/supervisor.py)."""
        return (self.socket, self.htcondor_socket)

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
        faults = []
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
        low, high = self.ccb_range_low, self.ccb_range_high
        if low and high and low > high:
            raise SettingsError(f"CCB_RANGE_LOW ({low}) must not be above CCB_RANGE_HIGH ({high})")
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
    return {setting.metadata["variable"] or f"K8SPILOT_{setting.name.upper()}": setting for setting in fields(Settings)}
