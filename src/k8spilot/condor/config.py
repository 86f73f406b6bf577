"""HTCondor's configuration, as text.

Each block says why it is there: `condor_config_val -verbose` in the pilot leads an operator to the reason.
Everything that comes from outside was checked by Settings; nothing here can end a string or begin a line.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from string import Template
from typing import Final

import k8spilot
from k8spilot.condor import gpu_monitor, images
from k8spilot.condor.classads import check
from k8spilot.condor.folders import Folders
from k8spilot.condor.pools import Pool, resolve
from k8spilot.settings import KILLING_SECONDS, Settings
from k8spilot.values import PLAIN

UPDATE_SECONDS: Final = 120
"""How often the startd tells the collector that it is there."""

_TEMPLATE: Final = Template("""\
# HTCondor's configuration of this pilot, written by k8spilot at each start. What an operator changes belongs
# into a file in $drop_ins, which is read last.
include ifexist : /etc/condor/condor_config

DAEMON_LIST = MASTER, STARTD
LOG = $log
LOCK = $lock
RUN = $run
SPOOL = $spool
EXECUTE = $execute
PROCD_ADDRESS = $$(RUN)/procd_pipe
LOCAL_CONFIG_FILE =
LOCAL_CONFIG_DIR = $drop_ins
# The node's kernel is not the pilot's.
ENABLE_KERNEL_TUNING = False

# --- The pool ---
CONDOR_HOST = $condor_host
COLLECTOR_HOST = $collector_host
# Access points cannot open connections to the pods of most clusters. With a broker the pod opens them, which
# works in a flat network as well.
CCB_ADDRESS = $ccb_address
CCB_HEARTBEAT_INTERVAL = 120
# The machine's name in the pool; saves looking up the pod's name, which DNS seldom has.
NETWORK_HOSTNAME = $machine
# Shared with no other machine: an account of the same name here is not the submitter.
UID_DOMAIN = $domain
FILESYSTEM_DOMAIN = $domain
# A pod that is killed leaves its slot's ad behind in the collector: for a few minutes only.
UPDATE_INTERVAL = $update
MASTER_UPDATE_INTERVAL = $update
ClassAdLifetime = $lifetime

# --- Who may do what: the pool's daemons, by token; the pilot itself, by file system ---
SEC_DEFAULT_AUTHENTICATION = REQUIRED
SEC_DEFAULT_ENCRYPTION = REQUIRED
SEC_DEFAULT_INTEGRITY = REQUIRED
SEC_DEFAULT_AUTHENTICATION_METHODS = $methods
SEC_CLIENT_AUTHENTICATION_METHODS = $methods
SEC_TOKEN_DIRECTORY = $tokens
SEC_TOKEN_SYSTEM_DIRECTORY = $tokens
SEC_PASSWORD_DIRECTORY = $passwords
ALLOW_READ = *
# Whatever runs as the jobs' account in the pilot container can authenticate, too; WRITE changes the slot's ad.
ALLOW_WRITE = condor@* condor_pool@* condor@password root@$$(UID_DOMAIN)
ALLOW_DAEMON = condor@* condor_pool@* condor@password
ALLOW_NEGOTIATOR = condor@* condor_pool@* condor@password
ALLOW_ADMINISTRATOR = condor@* condor_pool@* condor@password root@$$(UID_DOMAIN)

# --- The slot: one payload container runs one job ---
NUM_CPUS = $cpus
MEMORY = $memory
$disk
NUM_SLOTS = 1
NUM_SLOTS_TYPE_1 = 1
SLOT_TYPE_1 = 100%
SLOT_TYPE_1_PARTITIONABLE = False
# A job that fills the volume is held; the kubelet would evict the pod instead, and the job would run again.
use POLICY : Hold_If_Disk_Exceeded
# The payload container has the GPUs, and the engine has found them there. Jobs see those that are named in these
# variables; CUDA knows no device 10000.
MACHINE_RESOURCE_INVENTORY_GPUs = $gpus
ENVIRONMENT_FOR_AssignedGPUs = GPU_DEVICE_ORDINAL=/(CUDA|OCL)//  CUDA_VISIBLE_DEVICES=/CUDA//
ENVIRONMENT_VALUE_FOR_UnAssignedGPUs = 10000
# They would measure the pilot container.
RunBenchmarks = False

