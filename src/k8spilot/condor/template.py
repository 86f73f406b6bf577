"""The text of HTCondor's configuration; what is `$so` in it is filled in by k8spilot.condor.config.

Each block says why it is there: `condor_config_val -verbose` in the pilot leads an operator to the reason.
"""

from string import Template
from typing import Final

TEMPLATE: Final = Template("""\
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
# A job shares the pod's network namespace, and by that all abstract sockets in it. Behind a shared port, each daemon
# has such a socket and trusts who connects to it: a job could end or stop HTCondor with one message. Without, each
# daemon has a TCP port of its own, and asks there who it is that connects.
USE_SHARED_PORT = False
WANT_UDP_COMMAND_SOCKET = False
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
# A job can have its claim kept for its user's next one (keep_claim_idle), for as long as it likes: half a minute here.
# START cannot say that: without a job it is undefined, and keeps the claim. Otherwise HTCondor's own default.
CLAIM_WORKLIFE = ifThenElse(MY.Activity == "Idle" && time() - MY.EnteredCurrentActivity > 30, 0, 1200)

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

# What is another way where HTCondor is not root: whatever it runs for a job has the rights of its daemons.
ROOTLESS: Final = """\
# Where daemons and tools show each other by a folder of mode 0700 who they are. /tmp is a volume here that
# hands its group on, so that a folder in it has one bit more.
FS_LOCAL_DIR = $(RUN)
# They would run as HTCondor's own account, which reaches the Docker socket and other jobs' sandboxes.
STARTER_DISABLE_USER_SUPPLIED_TRANSFER_PLUGINS = True
# The only logs that a starter may write to (starter.c).
STARTER_LOG = $(LOG)/starter/StarterLog
STARTER_STATS_LOG = $(LOG)/starter/XferStatsLog
FILE_TRANSFER_STATS_LOG = $(LOG)/starter/transfer_history"""
