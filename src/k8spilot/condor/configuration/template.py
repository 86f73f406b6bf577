"""Template of HTCondor's configuration. k8spilot.condor.configuration.values substitutes the values for `$name`.

Each block states its reason: `condor_config_val -verbose` in the pilot leads an operator to it.
"""

from string import Template
from typing import Final

TEMPLATE: Final = Template("""\
# HTCondor's configuration of this pilot, written by k8spilot at each start. An operator's changes belong into a file
# in $drop_ins, which is read last.
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
# The node's kernel does not belong to the pilot.
ENABLE_KERNEL_TUNING = False

# --- The pool ---
CONDOR_HOST = $condor_host
COLLECTOR_HOST = $collector_host
# In most clusters access points cannot open connections to pods. With a broker the pod opens them, which also works
# in a flat network.
CCB_ADDRESS = $ccb_address
CCB_HEARTBEAT_INTERVAL = 120
# A job shares the pod's network namespace, and with it all abstract sockets. Behind a shared port, each daemon has such
# a socket and trusts its clients: a job could end or stop HTCondor with one message. Without a shared port, each daemon
# has its own TCP port and authenticates its clients there.
USE_SHARED_PORT = False
WANT_UDP_COMMAND_SOCKET = False
# The machine's name in the pool. It saves a lookup of the pod's name, which DNS seldom has.
NETWORK_HOSTNAME = $machine
# The domains belong to this machine only: an account of the same name here is not the submitter.
UID_DOMAIN = $domain
FILESYSTEM_DOMAIN = $domain
# The collector drops the ad of a killed pod after a few minutes.
UPDATE_INTERVAL = $update
MASTER_UPDATE_INTERVAL = $update
# The slot's ad tells how long its last jobs took. The provisioner then knows how many jobs the pilot will take soon.
STATISTICS_TO_PUBLISH_LIST = JobBusyTime
ClassAdLifetime = $lifetime

# --- Authorization: the pool's daemons by token, the pilot itself by file system ---
SEC_DEFAULT_AUTHENTICATION = REQUIRED
SEC_DEFAULT_ENCRYPTION = REQUIRED
SEC_DEFAULT_INTEGRITY = REQUIRED
SEC_DEFAULT_AUTHENTICATION_METHODS = $methods
SEC_CLIENT_AUTHENTICATION_METHODS = $methods
SEC_TOKEN_DIRECTORY = $tokens
SEC_TOKEN_SYSTEM_DIRECTORY = $tokens
SEC_PASSWORD_DIRECTORY = $passwords
ALLOW_READ = *
# Programs of the jobs' account in the pilot container can authenticate, too. WRITE allows changes of the slot's ad.
ALLOW_WRITE = condor@* condor_pool@* condor@password root@$$(UID_DOMAIN)
ALLOW_DAEMON = condor@* condor_pool@* condor@password
ALLOW_NEGOTIATOR = condor@* condor_pool@* condor@password
ALLOW_ADMINISTRATOR = condor@* condor_pool@* condor@password root@$$(UID_DOMAIN)

# --- The slots: each payload container runs one job. A partitionable slot has no more dynamic slots than the pod has
# payload containers for them (START). Each payload container with GPUs has a slot type of its own ---
NUM_CPUS = $cpus
MEMORY = $memory
$disk
$slot_types
# A job that uses more disk than it may is held, with the code of OSPool's pilots (21, 104). Otherwise the kubelet would
# evict the pod, and the job would run again. HTCondor measures the sandbox only, and every few minutes. The engine
# measures all that counts, ends the job in time, and names it here (k8spilot.condor.ads.publisher). The times show that
# it is this run of the job, and not that of another access point with the same number.
use POLICY : Hold_If_Disk_Exceeded
K8SPILOT_OVER_DISK = (MY.K8SHoldSince isnt undefined && MY.K8SHoldJob =?= MY.JobId && \
    MY.K8SHoldSince >= (MY.JobStart ?: 0))
use POLICY : WANT_HOLD_IF(K8SPILOT_OVER_DISK, 104, disk usage exceeded)
WANT_HOLD_REASON = ifThenElse($$(K8SPILOT_OVER_DISK), MY.K8SHoldReason, $$(WANT_HOLD_REASON))
# Files that jobs of a list have in common would count once for the disk. A negotiator of HTCondor 23.9 cannot evaluate
# the expression for that, which is a part of WithinResourceLimits, and would match no job.
CATALOG_SPACE = 0
# The startd evaluates these expressions at this interval (seconds).
STARTD.POLLING_INTERVAL = 2
# The payload container has the GPUs, and the engine has discovered them there. Jobs see the GPUs in these variables.
# CUDA has no device 10000.
MACHINE_RESOURCE_INVENTORY_GPUs = $gpus
ENVIRONMENT_FOR_AssignedGPUs = GPU_DEVICE_ORDINAL=/(CUDA|OCL)//  CUDA_VISIBLE_DEVICES=/CUDA//
ENVIRONMENT_VALUE_FOR_UnAssignedGPUs = 10000
# Benchmarks would measure the pilot container.
RunBenchmarks = False

# --- GPUs: their utilisation, which the engine provides ---
$gpu_monitor

# --- The job: in the payload container, as that container's user ---
# All jobs of a slot have that user: everything of the last job must be removed before the next job's files arrive.
STARTER = $starter
STARTER_ALLOW_RUNAS_OWNER = False
$slots
# No dedicated account: HTCondor would attribute all processes of that user to the job, including payload-init.
DEDICATED_EXECUTE_ACCOUNT_REGEXP =
# The payload container has the pod's resources. The pilot container cannot create cgroups.
BASE_CGROUP =
DOCKER = $docker
# The test needs its own image and a bind, which shows nothing about the next bind.
DOCKER_PERFORM_TEST = False
# Otherwise an image gets a second name, which is invalid if the registry has a port.
DOCKER_TRUST_LOCAL_IMAGES = True
DOCKER_CACHE_ADVERTISE_INTERVAL = 0
# Docker's name for the usual network. Some users request it.
DOCKER_NETWORKS = bridge
# Jobs reach the starter's proxy for files and attributes (chirp) here: a pod's containers share the loopback.
DOCKER_NETWORK_NAME = lo
# The payload container has its own /tmp and /var/tmp, clean for every job.
MOUNT_UNDER_SCRATCH =
# Images are bound; no other runtime runs them here.
SINGULARITY = /nonexistent
# A job that HTCondor would still run in the pilot container is held instead.
STARTER_REMOTE_CMD = $guard
# The starter would ask the shadow for guidance too early, and would have to repeat the request five seconds later.
GUIDANCE_MUMS_THE_WORD = True
ENABLE_SSH_TO_JOB = $ssh
$rootless
# The starter's last query of the engine is the job's final usage. An answer takes a few milliseconds.
STARTER.POLLING_INTERVAL = 1
# Until the starter's first update the startd does not know its address, and condor_ssh_to_job fails. HTCondor sends
# the first update after 8 s, the next one 300 s later. Here the first one comes too early for figures of the job's
# usage, so that the next one comes earlier, too. It waits for the starter's first inspection of the container, which
# has the ports of the job's services.
STARTER_INITIAL_UPDATE_INTERVAL = 3
STARTER_UPDATE_INTERVAL = $update
# A job sees the processors and the memory of the whole node. Programs read the size of the slot in these variables: the
# first list has its processors (HTCondor's own list, and some more). A job's own values win.
STARTER_NUM_THREADS_ENV_VARS = $$(STARTER_NUM_THREADS_ENV_VARS) $threads
STARTER_JOB_ENVIRONMENT = "$environment"
# The account's home is in the pilot container. The engine sets HOME to the scratch folder if the job has no HOME.
STARTER_SETS_HOME_ENV = False

# --- Eviction: SIGTERM, $vacate s, SIGKILL, within the pod's grace period ---
MachineMaxVacateTime = $vacate
KILLING_TIMEOUT = $killing
SHUTDOWN_GRACEFUL_TIMEOUT = $graceful
SHUTDOWN_FAST_TIMEOUT = $fast

# --- The pilot's life ---
# The slot takes jobs until GLIDEIN_ToRetire, and they run until GLIDEIN_ToDie (seconds since the epoch, see below).
STARTD_NOCLAIM_SHUTDOWN = $idle
# A pilot that takes no more jobs and has none ends. Each slot's ad has the states of all slots.
STARTD_SLOT_ATTRS = $$(STARTD_SLOT_ATTRS) State Activity
STARTD.DAEMON_SHUTDOWN = time() > GLIDEIN_ToRetire && $all_idle
# The master ends at the end of the pilot's life, and the pod with it: a job is vacated as at any eviction. The engine
# reads in the master's log that the startd has ended for good (condor_drain -exit-on-completion, condor_off), and that
# no new startd follows (as after condor_restart). An expression here could not distinguish that from a crash.
MASTER.DAEMON_SHUTDOWN = time() > GLIDEIN_ToDie
# A job can request that its claim is kept for its user's next job (keep_claim_idle), without a limit. Here the limit is
# 30 s. START cannot limit it: without a job it is undefined, and keeps the claim. 1200 is HTCondor's own default.
CLAIM_WORKLIFE = ifThenElse(MY.Activity == "Idle" && time() - MY.EnteredCurrentActivity > 30, 0, 1200)

# --- Jobs that the slot takes ---
START_EXTRA = $start_extra
# The image of every job comes from a registry.
$images
START = $start

# --- Attributes for jobs and people ---
$attributes
STARTD_ATTRS = $$(STARTD_ATTRS) ClassAdLifetime START_EXTRA $names
MASTER_ATTRS = $$(MASTER_ATTRS) ClassAdLifetime $names
# The pilot takes the level of a log line from its category.
ALL_DEBUG = $debug
""")

# Settings for HTCondor without root: everything that HTCondor runs for a job has the rights of its daemons.
ROOTLESS: Final = """\
# Daemons and tools authenticate each other here by a folder of mode 0700. /tmp is a volume here that passes its group
# on, so that a folder in it would have the set-group-ID bit.
FS_LOCAL_DIR = $(RUN)
# Plugins would run as HTCondor's own account, which reaches the Docker socket and other jobs' sandboxes.
STARTER_DISABLE_USER_SUPPLIED_TRANSFER_PLUGINS = True
# A starter may write to these logs only (starter.c).
STARTER_LOG = $(LOG)/starter/StarterLog
STARTER_STATS_LOG = $(LOG)/starter/XferStatsLog
FILE_TRANSFER_STATS_LOG = $(LOG)/starter/transfer_history"""