# --- GPUs: how busy they are, which the engine knows ---
$gpu_monitor

# --- The job: in the payload container, as the user that this one runs as ---
# All jobs have that user: nothing of the last one may be left when the next one's files come.
STARTER = $starter
STARTER_ALLOW_RUNAS_OWNER = False
SLOT1_USER = $user
# No dedicated account: HTCondor would take all processes of that user for the job's, payload-init among them.
DEDICATED_EXECUTE_ACCOUNT_REGEXP =
# The pod's resources are the payload container's; the pilot container has no cgroups to give away.
BASE_CGROUP =
DOCKER = $docker
# The test needs an image of its own, and a bind that tells nothing about the next one.
DOCKER_PERFORM_TEST = False
# Otherwise an image has a second name, which is no valid one if the registry has a port.
DOCKER_TRUST_LOCAL_IMAGES = True
DOCKER_CACHE_ADVERTISE_INTERVAL = 0
# Docker's name for the usual network, by which some users ask for it.
DOCKER_NETWORKS = bridge
# Where jobs reach the starter's proxy for their files and attributes (chirp): a pod's containers share the loopback.
DOCKER_NETWORK_NAME = lo
# The payload container has a /tmp and a /var/tmp of its own, clean for every job.
MOUNT_UNDER_SCRATCH =
# Images are bound, never run here by another runtime.
SINGULARITY = /nonexistent
# What HTCondor would run in the pilot container all the same is held instead.
STARTER_REMOTE_CMD = $guard
# The starter would ask the shadow for guidance, at a moment at which it has to ask again five seconds later.
GUIDANCE_MUMS_THE_WORD = True
ENABLE_SSH_TO_JOB = $ssh
$rootless
# A job's usage is what its starter asked the engine last. An answer costs a few milliseconds.
STARTER.POLLING_INTERVAL = 1
STARTER_JOB_ENVIRONMENT = "$environment"
# The account's home is the pilot container's. A job without a HOME of its own gets its scratch folder (the engine).
STARTER_SETS_HOME_ENV = False

# --- Eviction: SIGTERM, $vacate s, SIGKILL; all of it within the pod's grace period ---
MachineMaxVacateTime = $vacate
KILLING_TIMEOUT = $killing
SHUTDOWN_GRACEFUL_TIMEOUT = $graceful
SHUTDOWN_FAST_TIMEOUT = $fast

# --- The pilot's life ---
# Jobs are taken until GLIDEIN_ToRetire and run until GLIDEIN_ToDie, seconds since the epoch (see below).
STARTD_NOCLAIM_SHUTDOWN = $idle
# A slot that takes no more jobs and has none is of no use.
STARTD.DAEMON_SHUTDOWN = time() > GLIDEIN_ToRetire && State == "Unclaimed" && Activity == "Idle"
# The master ends, and with it the pod, at the end of its life: a job is vacated as at any eviction. When its startd has
# ended for good (condor_drain -exit-on-completion, condor_off), the engine sees it in the master's log, and that no
# other follows (as after condor_restart): an expression here could not tell that from a startd that has crashed.
MASTER.DAEMON_SHUTDOWN = time() > GLIDEIN_ToDie

# --- Which jobs ---
START_EXTRA = $start_extra
# Every job's image comes from a registry.
$images
START = $start

