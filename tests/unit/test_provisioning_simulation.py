"""The simulation that compares the provisioner's plan with PRP's loop (bench/provisioning)."""

from functools import cache

import pytest

from bench.provisioning.contestants import CONTESTANTS
from bench.provisioning.curves import CURVES
from bench.provisioning.measures import Measures
from bench.provisioning.pods import Phase
from bench.provisioning.prp import wanted
from bench.provisioning.world import Result, World


@cache
def simulated(curve: str, name: str) -> Result:
    """Simulate a contestant's pilots for the first drawing of a curve."""
    return World(CURVES[curve](1), CONTESTANTS[name].make(), 1).run()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["k8spilot", "PRP", "k8spilot, 8 slots"])
def test_all_jobs_run_and_all_pods_end(name: str) -> None:
    result = simulated("trickle", name)
    assert all(job.ended is not None for job in result.jobs)
    assert all(pod.phase is Phase.ENDED for pod in result.pods)


@pytest.mark.slow
def test_the_same_drawing_has_the_same_figures() -> None:
    again = World(CURVES["trickle"](1), CONTESTANTS["k8spilot"].make(), 1).run()
    assert Measures.of(again) == Measures.of(simulated("trickle", "k8spilot"))


@pytest.mark.slow
@pytest.mark.parametrize("curve", ["burst", "trickle", "short"])
def test_pilots_wait_and_jobs_wait_no_longer_than_with_the_loop_of_prp(curve: str) -> None:
    ours, prp = (Measures.of(simulated(curve, name)) for name in ("k8spilot", "PRP, same pods"))
    assert ours.wait_mean < prp.wait_mean
    assert ours.wasted < 1.05 * prp.wasted
    assert ours.unused <= prp.unused


@pytest.mark.parametrize(("idle", "pods"), [(1, 1), (4, 2), (40, 11), (75, 19), (400, 20)])
def test_the_loop_of_prp_wants_as_many_pods_as_its_source_says(idle: int, pods: int) -> None:
    assert wanted(idle) == pods
