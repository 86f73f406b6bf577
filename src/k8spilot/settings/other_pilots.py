"""Variables of other pilots that are not settings of k8spilot: OSPool's container, PRP's, and GlideinWMS'.

Sources: the repositories opensciencegrid/osgvo-docker-pilot, sfiligoi/prp-htcondor-portal (wn, wn-osgvo, provisioner),
sfiligoi/prp-htcondor-pool (wn-init), and glideinWMS/glideinwms (condor_vars.lst).

A variable that limits whose jobs run, or which images, is refused: a pilot that ignored it would run jobs that its
operator does not want. Every other one is a warning.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

Source = Literal["OSPool", "PRP", "GlideinWMS"]


class OtherVariable(NamedTuple):
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

_OSPOOL: Final[Mapping[str, OtherVariable]] = {
    "CVMFSEXEC_REPOS": OtherVariable("OSPool", _CVMFS),
    "CVMFSEXEC_DEBUG": OtherVariable("OSPool", _CVMFS, neutral=_OFF),
    "CVMFS_HTTP_PROXY": OtherVariable("OSPool", _CVMFS),
    "CVMFS_QUOTA_LIMIT": OtherVariable("OSPool", _CVMFS),
    "SINGULARITY_BIND_EXTRA": OtherVariable("OSPool", "mount the volumes in the container payload"),
    "SINGULARITY_DISABLE_PID_NAMESPACES": OtherVariable("OSPool", _NO_APPTAINER, neutral=_OFF),
    "APPTAINER_REGISTRY_MIRROR": OtherVariable(
        "OSPool", "set the mirror in the node's container runtime, and in the ConfigMap registries"
    ),
    "OSG_DEFAULT_CONTAINER_DISTRIBUTION": OtherVariable("OSPool", "set K8SPILOT_DEFAULT_IMAGE"),
    "OSG_DEFAULT_CONTAINER_DISTRIBUTION_GPU": OtherVariable("OSPool", "set K8SPILOT_DEFAULT_IMAGE to an expression"),
    "ENABLE_REMOTE_SYSLOG": OtherVariable("OSPool", _SYSLOG, neutral=_OFF),
    "SYSLOG_HOST": OtherVariable("OSPool", _SYSLOG),
    "REGISTRY_HOST": OtherVariable("OSPool", _SYSLOG),
    "GARBAGE_COLLECTION": OtherVariable(
        "OSPool", "remove it; a pilot always removes what earlier jobs left", neutral=_ON
    ),
    "SUPERVISORD_RESTART_POLICY": OtherVariable("OSPool", "set restartPolicy in the pod"),
    "ALLOW_CPUJOB_ON_GPUSLOT": OtherVariable(
        "OSPool", "to keep jobs without GPUs away, set GLIDEIN_Start_Extra=TARGET.RequestGPUs > 0", neutral=_ON
    ),
    "CONTAINER_PILOT_USE_JOB_HOOK": OtherVariable("OSPool", _NO_APPTAINER, neutral=_OFF),
    "ANNEX_NAME": OtherVariable("OSPool", _ATTRIBUTE),
}

_PRP: Final[Mapping[str, OtherVariable]] = {
    "ADDITIONAL_REQUIREMENTS": OtherVariable("PRP", _START, refused=True),
    "FORCE_K8SNAMESPACE_MATCHING": OtherVariable(
        "PRP",
        "set GLIDEIN_Start_Extra=regexp(TARGET.RequestK8SNamespace, MY.K8SNamespace)",
        refused=True,
        neutral=frozenset({"no"}),
    ),
    "OWNER_ONLY": OtherVariable("PRP", 'set GLIDEIN_Start_Extra=TARGET.Owner == "NAME"', refused=True),
    "NUM_GPUS": OtherVariable(
        "PRP", "use the component gpu; the slot has the GPUs of the container payload", neutral=frozenset({"0"})
    ),
    "DISK": OtherVariable(
        "PRP", "set limits.ephemeral-storage of the container payload, which becomes the slot's disk"
    ),
    "PHYSICAL_HOSTNAME": OtherVariable("PRP", "remove it; the slot's ad has K8SPhysicalHostName by NODE_NAME"),
    "K8S_NAMESPACE": OtherVariable("PRP", "remove it; the slot's ad has K8SNamespace by POD_NAMESPACE"),
    "K8S_DOMAIN": OtherVariable("PRP", "set K8SPILOT_CLUSTER, which is K8SClusterName in the slot's ad"),
    "K8S_PROVISIONER_NAME": OtherVariable("PRP", "advertise K8SProvisionerName by the ConfigMap extra-attributes"),
    "K8S_PROVISIONER_TYPE": OtherVariable("PRP", "advertise K8SProvisionerType by the ConfigMap extra-attributes"),
    "STARTD_NOCLAIM_SHUTDOWN": OtherVariable("PRP", _IDLE),
    "HTCONDOR_AUTO_SHUTDOWN": OtherVariable("PRP", _IDLE),
    "MASTER_PEACEFUL_SHUTDOWN": OtherVariable("PRP", _LIFE),
    "CONDOR_SERVICE_HOST": OtherVariable("PRP", "set CONDOR_HOST"),
    "USE_POOL_PASSWORD": OtherVariable("PRP", "mount the password as the Secret pool-password", neutral=_OFF),
    "CCB_ADDRESS": OtherVariable("PRP", "set USE_CCB, CCB_RANGE_LOW and CCB_RANGE_HIGH"),
    "OS_IMAGE": OtherVariable("PRP", _ATTRIBUTE),
    "NVIDIA_SYMLINK": OtherVariable("PRP", "remove it; the component gpu needs no links"),
    "HTCONDOR_USER": OtherVariable("PRP", _ACCOUNTS),
    "SLOT_USER": OtherVariable("PRP", _ACCOUNTS),
    "SUBMIT_USER": OtherVariable("PRP", _ACCOUNTS),
    "INIT_USER": OtherVariable("PRP", _ACCOUNTS),
    "NODE_DOMAIN": OtherVariable("PRP", "remove it; the machine's name is that of resource and pod"),
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
_GLIDEIN: Final[Mapping[str, OtherVariable]] = {
    **{
        name: OtherVariable("GlideinWMS", _START, refused=True, neutral=frozenset({"true"}))
        for name in ("GLIDEIN_Start", "GLIDECLIENT_Start", "GLIDECLIENT_Group_Start", "GLIDEIN_Entry_Start")
    },
    "SINGULARITY_IMAGE_RESTRICTIONS": OtherVariable(
        "GlideinWMS", "set K8SPILOT_ALLOWED_IMAGES", refused=True, neutral=frozenset({"none", "any"})
    ),
    "SINGULARITY_IMAGES_DICT": OtherVariable("GlideinWMS", "set K8SPILOT_DEFAULT_IMAGE or K8SPILOT_IMAGE_MAP"),
    "GLIDEIN_SINGULARITY_BINDPATH": OtherVariable("GlideinWMS", "mount the volumes in the container payload"),
    "GLIDEIN_SINGULARITY_REQUIRE": OtherVariable("GlideinWMS", _NO_APPTAINER),
    "GLIDEIN_Singularity_Use": OtherVariable("GlideinWMS", _NO_APPTAINER),
    "GLIDEIN_Max_Idle": OtherVariable("GlideinWMS", _IDLE),
    "GLIDEIN_Max_Tail": OtherVariable("GlideinWMS", _IDLE),
    "GLIDEIN_Retire_Time": OtherVariable("GlideinWMS", _LIFE),
    "GLIDEIN_Retire_Time_Spread": OtherVariable("GlideinWMS", "remove it; pods that start apart end apart"),
    "GLIDEIN_Job_Max_Time": OtherVariable("GlideinWMS", "set RETIREMENT_HOURS"),
    "GLIDEIN_Graceful_Shutdown": OtherVariable("GlideinWMS", "set K8SPILOT_VACATE_SECONDS"),
    "PREEMPT_GRACE_TIME": OtherVariable("GlideinWMS", "set K8SPILOT_VACATE_SECONDS"),
    "HOLD_GRACE_TIME": OtherVariable("GlideinWMS", "set K8SPILOT_VACATE_SECONDS"),
    "GLIDEIN_CPUS": OtherVariable("GlideinWMS", "set limits.cpu of the container payload, or NUM_CPUS"),
    "GLIDEIN_MaxMemMBs": OtherVariable("GlideinWMS", "set limits.memory of the container payload, or MEMORY"),
    "GLIDEIN_DISK": OtherVariable("GlideinWMS", "set limits.ephemeral-storage of the container payload"),
    "GLIDEIN_Resource_Slots": OtherVariable("GlideinWMS", "remove it; a pod has one slot"),
    "GLIDEIN_Collector": OtherVariable("GlideinWMS", "set CONDOR_HOST"),
    "GLIDEIN_Expose_Grid_Env": OtherVariable(
        "GlideinWMS", "jobs do not get the pilot's environment; set EXTRA_JOB_ENV", neutral=frozenset({"false"})
    ),
    "GLIDEIN_Country": OtherVariable("GlideinWMS", _ATTRIBUTE),
    "X509_CERT_DIR": OtherVariable(
        "GlideinWMS", "remove it; mount your certificate authority's file in /etc/ssl/certs"
    ),
    "PROXY_URL": OtherVariable("GlideinWMS", "set http_proxy for file transfers, or OSG_SQUID_LOCATION"),
    **{name: OtherVariable("GlideinWMS", _NO_GLEXEC) for name in ("GLEXEC_JOB", "GLEXEC_BIN", "GLIDEIN_Glexec_Use")},
    **{
        name: OtherVariable("GlideinWMS", _X509)
        for name in (
            "X509_USER_PROXY", "X509_EXPIRE", "X509_CONDORMAP", "X509_GRIDMAP_DNS", "X509_GRIDMAP_TRUSTED_DNS",
        )
    },
    **{
        name: OtherVariable("GlideinWMS", "remove it; the manifest's volumes are used")
        for name in ("CONDOR_DIR", "GLIDEIN_LOCAL_TMP_DIR", "TMP_DIR")
    },
    **{name: OtherVariable("GlideinWMS", _FACTORY) for name in _BY_FACTORY},
    **{name: OtherVariable("GlideinWMS", _KNOB) for name in _KNOBS},
}  # fmt: skip

OTHER_VARIABLES: Final[Mapping[str, OtherVariable]] = {**_OSPOOL, **_PRP, **_GLIDEIN}
"""Every variable that another pilot knows and k8spilot does not use, by its name."""