# --- What jobs and people see ---
$attributes
STARTD_ATTRS = $$(STARTD_ATTRS) ClassAdLifetime START_EXTRA $names
MASTER_ATTRS = $$(MASTER_ATTRS) ClassAdLifetime $names
ALL_DEBUG = $debug
""")


def render(
    settings: Settings,
    folders: Folders,
    *,
    started: int,
    passwords: bool = False,
    slot_user: str = "nobody",
    rootless: bool = False,
    facts: Mapping[str, str] | None = None,
) -> str:
    """Write the configuration.

    Args:
        settings: with all that the condor service needs.
        folders: where HTCondor's files are.
        started: when the pod started, in seconds since the epoch; its lifetime counts from here, so that a
            pilot that was started again in place does not begin a new one.
        passwords: there is a pool password to authenticate with.
        slot_user: name of the account with the payload container's uid.
        rootless: whether HTCondor is not root.
        facts: more that the slot's ad tells, names and texts; what is not plain is left out.

    Raises:
        SettingsError: an expression of the operator cannot be parsed.
    """
    pool = resolve(settings)
    to_retire = started + settings.accept_seconds
    to_die = started + settings.life_seconds
    attributes = [
        *_attributes(settings, pool),
        ("GLIDEIN_ToRetire", str(to_retire)),
        ("GLIDEIN_ToDie", str(to_die)),
        *((name, f'"{value}"') for name, value in (facts or {}).items() if PLAIN.fullmatch(value)),
    ]
    domain = f"{settings.pod_name}.{settings.pod_namespace}.{settings.pod_uid or 'pod'}"
    methods = "IDTOKENS, PASSWORD, FS" if passwords else "IDTOKENS, FS"
    return _TEMPLATE.substitute(
        drop_ins=folders.drop_ins,
        log=folders.log,
        lock=folders.lock,
        run=folders.run,
        spool=folders.spool,
        execute=folders.execute,
        docker=folders.docker_client,
        tokens=folders.tokens,
        passwords=folders.passwords,
        condor_host=pool.condor_host,
        collector_host=pool.collector_host,
        ccb_address=pool.ccb_address,
        machine=machine_name(settings),
        domain=domain,
        update=UPDATE_SECONDS,
        # Three updates may be lost before the slot is given up.
        lifetime=UPDATE_SECONDS * 3 + 30,
        methods=methods,
        cpus=settings.num_cpus or settings.payload_cpus,
        memory=settings.memory or settings.payload_memory_mb,
        disk=f"DISK = {settings.payload_disk_mb * 1024}" if settings.payload_disk_mb else "",
        user=slot_user,
        environment=_job_environment(settings),
        vacate=settings.vacate_seconds,
        killing=KILLING_SECONDS,
        graceful=settings.vacate_seconds + 5,
        fast=KILLING_SECONDS + 5,
        idle=round(settings.accept_idle_minutes * 60),
        start_extra=_expression("GLIDEIN_Start_Extra", settings.glidein_start_extra),
        images=images.configuration(),
        guard=folders.guard,
        starter=folders.starter,
        gpus=folders.gpus,
        gpu_monitor=gpu_monitor.configuration(folders),
        # Sessions' sshd would run as HTCondor's own account, and take its configuration from the sandbox.
        ssh=not rootless,
        rootless=_ROOTLESS if rootless else "",
        start=" && \\\n    ".join(f"({clause})" for clause in _start(settings, pool, rootless=rootless)),
        attributes="\n".join(f"{name} = {value}" for name, value in attributes),
        names=" ".join(name for name, _ in attributes),
        debug="D_SUB_SECOND D_PID" + (" D_FULLDEBUG" if settings.log_level == "DEBUG" else ""),
    )


def machine_name(settings: Settings) -> str:
    """Name the machine after its resource and pod, and after the pod's uid if names are to be random."""
    resource = re.sub(r"[^A-Za-z0-9.-]+", "-", settings.glidein_resource_name or "").strip(".-")[:63]
    unique = re.sub(r"[^a-f0-9]", "", settings.pod_uid)[:10] if settings.glidein_randomize_name else ""
    return ".".join(part for part in (resource, unique, settings.pod_name) if part)


# What is another way where HTCondor is not root: whatever it runs for a job has the rights of its daemons.
_ROOTLESS: Final = """\
# Where daemons and tools show each other by a folder of mode 0700 who they are. /tmp is a volume here that
# hands its group on, so that a folder in it has one bit more.
FS_LOCAL_DIR = $(RUN)
# They would run as HTCondor's own account, which reaches the Docker socket and other jobs' sandboxes.
STARTER_DISABLE_USER_SUPPLIED_TRANSFER_PLUGINS = True
# The only logs that a starter may write to (starter.c).
STARTER_LOG = $(LOG)/starter/StarterLog
STARTER_STATS_LOG = $(LOG)/starter/XferStatsLog
FILE_TRANSFER_STATS_LOG = $(LOG)/starter/transfer_history"""


# Networks that a job can ask for and get as far as the engine, which refuses the last two with a sentence.
_NETWORKS: Final = "bridge,nat,host,none"


