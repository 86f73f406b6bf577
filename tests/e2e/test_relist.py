"""The component relist: short jobs follow each other without waiting for the kubelet's next look at the pod."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import pytest

from lab import jobs, pilot
from lab.api import Lab
from lab.levels import Level
from lab.settings import PILOT_NAMESPACE
from tests.e2e.pool import Pool, result
from tests.e2e.thief import JSON_PATCH, Answer, Thief, guarded
from tests.runner.pilots import Configuration

pytestmark = pytest.mark.landing

# The ConfigMap is that of all pilots of the namespace: the setting is to be this pod's alone.
OFF: Final = {
    "name": "k8spilot-pilot",
    "namespace": PILOT_NAMESPACE,
    "behavior": "merge",
    "literals": ["K8SPILOT_RELIST=false"],
    "options": {"disableNameSuffixHash": True},
}
SHORT: Final = Configuration(
    "relist", {"K8SPILOT_RELIST": "true"}, {"components": ["relist"], "configMapGenerator": [OFF]}
)
RIGHTS: Final = "k8spilot-relist"
COUNT: Final = 8


@pytest.fixture(scope="module")
def with_rights(lab: Lab, lease: Callable[[Configuration, Level], str]) -> Iterator[str]:
    """The name of a pilot with the component, whose rights all pilots of the namespace have meanwhile."""
    yield lease(SHORT, "baseline")
    lab.kubectl("delete", "role,rolebinding", RIGHTS, "-n", PILOT_NAMESPACE, "--ignore-not-found")


@pytest.fixture
def slot(lab: Lab, with_rights: str) -> Iterator[Pool]:
    """The slot of a pilot with the component."""
    with ExitStack() as cleanup:
        yield Pool(lab, with_rights, cleanup)


def payload(pool: Pool) -> dict[str, Any]:
    """The payload container in the pod's specification."""
    pod = json.loads(pool.lab.kubectl("get", "pod", pool.pod, "-n", PILOT_NAMESPACE, "-o", "json"))
    found: dict[str, Any] = next(one for one in pod["spec"]["initContainers"] if one["name"] == "payload")
    return found


def test_short_jobs_run_and_the_cpu_stays_within_a_thousandth(slot: Pool) -> None:
    short = slot.shell("exit $1", count=COUNT)
    for proc in range(COUNT):
        assert short.ended(proc).attributes["ReturnValue"] == proc
    log = slot.lab.kubectl("logs", "-n", PILOT_NAMESPACE, slot.pod, "-c", "pilot")
    assert "next look at the pod" not in log
    assert payload(slot)["resources"]["limits"]["cpu"] in ("1", "999m")
    assert result(slot.shell("nproc")).code == 0


def test_a_check_in_the_pod_finds_that_it_has_an_effect(slot: Pool) -> None:
    printed = pilot.inside(slot.lab, slot.pod, "k8spilot check 2>&1; true")
    assert "RELIST" not in printed, printed


@pytest.fixture(scope="module")
def stolen(lab: Lab, pod: str, owner: str) -> Iterator[tuple[Pool, Thief]]:
    """Such a pilot under the policies of the component own-pod, and who has its token."""
    name, account = f"e2e-{owner}-relist", f"k8spilot-{owner}-relist"
    with (
        guarded(lab, name, account, environment={"K8SPILOT_RELIST": "true"}) as thief,
        ExitStack() as cleanup,
    ):
        jobs.wait_in_pool(lab, name)
        yield Pool(lab, pod, cleanup).of_pod(name), thief


def resized(stolen: tuple[Pool, Thief], *values: tuple[str, str], dry: bool = True) -> Answer:
    """The answer to other values of the payload container: places below its resources, each with a value."""
    pool, thief = stolen
    operations = [
        {"op": "replace", "path": f"/spec/initContainers/1/resources/{place}", "value": value}
        for place, value in values
    ]
    return thief.ask("PATCH", f"pods/{pool.pod}/resize{'?dryRun=All' if dry else ''}", operations, JSON_PATCH)


def test_the_policy_of_own_pod_lets_a_pilot_do_that(stolen: tuple[Pool, Thief]) -> None:
    pool, _ = stolen
    short = pool.shell("exit $1", count=COUNT)
    for proc in range(COUNT):
        assert short.ended(proc).attributes["ReturnValue"] == proc
    log = pool.lab.kubectl("logs", "-n", PILOT_NAMESPACE, pool.pod, "-c", "pilot")
    assert "next look at the pod" not in log


def test_a_token_is_worth_a_thousandth_of_a_cpu_and_not_more(stolen: tuple[Pool, Thief]) -> None:
    assert resized(stolen, ("limits/cpu", "999m"), dry=False).status == 200
    assert resized(stolen, ("limits/cpu", "1000m")).status == 200
    for value in ("998m", "1001m", "2", "100m"):
        assert resized(stolen, ("limits/cpu", value)).denied, value
    assert resized(stolen, ("limits/cpu", "1"), dry=False).status == 200
    assert resized(stolen, ("limits/cpu", "1001m")).denied
    assert resized(stolen, ("limits/memory", "8Gi")).denied
    assert resized(stolen, ("limits/memory", "100Mi"), ("requests/memory", "100Mi")).denied
