"""What an operator can set: one environment variable per field.

Names that OSPool's pilots have mean here what they mean there; the project's own begin with K8SPILOT_.
An empty variable counts as not set.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from k8spilot.errors import SettingsError

KILLING_SECONDS: Final = 20
"""How long HTCondor waits for a starter that it has told to kill its job at once (KILLING_TIMEOUT)."""

Service = Literal["engine", "condor"]

# These values go into HTCondor's configuration, as ClassAd strings or bare. What could end a string or a
# line, or start a macro, is refused rather than escaped: no site has such a name, and nothing is injected.
PLAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_ .,:@/+()-]*")
HOSTS: Final = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9.:,?=&_\[\] -]*")
IMAGE: Final = re.compile(r"(docker://)?[A-Za-z0-9][A-Za-z0-9._:/@+-]*")


def _plain(value: str) -> str:
    if not PLAIN.fullmatch(value):
        raise ValueError("letters, digits, spaces and _ . , : @ / + ( ) - are allowed")
    return value


def _hosts(value: str) -> str:
    if not HOSTS.fullmatch(value):
        raise ValueError("host names or addresses, each with or without :port, separated by commas, are allowed")
    return ",".join(host for host in re.split(r"[,\s]+", value) if host)


def _image(value: str) -> str:
    if not IMAGE.fullmatch(value):
        raise ValueError("an image reference such as docker://registry.example/image:tag is allowed")
    return value if value.startswith("docker://") else f"docker://{value}"


def _image_or_expression(value: str) -> str:
    """A reference is told from a ClassAd expression by its looks; `busybox` means the image."""
    return _image(value) if IMAGE.fullmatch(value) else _one_line(value)


def _one_line(value: str) -> str:
    if not value.isprintable() or value.endswith("\\"):
        raise ValueError("one line of printable characters that does not end in a backslash is allowed")
    return value


def _absolute(value: Path) -> Path:
    # The paths go into HTCondor's configuration, too.
    if not re.fullmatch(r"/[A-Za-z0-9._/+-]*", str(value)):
        raise ValueError("an absolute path of letters, digits and . _ / + - is allowed")
    return value


def _split(value: Any) -> Any:
    return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value


class ImageRule(NamedTuple):
    """What becomes of images whose name a regular expression finds something in."""

    pattern: str
    """A Perl-compatible regular expression."""
    replacement: str
    """The image in a registry, with docker://; \\1 is the expression's first group."""


