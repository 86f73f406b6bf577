"""Attributes of a slot that the pool learns beside its configuration, and their effect in START."""

import json
from collections.abc import Iterator, Mapping

import pytest

from tests.e2e.pool import Pool, result, until

SET = """/opt/k8spilot/bin/python -c '
import asyncio, json, sys
from k8spilot.condor.folders import Folders
from k8spilot.condor.ads.startd_ad import LocalStartdAd
from k8spilot.settings import Settings
settings = Settings.from_environment()
assert asyncio.run(LocalStartdAd(Folders.of(settings), settings).set(json.loads(sys.argv[1])))
' '{attributes}'"""

CLEAR = {"K8SAvoidedImages": None, "K8SAvoidUntil": None}


def say(pool: Pool, attributes: Mapping[str, object]) -> None:
    """As the pilot does it."""
    pool.inside(SET.replace("{attributes}", json.dumps(attributes)))


@pytest.fixture
def slot(pool: Pool) -> Iterator[Pool]:
    """The pool, and a slot whose ad is as it was after the test."""
    yield pool
    say(pool, CLEAR)


def test_what_is_set_is_seen_soon_and_stays(slot: Pool) -> None:
    avoided = "registry.example"
    say(slot, {"K8SAvoidedImages": avoided, "K8SAvoidUntil": 4_000_000_000})
    until(lambda: slot.of_slot("K8SAvoidedImages") == avoided, "users see what is set")
    slot.inside("condor_reconfig")
    assert result(slot.shell("true")).code == 0  # the startd has updated its ad for claim, job and end
    assert slot.of_slot("K8SAvoidedImages") == avoided
    say(slot, CLEAR)
    until(lambda: slot.of_slot("K8SAvoidedImages") == "undefined", "users see that it is over")


def test_an_operators_tools_read_the_configuration_of_the_daemons(pool: Pool) -> None:
    said = pool.inside("condor_config_val NETWORK_HOSTNAME; condor_config_val -verbose START").splitlines()
    assert said[0].strip() == pool.of_slot("Machine").strip('"')
    assert [line for line in said if "/run/k8spilot/condor/condor_config" in line], said


def test_jobs_of_an_avoided_registry_wait_on_the_same_claim_too(slot: Pool) -> None:
    jobs = slot.shell("[ $1 != 0 ] || while [ ! -e go ]; do sleep 0.1; done; echo $1", count=2)
    jobs.wait("ExecuteEvent")
    say(slot, {"K8SAvoidedImages": slot.lab.registry, "K8SAvoidUntil": 4_000_000_000})
    slot.inside("cd /var/lib/condor/execute/slot/dir_*/scratch && touch go")
    jobs.ended(0)
    until(lambda: slot.of_slot("State") == "Unclaimed", "the claim is given up")
    jobs.look()
    assert [event.kind for event in jobs.events if event.proc == 1] == ["SubmitEvent"]
    say(slot, {"K8SAvoidUntil": 1})
    assert result(jobs, 1).text == "1\n"


def test_a_job_that_makes_its_starter_miss_docker_is_held_and_the_next_runs(pool: Pool) -> None:
    # A service without a port, which condor_submit would not let through.
    jobs = pool.submit({"+ContainerServiceNames": '"web"'})
    facts = jobs.held().attributes
    assert (facts["HoldReasonCode"], facts["HoldReason"].split(": ")[-1].strip()) == (35, "Unable to Launch Container")
    assert result(pool.shell("echo next", user="bob"), timeout=90).stdout == b"next\n"
    assert pool.of_slot("HasDocker") == "true"
