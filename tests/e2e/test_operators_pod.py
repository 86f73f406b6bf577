"""Settings of an operator beyond k8spilot's own: HTCondor's knobs for volumes and shared memory; a job's time to end.

`_CONDOR_` variables of the pilot container hold for HTCondor there.
"""

import time
from collections.abc import Iterator

import pytest

from lab import jobs, pilot
from lab.api import Lab
from tests.e2e.pool import Pool, hold_reason, result, runs, until

VACATE_SECONDS = 2
TOO_LARGE, SMALL = 1 << 42, 1 << 20

ENVIRONMENT = {
    "K8SPILOT_VACATE_SECONDS": str(VACATE_SECONDS),
    "EXTRA_JOB_ENV": "SITE_WORD='it''s $(LOG)'",
    "OSG_SQUID_LOCATION": "squid.example:3128",
    "_CONDOR_DOCKER_SHM_SIZE": f"ifThenElse(TARGET.WantsMuch =?= true, {TOO_LARGE}, {SMALL})",
    "_CONDOR_DOCKER_MOUNT_VOLUMES": "OF_THE_POD, OF_NOBODY",
    "_CONDOR_DOCKER_VOLUME_DIR_OF_THE_POD": "/var/tmp:/var/tmp",
    "_CONDOR_DOCKER_VOLUME_DIR_OF_NOBODY": "/data",
    "_CONDOR_DOCKER_VOLUME_DIR_OF_NOBODY_MOUNT_IF": "TARGET.WantsData =?= true",
}


@pytest.fixture(scope="module")
def pod(lab: Lab, owner: str) -> Iterator[str]:
    """The name of a pod whose operator has set all that."""
    name = f"e2e-{owner}-operators"
    pilot.deploy(lab, name, ENVIRONMENT)
    jobs.wait_in_pool(lab, name)
    yield name
    pilot.discard(lab, name)


def test_volumes_and_shared_memory_that_the_pod_has_are_had_and_others_hold_the_job_with_the_reason(pool: Pool) -> None:
    runs = pool.shell("echo fine >/tmp/x && cat /tmp/x && ls -d /var/tmp", mount_under_scratch="/tmp")
    refused = {
        "/data cannot be mounted at /data": {"+WantsData": "true"},
        "scratch/data/ cannot be mounted at /data": {"mount_under_scratch": "/data"},
        f"the job requests {TOO_LARGE} bytes of shared memory": {"+WantsMuch": "true"},
    }
    held = {words: pool.submit(commands) for words, commands in refused.items()}
    assert result(runs).text == "fine\n/var/tmp\n"
    reasons = {words: hold_reason(one) for words, one in held.items()}
    assert {words: reason for words, reason in reasons.items() if words not in reason} == {}


def test_every_job_has_the_variables_of_the_operator_and_its_own_first(pool: Pool) -> None:
    theirs = pool.shell('echo "$SITE_WORD $OSG_SQUID_LOCATION $OSG_SITE_NAME"')
    own = pool.shell('echo "$SITE_WORD"', environment="SITE_WORD=mine")
    assert result(theirs).text == "it's $(LOG) squid.example:3128 lab\n"
    assert result(own).text == "mine\n"


def test_a_job_has_no_more_time_to_end_than_the_pod_gives_it(pool: Pool) -> None:
    submitted = pool.shell("trap '' TERM; while :; do sleep 0.1; done", job_max_vacate_time="60")
    submitted.wait("ExecuteEvent")
    runs(pool, "sleep 0.1")
    with pool.kills(until(pool.first_process, "its container is seen")) as killed:
        asked = time.time()
        submitted.command("condor_rm")
    assert VACATE_SECONDS - 1 < killed.at - asked < 20