def _start(settings: Settings, pool: Pool, *, rootless: bool) -> Iterable[str]:
    """List what a job must fulfil to be taken, one expression each.

    What START refers to of the job counts when the whole pool groups jobs for matchmaking. Nothing here may be
    different for each job of a cluster, as its arguments are.
    """
    yield "time() < GLIDEIN_ToRetire"
    # Other universes would run in the pilot container.
    yield "TARGET.JobUniverse == 5 && MY.HasDocker =?= true"
    # When a starter cannot even run `docker create`, it tells the startd that docker is gone from the machine, and
    # no job is taken until that is put right (k8spilot.condor.slot). So it happens with a network that it does not
    # know.
    yield f'TARGET.DockerNetworkType is undefined || stringListMember(TARGET.DockerNetworkType, "{_NETWORKS}")'
    if rootless:  # a user's own ones are refused, job by job, and it would be tried again and again
        yield "TARGET.TransferPlugins is undefined"
    # A debugger or the like beside the job would run in the pilot container.
    yield "TARGET.ToolDaemonCmd is undefined"
    yield "isString(MY.K8SJobImage)"
    # A registry that did not answer (k8spilot.condor.slot).
    yield "MY.K8SAvoidedRegistry isnt MY.K8SJobRegistry || time() >= (MY.K8SAvoidUntil ?: 0)"
    # Without the Kubernetes API no image can be bound (k8spilot.condor.notices).
    yield "time() >= (MY.K8SApiAwayUntil ?: 0)"
    # HTCondor takes a list that is not there for an empty one.
    yield 'TARGET.DESIRED_Sites is undefined || stringListMember(MY.GLIDEIN_Site, TARGET.DESIRED_Sites, ",")'
    yield 'stringListMember(MY.GLIDEIN_Site, TARGET.UNDESIRED_Sites, ",") isnt true'
    if settings.osg_project_name:
        yield f'TARGET.ProjectName =?= "{settings.osg_project_name}"'
    yield from pool.start
    # Undefined for a job that lacks what it asks for: such a job is not taken.
    yield "MY.START_EXTRA =?= true"


def _attributes(settings: Settings, pool: Pool) -> list[tuple[str, str]]:
    """Attributes of the machine, beside HTCondor's own: names and ClassAd expressions."""
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
    }
    osg = ("OSPool", "OSG_NODE_VALIDATED", "IsOsgVoContainer") if pool.is_osg else ()
    if pool.is_itb:
        osg = (*osg, "Is_ITB_Site")
    return [
        *((name, f'"{value}"') for name, value in texts.items() if value),
        *images.attributes(settings, pool),
        *((name, "True") for name in osg),
        *_of_the_node(),
        ("ACCEPT_JOBS_FOR_HOURS", f"{settings.accept_jobs_for_hours:g}"),
        ("ACCEPT_IDLE_MINUTES", f"{settings.accept_idle_minutes:g}"),
        *((("GLIDEIN_Max_Walltime", str(wall)),) if (wall := settings.glidein_max_walltime) else ()),
    ]


def _of_the_node() -> Iterator[tuple[str, str]]:
    """What OSPool's jobs ask of a node: numbers made as OSPool's pilots make them (osg-flock, osgvo-advertise-base)."""
    if match := re.match(r"(\d+)\.(\d+)\.(\d+)", os.uname().release):
        major, minor, patch = (int(part) for part in match.groups())
        yield "OSG_HOST_KERNEL_VERSION", str(10000 * major + 100 * minor + patch)
    memory = os.statvfs("/dev/shm")  # noqa: S108 -- the pod's, the job's too
    yield "SHM_AVAILABLE", str(memory.f_blocks * memory.f_frsize // 1024)


def _job_environment(settings: Settings) -> str:
    """Say what jobs find in their environment, in HTCondor's quoted form: spaces need quotes around them."""
    names = {
        "GLIDEIN_Site": settings.glidein_site,
        "GLIDEIN_ResourceName": settings.glidein_resource_name,
        "OSG_SITE_NAME": settings.glidein_resource_name,
    }
    return " ".join(f"{name}='{value}'" for name, value in names.items() if value)


def _expression(variable: str, text: str | None) -> str:
    """Return `text` if it is a ClassAd expression; HTCondor would say too late that it is none."""
    if text is None:
        return "true"
    check(text, f"{variable} is {text!r}, but a ClassAd expression that can be parsed is allowed", parse=True)
    return text