def _rules(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return tuple(_rule(text) for line in re.split(r"[;\n]", value) if (text := line.strip()))


def _rule(text: str) -> ImageRule:
    pattern, arrow, replacement = (part.strip() for part in text.rpartition("=>"))
    if not (
        arrow and pattern and replacement.startswith("docker://") and text.isprintable() and " " not in replacement
    ):
        raise ValueError(
            "rules `regular expression => docker://registry.example/image:tag`, separated by semicolons or new lines, "
            f"without quotes, are allowed; {text!r} is none"
        )
    return ImageRule(pattern, replacement)


Plain = Annotated[str, AfterValidator(_plain)]
Hosts = Annotated[str, AfterValidator(_hosts)]
ImageOrExpression = Annotated[str, AfterValidator(_image_or_expression)]
OneLine = Annotated[str, AfterValidator(_one_line)]
AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
Port = Annotated[int, Field(ge=1, le=65535)]


class Settings(BaseSettings):
    """All settings of one pilot; frozen."""

    # A field without a name of its own here is K8SPILOT_ and its name.
    model_config = SettingsConfigDict(
        frozen=True, env_prefix="K8SPILOT_", env_ignore_empty=True, extra="ignore", populate_by_name=True
    )

    # --- What the pool sees: OSPool's names ---

    glidein_site: Plain | None = Field(default=None, validation_alias="GLIDEIN_Site")
    """The site that the resource belongs to; needed for the condor service."""

    glidein_resource_name: Plain | None = Field(default=None, validation_alias="GLIDEIN_ResourceName")
    """The resource that this pilot is part of; needed for the condor service. Begins the machine's name."""

    glidein_randomize_name: bool = Field(default=False, validation_alias="GLIDEIN_RANDOMIZE_NAME")
    """Put a part that is different for every pod into the machine's name."""

    pool: Hosts | None = Field(default=None, validation_alias="POOL")
    """The pool to join: ospool, itb, path-facility or a central manager's host; CONDOR_HOST has priority."""

    condor_host: Hosts | None = Field(default=None, validation_alias="CONDOR_HOST")
    """The central manager's host, with or without a port; several are separated by commas."""

    use_ccb: bool = Field(default=True, validation_alias="USE_CCB")
    """Be reached through the pool's connection broker; off only where access points can connect to pods."""

    ccb_range_low: Port | None = Field(default=None, validation_alias="CCB_RANGE_LOW")
    """First port of the central manager's brokers, where it has several; needs CCB_RANGE_HIGH."""

    ccb_range_high: Port | None = Field(default=None, validation_alias="CCB_RANGE_HIGH")
    """Last port of the central manager's brokers."""

    token: SecretStr | None = Field(default=None, validation_alias="TOKEN")
    """The pool's IDTOKEN itself; better is a Secret mounted at /etc/condor/tokens-orig.d."""

    num_cpus: Annotated[int, Field(ge=1)] | None = Field(default=None, validation_alias="NUM_CPUS")
    """CPUs of the slot; otherwise those of the payload container."""

    memory: Annotated[int, Field(ge=1)] | None = Field(default=None, validation_alias="MEMORY")
    """Memory of the slot in MiB; otherwise that of the payload container."""

    accept_jobs_for_hours: Annotated[int, Field(ge=1)] = Field(default=336, validation_alias="ACCEPT_JOBS_FOR_HOURS")
    """How long after its start the pilot takes new jobs."""

    retirement_hours: Annotated[int, Field(ge=1)] = Field(default=24, validation_alias="RETIREMENT_HOURS")
    """How long a job may go on after that; then the pilot ends and HTCondor runs the job elsewhere."""

    accept_idle_minutes: Annotated[int, Field(ge=0)] = Field(default=30, validation_alias="ACCEPT_IDLE_MINUTES")
    """The pilot ends when it was not claimed for this long; 0 means never."""

    glidein_start_extra: OneLine | None = Field(default=None, validation_alias="GLIDEIN_Start_Extra")
    """A ClassAd expression that a job must fulfil, too."""

    osg_project_name: Plain | None = Field(default=None, validation_alias="OSG_PROJECT_NAME")
    """Take jobs of this project only."""

    # --- What the pod is: the downward API ---

    pod_name: Plain = Field(default="", validate_default=False, validation_alias="POD_NAME")
    """metadata.name of the own pod."""

    pod_namespace: Plain = Field(default="", validate_default=False, validation_alias="POD_NAMESPACE")
    """metadata.namespace of the own pod."""

    pod_uid: Plain = Field(default="", validate_default=False, validation_alias="POD_UID")
    """metadata.uid of the own pod."""

    node_name: Plain = Field(default="", validate_default=False, validation_alias="NODE_NAME")
    """spec.nodeName of the own pod."""

    payload_cpus: Annotated[int, Field(ge=1)] | None = Field(default=None, validation_alias="PAYLOAD_CPUS")
    """limits.cpu of the payload container, rounded up."""

    payload_memory_mb: Annotated[int, Field(ge=1)] | None = Field(default=None, validation_alias="PAYLOAD_MEMORY_MB")
    """limits.memory of the payload container in MiB."""

    payload_disk_mb: Annotated[int, Field(ge=0)] = Field(default=0, validation_alias="PAYLOAD_DISK_MB")
    """limits.ephemeral-storage of the payload container in MiB; 0, as without one, for EXECUTE's free space."""

    # --- How the pilot works ---

    services: Annotated[tuple[Service, ...], NoDecode, BeforeValidator(_split)] = ("engine", "condor")
    """What `k8spilot run` starts: the Docker socket, HTCondor, or both."""

    payload_container: Plain = "payload"
    """Name of the container whose image follows the job."""

    payload_uid: Annotated[int, Field(ge=1)] = 65534
    """The uid that the payload container runs as."""

    payload_gid: Annotated[int, Field(ge=1)] = 65534
    """The gid that the payload container runs as."""

    idle_after_seconds: Annotated[float, Field(ge=0)] = 5.0
    """The payload container goes back to the idle image this long after the last job's end."""

    bind_timeout_seconds: Annotated[float, Field(gt=0)] = 1800.0
    """How long a bind may take, the pull of the image included; after that the job is held."""

    pull_patience_seconds: Annotated[float, Field(ge=0)] = 120.0
    """How long the kubelet may go on trying to get an image from a registry that is away; after that the job goes back
    to the queue, and jobs with images from there are left to other execution points for a while."""

    vacate_seconds: Annotated[int, Field(ge=1)] = 60
    """How long an evicted job has between SIGTERM and SIGKILL; the pod's grace period must be longer."""

    default_image: ImageOrExpression | None = None
    """The image of jobs that ask for none, or a ClassAd expression over the job (TARGET) and the slot (MY) that says
    which; without it, or where it says none, they are not taken."""

    image_map: Annotated[tuple[ImageRule, ...], NoDecode, BeforeValidator(_rules)] = ()
    """Which image of a registry a job gets for one that is a file, in CVMFS for example; the first rule counts."""

    unmapped_images: Literal["hold", "leave"] | None = None
    """What becomes of jobs whose image is a file that no rule maps: hold them, or leave them to other execution
    points. Not set, they are left in the OSG's pools and held in others."""

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """What is logged; DEBUG makes HTCondor's daemons talkative as well."""

    # --- Where things are ---

    exchange: AbsolutePath = Path("/k8spilot")
    """The volume through which the pilot and payload-init talk."""

    socket: AbsolutePath = Path("/run/k8spilot/docker.sock")
    """The socket on which the Docker Engine API is served."""

    execute: AbsolutePath = Path("/var/lib/condor/execute")
    """The volume for the jobs' sandboxes, mounted at this path in the payload container as well."""

    scratch_folders: Annotated[tuple[AbsolutePath, ...], NoDecode, BeforeValidator(_split)] = (
        Path("/k8spilot-payload/tmp"),
        Path("/k8spilot-payload/var-tmp"),
    )
    """Where the pilot sees the other volumes that the payload can write to; emptied between jobs."""

    pull_secret: AbsolutePath = Path("/etc/k8spilot/pull-secret/.dockerconfigjson")
    """Credentials for registries, as in a Secret of type kubernetes.io/dockerconfigjson; may be missing."""

    @classmethod
    def from_environment(cls) -> Self:
        """Read the process's environment.

        Raises:
            SettingsError: a variable is missing or has a value that it cannot have.
        """
        try:
            return cls()
        except ValidationError as error:
            raise SettingsError(_sentence(error)) from None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if missing := [name for name, there in self._needed() if not there]:
            raise ValueError(f"{' and '.join(missing)} must be set in the environment of the pilot container")
        if (self.ccb_range_low is None) != (self.ccb_range_high is None):
            raise ValueError("CCB_RANGE_LOW and CCB_RANGE_HIGH must be set both or not at all")
        low, high = self.ccb_range_low, self.ccb_range_high
        if low and high and low > high:
            raise ValueError(f"CCB_RANGE_LOW ({low}) must not be above CCB_RANGE_HIGH ({high})")
        return self

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


def _sentence(error: ValidationError) -> str:
    """Say the first fault: the variable, its value, what is allowed."""
    first = error.errors()[0]
    if not first["loc"]:  # from _complete: a sentence already
        return str(first["ctx"]["error"])
    name, value = str(first["loc"][0]), first["input"]
    if name in Settings.model_fields:
        name = str(Settings.model_fields[name].validation_alias or f"K8SPILOT_{name.upper()}")
    if first["type"] == "value_error":
        allowed = str(first["ctx"]["error"])
    else:
        message = first["msg"].removeprefix("Input ")
        allowed = f"it {message[:1].lower()}{message[1:]}"
    return f"{name} is {value!r}, but {allowed}"
