"""What an operator can set: one environment variable per field.

Names that OSPool's pilots have mean here what they mean there; the project's own begin with K8SPILOT_.
An empty variable counts as not set.
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
"""Header by which HTCondor's docker client says that its job sends credentials (docker_send_credentials)."""
KILLING_SECONDS: Final = 20
"""How long HTCondor waits for a starter that it has told to kill its job at once (KILLING_TIMEOUT)."""

MARGIN_SECONDS: Final = 20
"""What ends beside the job within the pod's grace period: HTCondor's daemons and the payload container."""

PILOT: Final = "pilot"
"""Name of the container that k8spilot runs in."""

ENGINE: Final = "engine"
"""Name of the container of the engine, where that has one of its own (components/restricted)."""

Service = Literal["engine", "condor"]


Level = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
Unmapped = Literal["hold", "leave"]

Value = TypeVar("Value")


def _of(read: Callable[[str], Value], default: Value, variable: str = "", *, secret: bool = False) -> Value:
    """A field that `read` makes of its variable's text; without a name of its own that is K8SPILOT_ and the field's."""
    value: Value = field(default=default, repr=not secret, metadata={"read": read, "variable": variable})
    return value


@dataclass(frozen=True)
class Settings:
    """All settings of one pilot."""

    # --- What the pool sees: OSPool's names ---

    glidein_site: str | None = _of(parsers.plain, None, "GLIDEIN_Site")
    """The site that the resource belongs to; needed for the condor service."""

    glidein_resource_name: str | None = _of(parsers.plain, None, "GLIDEIN_ResourceName")
    """The resource that this pilot is part of; needed for the condor service. Begins the machine's name."""

    glidein_randomize_name: bool = _of(parsers.flag, False, "GLIDEIN_RANDOMIZE_NAME")
    """Put a part that is different for every pod into the machine's name."""

    pool: str | None = _of(parsers.hosts, None, "POOL")
    """The pool to join: ospool, itb, path-facility or a central manager's host; CONDOR_HOST has priority."""

    condor_host: str | None = _of(parsers.hosts, None, "CONDOR_HOST")
    """The central manager's host, with or without a port; several are separated by commas."""

    use_ccb: bool = _of(parsers.flag, True, "USE_CCB")
    """Be reached through the pool's connection broker; off only where access points can connect to pods."""

    ccb_range_low: int | None = _of(parsers.port, None, "CCB_RANGE_LOW")
    """First port of the central manager's brokers, where it has several; needs CCB_RANGE_HIGH."""

    ccb_range_high: int | None = _of(parsers.port, None, "CCB_RANGE_HIGH")
    """Last port of the central manager's brokers."""

    token: str | None = _of(str, None, "TOKEN", secret=True)
    """The pool's IDTOKEN itself; better is a Secret mounted at /etc/condor/tokens-orig.d."""

    num_cpus: int | None = _of(parsers.whole(1), None, "NUM_CPUS")
    """CPUs of the slot; otherwise those of the payload container."""

    memory: int | None = _of(parsers.whole(1), None, "MEMORY")
    """Memory of the slot in MiB; otherwise that of the payload container."""

    accept_jobs_for_hours: float = _of(parsers.number(above=0), 336.0, "ACCEPT_JOBS_FOR_HOURS")
    """How long after its pod's start the pilot takes new jobs."""

    retirement_hours: float = _of(parsers.number(least=0), 24.0, "RETIREMENT_HOURS")
    """How long a job may go on after that; then it is vacated, the pilot ends, and HTCondor runs the job elsewhere."""

    accept_idle_minutes: float = _of(parsers.number(least=0), 30.0, "ACCEPT_IDLE_MINUTES")
    """The pilot ends when it was not claimed for this long; 0 means never."""

    glidein_max_walltime: int | None = _of(parsers.whole(60), None, "GLIDEIN_Max_Walltime")
    """How many seconds after its pod's start the pilot ends at the latest, whatever the hours above are. Of that time
    the retirement is kept, so that new jobs are taken for a shorter time."""

    glidein_start_extra: str | None = _of(parsers.one_line, None, "GLIDEIN_Start_Extra")
    """A ClassAd expression that a job must fulfil, too."""

    osg_project_name: str | None = _of(parsers.plain, None, "OSG_PROJECT_NAME")
    """Take jobs of this project only."""

    # --- What the pod is: the downward API ---

    pod_name: str = _of(parsers.plain, "", "POD_NAME")
    """metadata.name of the own pod."""

    pod_namespace: str = _of(parsers.plain, "", "POD_NAMESPACE")
    """metadata.namespace of the own pod."""

    pod_uid: str = _of(parsers.plain, "", "POD_UID")
    """metadata.uid of the own pod."""

    node_name: str = _of(parsers.plain, "", "NODE_NAME")
    """spec.nodeName of the own pod."""

    cluster: str | None = _of(parsers.plain, None)
    """The cluster's name, since Kubernetes has none."""

    payload_cpus: int | None = _of(parsers.whole(1), None, "PAYLOAD_CPUS")
    """limits.cpu of the payload container, rounded up."""

    payload_memory_mb: int | None = _of(parsers.whole(1), None, "PAYLOAD_MEMORY_MB")
    """limits.memory of the payload container in MiB."""

    payload_disk_mb: int = _of(parsers.whole(0), 0, "PAYLOAD_DISK_MB")
    """limits.ephemeral-storage of the payload container in MiB; 0, as without one, for EXECUTE's free space."""

    # --- How the pilot works ---

    services: tuple[Service, ...] = _of(parsers.several(parsers.one_of(get_args(Service))), ("engine", "condor"))
    """What `k8spilot run` starts: the Docker socket, HTCondor, or both."""

    payload_container: str = _of(parsers.plain, "payload")
    """Name of the container whose image follows the job."""

    payload_uid: int = _of(parsers.whole(1), 65534)
    """The uid that the payload container runs as."""

    payload_gid: int = _of(parsers.whole(1), 65534)
    """The gid that the payload container runs as."""

    idle_after_seconds: float = _of(parsers.number(least=0), 5.0)
    """The payload container goes back to the idle image this long after the last job's end."""

    bind_timeout_seconds: float = _of(parsers.number(above=0), 1800.0)
    """How long a bind may take, the pull of the image included; after that the job is held."""

    patience_seconds: float = _of(parsers.number(least=0), 120.0)
    """How long a job waits for a registry or a Kubernetes API that is away; after that it goes back to the queue, and
    jobs that need the same are left to other execution points for a while."""

    min_free_mb: int = _of(parsers.whole(0), 1024)
    """How many MiB must be free for the jobs' sandboxes when the pilot starts."""

    vacate_seconds: int = _of(parsers.whole(1), 60)
    """How long an evicted job has between SIGTERM and SIGKILL; the pod's grace period must be longer."""

    default_image: str | None = _of(parsers.image_or_expression, None)
    """The image of jobs that ask for none, or a ClassAd expression over the job (TARGET) and the slot (MY) that says
    which; without it, or where it says none, they are not taken."""

    image_map: tuple[ImageRule, ...] = _of(parsers.image_rules, ())
    """Which image of a registry a job gets for one that is a file, in CVMFS for example; the first rule counts."""

    unmapped_images: Unmapped | None = _of(parsers.one_of(get_args(Unmapped)), None)
    """What becomes of jobs whose image is a file that no rule maps: hold them, or leave them to other execution
    points. Not set, they are left in the OSG's pools and held in others."""

    allowed_images: tuple[str, ...] = _of(parsers.repositories, ())
    """Registries and repositories whose images jobs may use, the repositories below them included; with none, all."""

    require_digest: bool = _of(parsers.flag, False)
    """Jobs must name their images by a digest, so that what runs is what was looked at."""

    allow_image_volumes: bool = _of(parsers.flag, True)
    """Jobs may have images that declare volumes: folders of the node's disk for which no limit of the pod counts."""

    log_level: Level = _of(parsers.one_of(get_args(Level)), "INFO")
    """What is logged; DEBUG makes HTCondor's daemons talkative as well."""

    log_format: Format = _of(parsers.one_of(get_args(Format)), "text")
    """How it is logged: lines for people, or JSON objects."""

    metrics_port: int = _of(parsers.whole(0, 65535), 9464)
    """The TCP port on which metrics and probes are answered; 0 for none."""

    gpu_sample_seconds: float = _of(parsers.number(least=0.1, most=3.0), 1.0)
    """How often the GPUs' use and memory are looked at, where there are GPUs."""

    confine_starter: bool = _of(parsers.flag, True)
    """Where HTCondor is not root, keep its starters from the pool's credentials, by Landlock. Where a node's kernel has
    none, a pilot does not start unless this is off, and then a job's owner may read the pool's token."""

    # --- Where things are ---

    exchange: Path = _of(parsers.absolute, Path("/k8spilot"))
    """The volume through which the pilot and payload-init talk."""

    socket: Path = _of(parsers.absolute, Path("/run/k8spilot/docker.sock"))
    """The socket on which the Docker Engine API is served."""

    execute: Path = _of(parsers.absolute, Path("/var/lib/condor/execute"))
    """The volume for the jobs' sandboxes, mounted at this path in the payload container as well."""

    scratch_folders: tuple[Path, ...] = _of(
        parsers.several(parsers.absolute), (Path("/k8spilot-payload/tmp"), Path("/k8spilot-payload/var-tmp"))
    )
    """Where the pilot sees the other volumes that the payload can write to; emptied between jobs."""

    gpu_metrics: Path = _of(parsers.absolute, Path("/k8spilot-gpu-metrics"))
    """The volume over which the GPUs' figures come, shared with the ephemeral container that measures them."""

    pull_secret: Path = _of(parsers.absolute, Path("/etc/k8spilot/pull-secret/.dockerconfigjson"))
    """Credentials for registries, as in a Secret of type kubernetes.io/dockerconfigjson; may be missing."""

    @property
    def htcondor_socket(self) -> Path:
        """The socket on which the same API is served to HTCondor's docker client alone."""
        return self.socket.with_name(f"htcondor-{self.socket.name}")

    @property
    def sockets(self) -> tuple[Path, Path]:
        """The Docker sockets, in the order of their descriptors (supervisor/supervisor.py)."""
        return (self.socket, self.htcondor_socket)

    @property
    def accept_seconds(self) -> int:
        """How long new jobs are taken."""
        longest = self.accept_jobs_for_hours * 3600
        if self.glidein_max_walltime is not None:
            longest = min(longest, self.glidein_max_walltime - self.retirement_hours * 3600)
        return round(longest)

    @property
    def life_seconds(self) -> int:
        """How long jobs may run."""
        return self.accept_seconds + round(self.retirement_hours * 3600)

    @classmethod
    def from_environment(cls) -> Self:
        """Read the process's environment.

        Raises:
            SettingsError: a variable is missing or has a value that it cannot have.
        """
        return cls.of(os.environ)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        """Read an environment.

        Raises:
            SettingsError: as above.
        """
        texts = {name.lower(): text for name, text in environment.items() if text}
        found: dict[str, Any] = {}
        faults = []
        for name, one in variables().items():
            if text := texts.get(name.lower()):
                try:
                    found[one.name] = one.metadata["read"](text)
                except ValueError as error:
                    faults.append(f"{name} is {text!r}, but {error}")
        if faults:
            raise SettingsError("; ".join(faults))
        return cls(**found)

    def __post_init__(self) -> None:
        """See that they make sense together.

        Raises:
            SettingsError: they do not.
        """
        if missing := [name for name, there in self._needed() if not there]:
            raise SettingsError(f"{' and '.join(missing)} must be set in the environment of the pilot container")
        if (self.ccb_range_low is None) != (self.ccb_range_high is None):
            raise SettingsError("CCB_RANGE_LOW and CCB_RANGE_HIGH must be set both or not at all")
        low, high = self.ccb_range_low, self.ccb_range_high
        if low and high and low > high:
            raise SettingsError(f"CCB_RANGE_LOW ({low}) must not be above CCB_RANGE_HIGH ({high})")
        wall = self.glidein_max_walltime
        if wall is not None and self.retirement_hours * 3600 >= wall:
            raise SettingsError(
                f"RETIREMENT_HOURS ({self.retirement_hours:g}) must be less than GLIDEIN_Max_Walltime ({wall} s), or "
                "no job could be taken"
            )

    def _needed(self) -> list[tuple[str, object]]:
        """Variables without which the chosen services cannot work, and whether they are there."""
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
    """The settings by the names of their environment variables."""
    return {one.metadata["variable"] or f"K8SPILOT_{one.name.upper()}": one for one in fields(Settings)}
