"""A pilot pod with a partitionable slot, and what the pool knows of it."""

import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from lab import jobs, pilot
from lab.api import Lab
from tests.e2e.pool import Pool

RESIZES: Final = (1, 36)
"""First version of Kubernetes that resizes containers of a pod which has resources of its own."""
CONTAINERS = 4
CPUS = 8
MEMORY_MB = 1024
# The node of the lab is small: the pod requests a fiftieth of the CPUs that it may use.
RESOURCES = {
    "limits": {"cpu": str(CPUS), "memory": f"{MEMORY_MB}Mi", "ephemeral-storage": "5200Mi"},
    "requests": {"cpu": "160m", "memory": f"{MEMORY_MB}Mi", "ephemeral-storage": "400Mi"},
}
# Memory limit (MiB) and CPU quota (thousandths) of the job's own cgroup, version 1 or 2.
CGROUP = """
if [ -e /sys/fs/cgroup/memory.max ]; then
    memory=$(cat /sys/fs/cgroup/memory.max); set -- $(cat /sys/fs/cgroup/cpu.max)
else
    memory=$(cat /sys/fs/cgroup/memory/memory.limit_in_bytes)
    set -- $(cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu/cpu.cfs_period_us)
fi
echo $((memory >> 20)) $(($1 * 1000 / $2)) $(id -u)
"""


def skip_where_slots_are_equal(lab: Lab) -> None:
    """Leave the test out on a Kubernetes that does not resize the containers of such a pod: there slots are equal."""
    if tuple(map(int, lab.settings.kubernetes.split("."))) < RESIZES:
        pytest.skip("before Kubernetes 1.36, a pod with several payload containers has slots of equal size")


def deploy(lab: Lab, name: str, *, rewrite: Callable[[str], str] = str, **environment: str) -> None:
    """Deploy a pilot with a partitionable slot."""
    change = pilot.change({"op": "replace", "path": "/spec/initContainers/1/resources", "value": RESOURCES})
    known = {"K8SPILOT_IDLE_AFTER_SECONDS": "1", **environment}
    pilot.deploy(lab, name, known, {"patches": [change]}, slots=CONTAINERS, rewrite=rewrite)
    jobs.wait_in_pool(lab, name)


SLOT: Final = "Name,State,Memory,Cpus,JobId,SlotType"


def slots(pool: Pool, wanted: str = SLOT) -> dict[str, dict[str, Any]]:
    """The slots' ads that the pool has, with the `wanted` attributes, by their names without the machine's."""
    query = ["condor_status", "-constraint", f'K8SPodName == "{pool.pod}"', "-json", "-attributes", wanted]
    found = json.loads(pool.lab.access_point("alice", query) or "[]")
    return {ad["Name"].partition("@")[0]: ad for ad in found}


def running(pool: Pool) -> dict[str, dict[str, Any]]:
    """The dynamic slots that have a job."""
    return {name: ad for name, ad in slots(pool).items() if ad["SlotType"] == "Dynamic" and ad["State"] == "Claimed"}
