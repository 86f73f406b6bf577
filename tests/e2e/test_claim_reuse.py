"""K8SPILOT_REUSE: jobs of one claim run in one container, where the image's files cannot be written to."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Final

import pytest

from lab.api import Lab
from lab.jobs import BAD_NEWS, Jobs
from lab.levels import NAMESPACES, Level
from tests.e2e.pool import WAITS, Pool, cpu_seconds, result, until
from tests.runner.pilots import Configuration

REUSE: Final = {"K8SPILOT_REUSE": "true", "K8SPILOT_IDLE_AFTER_SECONDS": "60"}
CONFIGURATIONS: Final = {
    "baseline": Configuration("reuse", REUSE, {"components": ["read-only-payload"]}),
    "restricted": Configuration("reuse", REUSE),
}
WRITES: Final = "echo left >/tmp/left; echo left >/dev/shm/left; (sleep 300 >/dev/null 2>&1 &); "
LOOKS: Final = "ls -A /tmp /dev/shm | grep left; ps -o args | grep '[s]leep 300'; "


@pytest.fixture(params=NAMESPACES, scope="module")
def pod(request: pytest.FixtureRequest, lease: Callable[[Configuration, Level], str]) -> tuple[str, Level]:
    """A pilot of each level that reuses containers."""
    return lease(CONFIGURATIONS[request.param], request.param), request.param


@pytest.fixture
def slot(lab: Lab, pod: tuple[str, Level]) -> Iterator[Pool]:
    """Its slot."""
    with ExitStack() as cleanup:
        yield Pool(lab.at(pod[1]), pod[0], cleanup)


def _outputs(jobs: Jobs) -> list[str]:
    for proc in range(jobs.count):
        assert jobs.ended(proc).attributes["ReturnValue"] == proc
    files = jobs.files()
    return [files[f"out.{proc}"].decode() for proc in range(jobs.count)]


def test_jobs_of_one_claim_have_one_container_and_find_nothing_of_each_other(slot: Pool) -> None:
    before = slot.restarts()
    assert _outputs(slot.shell(f"{WAITS}{LOOKS}{WRITES}exit $1", count=5)) == [""] * 5
    assert slot.restarts() == before + 1


def test_another_user_has_a_fresh_container(slot: Pool) -> None:
    for user in ("alice", "bob"):
        before = slot.restarts()
        done = result(slot.shell(f"{WAITS}{LOOKS}{WRITES}exit 7", user=user))
        assert (done.code, done.text) == (7, "")
        assert slot.restarts() == before + 1


@pytest.mark.cluster
def test_a_job_after_one_that_was_out_of_memory_has_a_fresh_container(slot: Pool) -> None:
    before = slot.restarts()
    eats = slot.shell(f"{WAITS}[ $1 = 1 ] && exec tail /dev/zero; exit $1", count=3)
    held = eats.held(1)
    assert (held.attributes["HoldReasonCode"], held.attributes["HoldReasonSubCode"]) == (34, 102)
    for proc in (0, 2):
        assert eats.ended(proc).attributes["ReturnValue"] == proc
    assert slot.restarts() >= before + 2


@pytest.mark.cluster
@pytest.mark.timeout(500)
def test_each_job_has_its_own_processor_time(slot: Pool) -> None:
    busy = "exec perl -e '1 while (times)[0] < 4'"
    before = slot.restarts()
    jobs = slot.shell(f"[ $1 = 0 ] && {busy}; sleep 6", image="debian:forky", count=2)
    used = [jobs.ended(proc, timeout=200).attributes["RunRemoteUsage"] for proc in (0, 1)]
    seconds = [sum(cpu_seconds(str(one))) for one in used]
    assert seconds[1] + 2 < seconds[0], used
    assert slot.restarts() == before + 1


def test_a_job_that_is_removed_while_it_runs_leaves_nothing_to_the_next_of_its_claim(slot: Pool) -> None:
    jobs = slot.shell(f"{LOOKS}{WRITES}[ $1 = 0 ] && sleep 300; exit $1", count=2)
    jobs.wait("ExecuteEvent")
    until(lambda: any("sleep 300" in line for line in slot.processes()), "the job runs")
    jobs.command("condor_rm", proc=0)
    jobs.wait("JobAbortedEvent", ignore=BAD_NEWS)
    assert jobs.ended(1).attributes["ReturnValue"] == 1
    assert jobs.files()["out.1"] == b""
