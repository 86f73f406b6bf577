"""Two provisioners of two clusters, here two namespaces, share the jobs of one pool without a coordinator."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from lab.api import Lab
from lab.factory import Factory, factory
from lab.jobs import submit
from tests.e2e.pool import until
from tests.e2e.provisioner.pilots import SMALL, commands, told

JOBS = 6
MANY = 20

Sites = tuple[Factory, Factory]


@pytest.fixture(scope="module")
def sites(lab: Lab, owner: str) -> Iterator[Sites]:
    """Two namespaces. Each would make a pilot for each job if it were alone."""
    many = replace(SMALL, annotations={**SMALL.annotations, "max-pilots": str(JOBS)})
    with ExitStack() as ends:
        found = [ends.enter_context(factory(lab, f"factory-{owner}-{name}")) for name in ("east", "west")]
        for site, share in zip(found, ("0-0.5", "0.5-1"), strict=True):
            site.apply(many, settings={"K8SPILOT_SHARE": share})
        for site in found:
            site.provisioner()
        yield found[0], found[1]


def allow(sites: Sites, pilots: int) -> None:
    """Let each make so many pilots."""
    for site in sites:
        site.kubectl("annotate", "cronjob", "small", f"k8spilot/max-pilots={pilots}", "--overwrite")


def either(sites: Sites) -> str:
    """Requirements of jobs that both could run."""
    return " || ".join(f'TARGET.K8SNamespace == "{site.namespace}"' for site in sites)


def test_each_of_twenty_jobs_waits_for_one_of_two_clusters(lab: Lab, sites: Sites) -> None:
    allow(sites, 0)
    with submit(lab, "alice", commands(lab, "true", either(sites)), count=MANY):

        def each() -> list[int]:
            return [told(site, "small").get("idleJobs", 0) for site in sites]

        until(lambda: sum(each()) == MANY, "both count their part, and no job twice", 60)
        assert min(each()) >= MANY // 2 - 1


@pytest.mark.landing
@pytest.mark.timeout(400)
def test_two_clusters_do_not_both_make_pilots_for_the_same_jobs(lab: Lab, sites: Sites) -> None:
    allow(sites, JOBS)
    where = either(sites)
    with submit(lab, "alice", commands(lab, "sleep 45", where), count=JOBS) as waiting:
        for proc in range(JOBS):
            waiting.wait("ExecuteEvent", proc=proc)
        numbers = [len(site.pilots()) for site in sites]
        assert sum(numbers) == JOBS, "\n".join(site.log() + site.pilot_logs() for site in sites)
        assert max(numbers) <= JOBS // 2 + 1, "a job on the border belongs to one of them"
        for proc in range(JOBS):
            waiting.ended(proc)
    until(lambda: not any(site.status()["templates"]["small"]["create"] for site in sites), "nobody makes more", 30)
    assert sum(len(site.pilots()) for site in sites) == JOBS
