"""The page for operators of other pilots: a row for each of their variables, and for other features."""

from collections.abc import Iterator
from typing import Final

from docs.generate.sources import OTHER_VARIABLES, OtherVariable, documented, variables
from docs.generate.tables import NAMES, table

INTRODUCTION: Final = """\
# Coming from OSPool's container, PRP or GlideinWMS

k8spilot uses the names of OSPool's pilots where the meaning is the same. A variable of another pilot that k8spilot does
not use is a warning of [`k8spilot check`](check.md), an Event `SettingIgnored`, and a line of `k8spilot status`. A
variable that limits whose jobs or which images run is refused, and the pilot does not start. A misspelt name gets
the right one. `k8spilot settings` shows every setting with its value in force.

*This page is generated from the code.*

## Variables that are the same

Names are not case-sensitive here. A fraction is allowed in numbers of hours and minutes.
"""

DIFFERENCES: Final = {
    "POOL": "No default: name a pool, or set `CONDOR_HOST`. A name that is neither a pool nor a host is a fault.",
    "ITB": "The same, and an error with `POOL=prod-ospool`.",
    "NUM_CPUS": "The same. Without it, the limit of the container `payload` counts.",
    "MEMORY": "The same. Without it, the limit of the container `payload` counts.",
    "TOKEN": "The same. A Secret at `/etc/condor/tokens-orig.d` is better.",
    "GLIDEIN_RANDOMIZE_NAME": "The same, by the pod's uid, so that the name survives a restart of the container.",
    "GLIDEIN_Start_Extra": "The same, and checked at the start. A job for which it is undefined is not taken.",
    "GLIDEIN_Max_Walltime": "The same, from the start of the pod.",
    "EXTRA_JOB_ENV": "The same syntax, without double quotes. Macros such as `$(X)` are not expanded.",
}
"""Variables that k8spilot and the other pilot have, and how they differ."""

HABITS: Final = (
    (
        "OSPool",
        "`/etc/osg/extra-attributes.cfg`",
        (
            "The ConfigMap `extra-attributes` with the key `extra-attributes.cfg`: "
            "the same lines. Each value must be a ClassAd expression."
        ),
    ),
    (
        "OSPool",
        "`/etc/condor/tokens-orig.d`, `passwords-orig.d`",
        ("The Secrets `pool-token` and `pool-password`, which the manifest mounts there."),
    ),
    ("OSPool", "`/etc/condor/config.d`", "The ConfigMap `condor-config`, read last."),
    ("OSPool", "`/etc/osg/image-init.d`, `image-config.d`", "None: build an image of your own from the project's."),
    ("OSPool", "A volume at `/pilot`", "Not needed: the manifest has the volumes."),
    (
        "OSPool",
        "`/cvmfs` mounted in the container",
        (
            "A volume at `/cvmfs` in the container `payload`, read-only. Images in "
            "CVMFS are mapped by `K8SPILOT_IMAGE_MAP`."
        ),
    ),
    (
        "OSPool",
        "A partitionable slot",
        "By `k8spilot slots`: a pod with several payload containers. Otherwise one job at a time in a pod.",
    ),
    (
        "OSPool",
        "`osdf://` and `pelican://` transfers",
        "Not in the image. Jobs that need them do not match until [the site adds the plugin](transfer-plugins.md).",
    ),
    (
        "OSPool",
        "Apptainer, `--nv`, unprivileged user namespaces",
        "Not needed: the cluster's runtime starts each image.",
    ),
    (
        "PRP",
        "The provisioner makes pods for idle jobs",
        ("It can make k8spilot's, if its template is [the pod that your overlay renders](jobs.md)."),
    ),
    ("PRP", "`/etc/condor/tokens.d/prp-wn.token`", "The Secret `pool-token`."),
    ("PRP", "`/root/config/pre-exec.sh`", "None: build an image of your own from the project's."),
    ("PRP", "`k8s_job_ttl`", "`ttlSecondsAfterFinished` of your Job."),
    (
        "PRP",
        "Exact match of provisioned resources",
        ("`GLIDEIN_Start_Extra`, for example `TARGET.RequestCpus == MY.Cpus && TARGET.RequestMemory > MY.Memory / 2`."),
    ),
    ("PRP", "Helm chart `prp-htcondor-wn`", "kustomize: `k8spilot manifests` writes base, components and examples."),
    ("GlideinWMS", "Validation scripts", "[`k8spilot check`](check.md), with its own list."),
    ("GlideinWMS", "Factory entries, frontend groups", "Overlays: one for each kind of pod."),
    (
        "GlideinWMS",
        "Monitoring pages, logs sent to the factory",
        "[Metrics and Events](monitor.md), and `kubectl logs`.",
    ),
)
"""Features of other pilots that are no variables: the pilot, the feature, and the replacement."""


def page() -> str:
    """Return the page."""
    header = ("Variable", "Of", "Here")
    return "\n".join(
        [
            INTRODUCTION,
            NAMES.format(table(("Variable", "Here"), _same())),
            "## Variables that are refused\n",
            NAMES.format(table(header, _others(refused=True))),
            "## Variables without effect\n",
            NAMES.format(table(header, _others(refused=False))),
            "## Files, volumes and habits\n",
            table(("Of", "There", "Here"), HABITS),
        ]
    )


def _same() -> Iterator[tuple[str, str]]:
    first = next(iter(documented().values()))[0]
    for name, one in variables().items():
        if documented()[one.name][0] == first:
            yield f"[`{name}`](../reference/settings.md)", DIFFERENCES.get(name, "The same.")


def _others(*, refused: bool) -> Iterator[tuple[str, str, str]]:
    for name, one in OTHER_VARIABLES.items():
        if one.refused is refused:
            yield f"`{name}`", one.source, _sentence(one)


def _sentence(one: OtherVariable) -> str:
    neutral = f" {' '.join(f'`{word}`' for word in _few(one))} is fine." if one.neutral else ""
    return f"{one.remedy[:1].upper()}{one.remedy[1:]}.{neutral}"


def _few(one: OtherVariable) -> list[str]:
    """Return the first of several alternatives in `neutral`, which have the same meaning."""
    words: tuple[str, ...] = ("false", "true", "no", "0", "none")
    return [word for word in words if word in one.neutral][:1]
