"""Variables of other pilots that are not settings of k8spilot: OSPool's container, PRP's, and GlideinWMS'.

Sources: the repositories opensciencegrid/osgvo-docker-pilot, sfiligoi/prp-htcondor-portal (wn, wn-osgvo, provisioner),
sfiligoi/prp-htcondor-pool (wn-init), and glideinWMS/glideinwms (condor_vars.lst).

A variable that limits whose jobs run, or which images, is refused: a pilot that ignored it would run jobs that its
operator does not want. Every other one is a warning.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

Source = Literal["OSPool", "PRP", "GlideinWMS"]


class ForeignVariable(NamedTuple):
    """A variable of another pilot."""

    source: Source
    remedy: str
    """Remedy, as the end of a sentence."""
    refused: bool = False
    """Whether the pilot does not start with it."""
    neutral: frozenset[str] = frozenset()
    """Values, in lower case, that ask for nothing that k8spilot does not do."""


_OFF: Final = frozenset({"0", "false", "f", "no", "n", "off"})
_ON: Final = frozenset({"1", "true", "t", "yes", "y", "on"})

_CVMFS: Final = "map images in CVMFS by K8SPILOT_IMAGE_MAP, and mount /cvmfs in the container payload if jobs read it"
_SYSLOG: Final = "logs go to the container's output; let the cluster's log collector forward them"
_KNOB: Final = "set the HTCondor configuration in the ConfigMap condor-config"
_FACTORY: Final = "remove it; a pod has no factory, and the slot's ad has the names of pod, namespace and node"
_ATTRIBUTE: Final = "advertise it by the ConfigMap extra-attributes"
_START: Final = "put the expression into GLIDEIN_Start_Extra"
_IDLE: Final = "set ACCEPT_IDLE_MINUTES"
_LIFE: Final = "set ACCEPT_JOBS_FOR_HOURS and RETIREMENT_HOURS, or GLIDEIN_Max_Walltime"
_NO_APPTAINER: Final = "remove it; jobs run in containers of the cluster's runtime, without apptainer"
_NO_GLEXEC: Final = "remove it; jobs run in a container of their own"
_X509: Final = "remove it; mount the pool's IDTOKEN as the Secret pool-token"
_ACCOUNTS: Final = "remove it; the image has the accounts of HTCondor and of the jobs"

_OSPOOL: Final[Mapping[str, ForeignVariable]] = {
    "CVMFSEXEC_REPOS": ForeignVariable("OSPool", _CVMFS),
    "CVMFSEXEC_DEBUG": ForeignVariable("OSPool", _CVMFS, neutral=_OFF),
    "CVMFS_HTTP_PROXY": ForeignVariable("OSPool", _CVMFS),
    "CVMFS_QUOTA_LIMIT": ForeignVariable("OSPool", _CVMFS),
    "SINGULARITY_BIND_EXTRA": ForeignVariable("OSPool", "mount the volumes in the container payload"),
    "SINGULARITY_DISABLE_PID_NAMESPACES": ForeignVariable("OSPool", _NO_APPTAINER, neutral=_OFF),
    "APPTAINER_REGISTRY_MIRROR": ForeignVariable(
        "OSPool", "set the mirror in the node's container runtime, and in the ConfigMap registries"
    ),
    "OSG_DEFAULT_CONTAINER_DISTRIBUTION": ForeignVariable("OSPool", "set K8SPILOT_DEFAULT_IMAGE"),
    "OSG_DEFAULT_CONTAINER_DISTRIBUTION_GPU": ForeignVariable("OSPool", "set K8SPILOT_DEFAULT_IMAGE to an expression"),
    "ENABLE_REMOTE_SYSLOG": ForeignVariable("OSPool", _SYSLOG, neutral=_OFF),
    "SYSLOG_HOST": ForeignVariable("OSPool", _SYSLOG),
    "REGISTRY_HOST": ForeignVariable("OSPool", _SYSLOG),
    "GARBAGE_COLLECTION": ForeignVariable(
        "OSPool", "remove it; a pilot always removes what earlier jobs left", neutral=_ON
    ),
    "SUPERVISORD_RESTART_POLICY": ForeignVariable("OSPool", "set restartPolicy in the pod"),
    "ALLOW_CPUJOB_ON_GPUSLOT": ForeignVariable(
        "OSPool", "to keep jobs without GPUs away, set GLIDEIN_Start_Extra=TARGET.RequestGPUs > 0", neutral=_ON
    ),
    "CONTAINER_PILOT_USE_JOB_HOOK": ForeignVariable("OSPool", _NO_APPTAINER, neutral=_OFF),
    "ANNEX_NAME": ForeignVariable("OSPool", _ATTRIBUTE),
}

_PRP: Final[Mapping[str, ForeignVariable]] = {
    "ADDITIONAL_REQUIREMENTS": ForeignVariable("PRP", _START, refused=True),
    "FORCE_K8SNAMESPACE_MATCHING": ForeignVariable(
        "PRP",
        "set GLIDEIN_Start_Extra=regexp(TARGET.RequestK8SNamespace, MY.K8SNamespace)",
        refused=True,
        neutral=frozenset({"no"}),
    ),
    "OWNER_ONLY": ForeignVariable("PRP", 'set GLIDEIN_Start_Extra=TARGET.Owner == "NAME"', refused=True),
    "NUM_GPUS": ForeignVariable(
        "PRP", "use the component gpu; the slot has the GPUs of the container payload", neutral=frozenset({"0"})
    ),
    "DISK": ForeignVariable(
        "PRP", "set limits.ephemeral-storage of the container payload, which becomes the slot's disk"
    ),
    "PHYSICAL_HOSTNAME": ForeignVariable("PRP", "remove it; the slot's ad has K8SPhysicalHostName by NODE_NAME"),
    "K8S_NAMESPACE": ForeignVariable("PRP", "remove it; the slot's ad has K8SNamespace by POD_NAMESPACE"),
    "K8S_DOMAIN": ForeignVariable("PRP", "set K8SPILOT_CLUSTER, which is K8SClusterName in the slot's ad"),
    "K8S_PROVISIONER_NAME": ForeignVariable("PRP", "advertise K8SProvisionerName by the ConfigMap extra-attributes"),
    "K8S_PROVISIONER_TYPE": ForeignVariable("PRP", "advertise K8SProvisionerType by the ConfigMap extra-attributes"),
    "STARTD_NOCLAIM_SHUTDOWN": ForeignVariable("PRP", _IDLE),
    "HTCONDOR_AUTO_SHUTDOWN": ForeignVariable("PRP", _IDLE),
    "MASTER_PEACEFUL_SHUTDOWN": ForeignVariable("PRP", _LIFE),
    "CONDOR_SERVICE_HOST": ForeignVariable("PRP", "set CONDOR_HOST"),
    "USE_POOL_PASSWORD": ForeignVariable("PRP", "mount the password as the Secret pool-password", neutral=_OFF),
    "CCB_ADDRESS": ForeignVariable("PRP", "set USE_CCB, CCB_RANGE_LOW and CCB_RANGE_HIGH"),
    "OS_IMAGE": ForeignVariable("PRP", _ATTRIBUTE),
    "NVIDIA_SYMLINK": ForeignVariable("PRP", "remove it; the component gpu needs no links"),
    "HTCONDOR_USER": ForeignVariable("PRP", _ACCOUNTS),
    "SLOT_USER": ForeignVariable("PRP", _ACCOUNTS),
    "SUBMIT_USER": ForeignVariable("PRP", _ACCOUNTS),
    "INIT_USER": ForeignVariable("PRP", _ACCOUNTS),
    "NODE_DOMAIN": ForeignVariable("PRP", "remove it; the machine's name is that of resource and pod"),
}

_BY_FACTORY: Final = (
    "GLIDECLIENT_Name", "GLIDECLIENT_Group", "GLIDECLIENT_Signature", "GLIDECLIENT_Group_Signature",
    "GLIDEIN_Factory", "GLIDEIN_Name", "GLIDEIN_CredentialIdentifier", "GLIDEIN_Signature", "GLIDEIN_WRAPPER_EXEC",
    "DESCRIPTION_FILE", "GLIDEIN_TORETIRE", "GLIDEIN_Entry_Name", "GLIDEIN_Entry_Signature", "DESCRIPTION_ENTRY_FILE",
    "CONDORG_CLUSTER", "CONDORG_SUBCLUSTER", "CONDORG_SCHEDD", "GLIDEIN_Gatekeeper", "GLIDEIN_GridType",
    "GLIDEIN_GlobusRSL", "GLIDEIN_Factory_Collector", "GLIDEIN_Master_Collector", "GLIDEIN_Monitoring_Enabled",
)  # fmt: skip
_KNOBS: Final = (
    "GLIDEIN_Use_PGroups", "UPDATE_COLLECTOR_WITH_TCP", "WANT_UDP_COMMAND_SOCKET", "STARTD_SENDS_ALIVES",
    "SEC_DEFAULT_ENCRYPTION", "SEC_DEFAULT_INTEGRITY", "USE_MATCH_AUTH", "MAX_MASTER_LOG", "MAX_STARTD_LOG",
    "MAX_STARTER_LOG", "MASTER_GCB_RECONNECT_TIMEOUT", "DAEMON_LIST", "USE_SHARED_PORT", "WANT_VACATE",
    "GLIDEIN_CLAIM_WORKLIFE", "GLIDEIN_CLAIM_WORKLIFE_DYNAMIC", "GLIDEIN_Hold", "GLIDECLIENT_Hold",
    "GLIDECLIENT_Group_Hold", "GLIDEIN_Entry_Hold", "GLIDEIN_PREEMPT", "GLIDECLIENT_PREEMPT",
    "GLIDECLIENT_Group_PREEMPT", "GLIDEIN_Entry_PREEMPT", "GLIDEIN_Rank", "GLIDECLIENT_Rank", "GLIDECLIENT_Group_Rank",
    "GLIDEIN_Entry_Rank",
)  # fmt: skip
_GLIDEIN: Final[Mapping[str, ForeignVariable]] = {
    **{
        name: ForeignVariable("GlideinWMS", _START, refused=True, neutral=frozenset({"true"}))
        for name in ("GLIDEIN_Start", "GLIDECLIENT_Start", "GLIDECLIENT_Group_Start", "GLIDEIN_Entry_Start")
    },
    "SINGULARITY_IMAGE_RESTRICTIONS": ForeignVariable(
        "GlideinWMS", "set K8SPILOT_ALLOWED_IMAGES", refused=True, neutral=frozenset({"none", "any"})
    ),
    "SINGULARITY_IMAGES_DICT": ForeignVariable("GlideinWMS", "set K8SPILOT_DEFAULT_IMAGE or K8SPILOT_IMAGE_MAP"),
    "GLIDEIN_SINGULARITY_BINDPATH": ForeignVariable("GlideinWMS", "mount the volumes in the container payload"),
    "GLIDEIN_SINGULARITY_REQUIRE": ForeignVariable("GlideinWMS", _NO_APPTAINER),
    "GLIDEIN_Singularity_Use": ForeignVariable("GlideinWMS", _NO_APPTAINER),
    "GLIDEIN_Max_Idle": ForeignVariable("GlideinWMS", _IDLE),
    "GLIDEIN_Max_Tail": ForeignVariable("GlideinWMS", _IDLE),
    "GLIDEIN_Retire_Time": ForeignVariable("GlideinWMS", _LIFE),
    "GLIDEIN_Retire_Time_Spread": ForeignVariable("GlideinWMS", "remove it; pods that start apart end apart"),
    "GLIDEIN_Job_Max_Time": ForeignVariable("GlideinWMS", "set RETIREMENT_HOURS"),
    "GLIDEIN_Graceful_Shutdown": ForeignVariable("GlideinWMS", "set K8SPILOT_VACATE_SECONDS"),
    "PREEMPT_GRACE_TIME": ForeignVariable("GlideinWMS", "set K8SPILOT_VACATE_SECONDS"),
    "HOLD_GRACE_TIME": ForeignVariable("GlideinWMS", "set K8SPILOT_VACATE_SECONDS"),
    "GLIDEIN_CPUS": ForeignVariable("GlideinWMS", "set limits.cpu of the container payload, or NUM_CPUS"),
    "GLIDEIN_MaxMemMBs": ForeignVariable("GlideinWMS", "set limits.memory of the container payload, or MEMORY"),
    "GLIDEIN_DISK": ForeignVariable("GlideinWMS", "set limits.ephemeral-storage of the container payload"),
    "GLIDEIN_Resource_Slots": ForeignVariable("GlideinWMS", "remove it; a pod has one slot"),
    "GLIDEIN_Collector": ForeignVariable("GlideinWMS", "set CONDOR_HOST"),
    "GLIDEIN_Expose_Grid_Env": ForeignVariable(
        "GlideinWMS", "jobs do not get the pilot's environment; set EXTRA_JOB_ENV", neutral=frozenset({"false"})
    ),
    "GLIDEIN_Country": ForeignVariable("GlideinWMS", _ATTRIBUTE),
    "X509_CERT_DIR": ForeignVariable(
        "GlideinWMS", "remove it; mount your certificate authority's file in /etc/ssl/certs"
    ),
    "PROXY_URL": ForeignVariable("GlideinWMS", "set http_proxy for file transfers, or OSG_SQUID_LOCATION"),
    **{name: ForeignVariable("GlideinWMS", _NO_GLEXEC) for name in ("GLEXEC_JOB", "GLEXEC_BIN", "GLIDEIN_Glexec_Use")},
    **{
        name: ForeignVariable("GlideinWMS", _X509)
        for name in (
            "X509_USER_PROXY", "X509_EXPIRE", "X509_CONDORMAP", "X509_GRIDMAP_DNS", "X509_GRIDMAP_TRUSTED_DNS",
        )
    },
    **{
        name: ForeignVariable("GlideinWMS", "remove it; the manifest's volumes are used")
        for name in ("CONDOR_DIR", "GLIDEIN_LOCAL_TMP_DIR", "TMP_DIR")
    },
    **{name: ForeignVariable("GlideinWMS", _FACTORY) for name in _BY_FACTORY},
    **{name: ForeignVariable("GlideinWMS", _KNOB) for name in _KNOBS},
}  # fmt: skip

FOREIGN: Final[Mapping[str, ForeignVariable]] = {**_OSPOOL, **_PRP, **_GLIDEIN}
"""Every variable that another pilot knows and k8spilot does not use, by its name."""
