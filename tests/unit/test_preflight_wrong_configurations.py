"""Configurations that an operator got wrong in a trial: each is told before there is a cluster, with the remedy.

What only a running pod can know (a host that nobody answers at, a token that the pool does not take) is in
tests/e2e/test_startup.py and tests/unit/test_condor_pool_watch.py; GOOD has those that are right as they are.
"""

from collections.abc import Callable

import pytest

from k8spilot.preflight.finding import Verdict
from tests.unit.test_preflight_manifest import Manifest, no_token

Change = Callable[[Manifest], object]
FAULT, WARNING = Verdict.FAULT, Verdict.WARNING


def sets(**variables: str) -> Change:
    """Settings in the overlay's ConfigMap."""
    return lambda one: one.data.update(variables)


def limits(container: int, **values: str | None) -> Change:
    """Limits of an init container, or of the pilot container (-1); None removes one."""

    def change(one: Manifest) -> None:
        whom = one.pilot if container < 0 else one.spec["initContainers"][container]
        found = whom["resources"]["limits"]
        for name, value in values.items():
            name = name.replace("_", "-")  # noqa: PLW2901 -- a key of Kubernetes' in Python's spelling
            found.pop(name) if value is None else found.update({name: value})

    return change


PAYLOAD, PILOT = 1, -1
WRONG: dict[str, tuple[Change, Verdict, str]] = {
    "the example's host": (sets(CONDOR_HOST="cm.example.org"), FAULT, "CONDOR_HOST is a placeholder"),
    "the example's site": (sets(GLIDEIN_Site="Example-Site"), FAULT, "GLIDEIN_Site is a placeholder"),
    "a pool that nobody knows": (
        lambda one: (one.data.pop("CONDOR_HOST"), one.data.update(POOL="opsool")),
        FAULT,
        "POOL is 'opsool'",
    ),
    "payload renamed": (
        lambda one: one.spec["initContainers"][PAYLOAD].update(name="job"),
        FAULT,
        "add an init container payload with restartPolicy: Always",
    ),
    "no shared processes": (
        lambda one: one.spec.pop("shareProcessNamespace"),
        FAULT,
        "set shareProcessNamespace: true",
    ),
    "a token for the payload container": (
        lambda one: one.spec.update(automountServiceAccountToken=True),
        FAULT,
        "set automountServiceAccountToken: false",
    ),
    "the node's network": (lambda one: one.spec.update(hostNetwork=True), FAULT, "hostNetwork"),
    "too short a grace period": (
        lambda one: one.spec.update(terminationGracePeriodSeconds=30),
        FAULT,
        "set terminationGracePeriodSeconds to 100 or more",
    ),
    "a misspelt setting": (
        sets(K8SPILOT_DEFAULT_IMGE="x"),
        WARNING,
        "probably a misspelling of K8SPILOT_DEFAULT_IMAGE",
    ),
    "a limit in two spellings": (
        sets(GLIDEIN_START_EXTRA='Owner=?="a"', GLIDEIN_Start_Extra='Owner=?="b"'),
        FAULT,
        "GLIDEIN_START_EXTRA",
    ),
    "a limit misspelt": (sets(GLIDEIN_Start_Extr="false"), FAULT, "probably a misspelling of GLIDEIN_Start_Extra"),
    "a time misspelt": (sets(ACCEPT_JOBS_FOR_HOUR="1"), WARNING, "probably a misspelling of ACCEPT_JOBS_FOR_HOURS"),
    "OSPool's CVMFS": (sets(CVMFSEXEC_REPOS="x.org"), WARNING, "CVMFSEXEC_REPOS, a variable of OSPool's pilots"),
    "OSPool's mounts": (sets(SINGULARITY_BIND_EXTRA="/x"), WARNING, "mount the volumes in the container payload"),
    "PRP's GPUs": (sets(NUM_GPUS="1"), WARNING, "use the component gpu"),
    "PRP's disk": (sets(DISK="1000"), WARNING, "set limits.ephemeral-storage of the container payload"),
    "a number in words": (sets(K8SPILOT_VACATE_SECONDS="sixty"), FAULT, "K8SPILOT_VACATE_SECONDS is 'sixty', but"),
    "a choice that is none": (sets(UNMAPPED_IMAGES="drop", K8SPILOT_UNMAPPED_IMAGES="drop"), FAULT, "is 'drop', but"),
    "an expression that is none": (sets(GLIDEIN_Start_Extra="(("), FAULT, "GLIDEIN_Start_Extra is"),
    "a pattern that is none": (sets(K8SPILOT_IMAGE_MAP="^/cvmfs/( x"), FAULT, "K8SPILOT_IMAGE_MAP"),
    "no site": (sets(GLIDEIN_Site=""), FAULT, "GLIDEIN_Site must be set"),
    "more CPUs than there are": (sets(NUM_CPUS="64"), FAULT, "NUM_CPUS promises 64 CPUs"),
    "more memory than there is": (sets(MEMORY="999999"), FAULT, "MEMORY promises 999999 MiB"),
    "a default image that is not allowed": (
        sets(K8SPILOT_DEFAULT_IMAGE="docker://a.example/b", K8SPILOT_ALLOWED_IMAGES="c.example"),
        FAULT,
        "a.example/b:latest is not allowed here",
    ),
    "payload without limits": (
        lambda one: one.spec["initContainers"][PAYLOAD].pop("resources"),
        FAULT,
        "set resources.limits.cpu and .memory of the container payload",
    ),
    "payload without a limit of disk": (
        limits(PAYLOAD, ephemeral_storage=None),
        WARNING,
        "set resources.limits.ephemeral-storage of the container payload",
    ),
    "a pilot with little memory": (limits(PILOT, memory="40Mi"), WARNING, "of the container pilot to 256Mi or more"),
    "the order of the init containers": (lambda one: one.spec["initContainers"].reverse(), FAULT, "before payload"),
    "no access to the API": (no_token, FAULT, "mount a projected serviceAccountToken at"),
    "relist without its right": (
        sets(K8SPILOT_RELIST="true"),
        WARNING,
        "lacks patch pods/resize, so that K8SPILOT_RELIST has no effect; use the component relist",
    ),
    "relist of a container that is restarted by it": (
        lambda one: (
            sets(K8SPILOT_RELIST="true")(one),
            one.spec["initContainers"][PAYLOAD].update(
                resizePolicy=[{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
            ),
        ),
        WARNING,
        "remove K8SPILOT_RELIST, which has no effect here: the resizePolicy of the container payload restarts it",
    ),
    "a service account without rights": (
        lambda one: one.spec.update(serviceAccountName="default"),
        WARNING,
        "binds no role to the service account",
    ),
}
GOOD: dict[str, Change] = {
    "a pod that always starts again": lambda one: one.spec.update(restartPolicy="Always"),
    "a pod that never starts again": lambda one: one.spec.update(restartPolicy="Never"),
    "a default image without docker://": sets(K8SPILOT_DEFAULT_IMAGE="debian:forky"),
    "promises that the operator means": sets(NUM_CPUS="64", K8SPILOT_OVERCOMMIT="true"),
    "OSPool's test pool": sets(ITB="true"),
    "variables of all jobs": sets(EXTRA_JOB_ENV="A=1", OSG_SQUID_LOCATION="squid.x.org:3128"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_configuration_is_told_before_there_is_a_cluster(case: str) -> None:
    change, verdict, words = WRONG[case]
    manifest = Manifest()
    change(manifest)
    told = [(one.verdict, one.words) for one in manifest.bad()]
    assert [text for found, text in told if found is verdict and words in text], told


@pytest.mark.parametrize("case", GOOD)
def test_a_right_configuration_is_told_to_be_right(case: str) -> None:
    manifest = Manifest()
    GOOD[case](manifest)
    assert manifest.bad() == []
