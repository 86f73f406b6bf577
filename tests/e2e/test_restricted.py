"""Threats to a pilot without root alone: HTCondor reads outputs as the user that has the pool's token."""

import json

import pytest

from lab import jobs as lab_jobs
from lab import pilot
from lab.jobs import BAD_NEWS
from lab.pilot import SUPERVISOR
from tests.e2e.pool import Pool, result, slot_takes_a_job_of_bob, until
from tests.e2e.test_end import QUICK
from tests.e2e.test_files import INPUT_HOLD, OUTPUT_HOLD
from tests.e2e.test_recovery import SLOW, ended_the_second_time, runs

pytestmark = pytest.mark.parametrize("level", ["restricted"], indirect=True, scope="session")

POOLS = "/run/k8spilot/condor/tokens.d/token"
SECRETS = [
    POOLS,
    "/etc/condor/tokens-orig.d/token",
    "/proc/self/root/run/k8spilot/condor/tokens.d/token",
    "/var/run/secrets/kubernetes.io/serviceaccount/token",
    "/var/log/condor/StartLog",
]
LOCK = "mkdir -p locked/deep; echo x >locked/deep/x; chmod 000 locked/deep locked"


@pytest.mark.cluster
def test_nothing_is_root_or_has_a_capability(pool: Pool) -> None:
    spec = pool.status()["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    for container in (*spec["initContainers"], *spec["containers"]):
        security = container["securityContext"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["readOnlyRootFilesystem"] is True
    # The collector may have the slot before the pilot has asked it: the pilot is fit from then on.
    until(lambda: json.loads(pool.inside("k8spilot status --json; true"))["fit"], "the pilot is fit", 60)


@pytest.mark.cluster
def test_no_link_leads_to_a_token(pool: Pool) -> None:
    jobs = pool.shell(
        f"set -- $1 {' '.join(SECRETS)}; shift $(($1 + 1)); mkdir tree; ln -s $1 tree/stolen; ln -s $1 stolen",
        count=len(SECRETS),
        transfer_output_files="stolen, tree",
    )
    for proc in range(len(SECRETS)):
        assert jobs.held(proc).attributes["HoldReasonCode"] == OUTPUT_HOLD
    assert not [name for name, content in jobs.files().items() if "stolen" in name and content]
    slot_takes_a_job_of_bob(pool)


@pytest.mark.parametrize("place", ["x", "/tmp/x"], ids=["sandbox", "tmp"])
def test_a_job_that_uses_more_disk_than_it_requested_is_held_here_as_well(pool: Pool, place: str) -> None:
    facts = pool.shell(f"head -c 60000000 /dev/zero >{place}; sleep 600", request_disk="20M").held().attributes
    assert (facts["HoldReasonCode"], facts["HoldReasonSubCode"]) == (21, 104), facts
    assert "MiB of disk, and requested 20 MiB" in facts["HoldReason"]
    slot_takes_a_job_of_bob(pool)


@pytest.mark.quick
def test_no_file_url_leads_to_a_token(pool: Pool) -> None:
    jobs = pool.shell("cat token", transfer_input_files=f"file://{POOLS}")
    assert jobs.held().attributes["HoldReasonCode"] == INPUT_HOLD
    assert jobs.files().get("out.0", b"") == b""


@pytest.mark.cluster
def test_condor_tail_and_condor_ssh_to_job_show_no_token(pool: Pool) -> None:
    names = [f"link{number}" for number in range(len(SECRETS))]
    links = "; ".join(f"ln -s {secret} {name}" for secret, name in zip(SECRETS, names, strict=True))
    # The link changes all the time between a file and a token: a look and what follows it may see different ones.
    flip = f"echo own >own; while [ ! -e go ]; do ln -sfn {POOLS} flip; ln -sfn own flip; done"
    jobs = pool.shell(f"{links}; {flip}", transfer_output_files=", ".join(["own", "flip", *names]))
    jobs.wait("ExecuteEvent")
    job = f"{jobs.cluster}.0"
    own = f"condor_tail -no-stdout {job} own 2>/dev/null || true"
    assert until(lambda: pool.lab.access_point("alice", own), "the job's own file is seen", 40) == "own\n"
    for name in (*names, *["flip"] * 20):  # condor_tail asks again and again for what is not there
        seen = pool.lab.access_point("alice", f"timeout 3 condor_tail -no-stdout {job} {name} 2>/dev/null || true")
        assert seen in ("", "own\n"), seen
    assert "ENABLE_SSH_TO_JOB" in pool.lab.access_point("alice", f"condor_ssh_to_job {job} id 2>&1; true")


def test_what_a_lost_job_locked_is_removed(pool: Pool) -> None:
    jobs = pool.shell(f"[ -e /tmp/none ]; {LOCK}; kill -9 $PPID; sleep 300")
    jobs.wait("JobEvictedEvent", timeout=90, ignore=BAD_NEWS)
    jobs.command("condor_rm")
    assert result(pool.shell("echo next", user="bob")).text == "next\n"
    until(lambda: pool.inside("ls -A /var/lib/condor/execute/slot") == "", "nothing is left of them", 60)


def test_a_job_that_stops_payload_init_all_the_time_can_be_removed(pool: Pool) -> None:
    jobs = pool.shell("while :; do kill -STOP $PPID; done", job_max_vacate_time="2")
    jobs.wait("ExecuteEvent")
    jobs.command("condor_rm")
    assert result(pool.shell("echo next", user="bob")).text == "next\n"


def test_a_pod_that_is_deleted_vacates_its_job_first(pool: Pool) -> None:
    name = f"{pool.pod}-ends"
    pilot.deploy(pool.lab, name)
    try:
        lab_jobs.wait_in_pool(pool.lab, name)
        ending = pool.of_pod(name)
        script = "trap 'echo saved >state; exit 0' TERM; touch running; sleep 300 & wait"
        jobs = ending.shell(script, when_to_transfer_output="ON_EXIT_OR_EVICT", transfer_output_files="state")
        jobs.wait("ExecuteEvent")
        until(lambda: any("sleep 300" in line for line in ending.processes()), "the job runs")
    finally:
        pilot.delete(pool.lab, name)
    jobs.wait("JobEvictedEvent", timeout=30, ignore=BAD_NEWS)


def test_an_htcondor_agent_that_is_killed_costs_nothing(pool: Pool) -> None:
    jobs = pool.shell("sleep 8; echo whole")
    jobs.wait("ExecuteEvent")
    pool.inside("pkill -KILL -f -o k8spilot[.]condor[.]agent")
    assert result(jobs).text == "whole\n"
    until(lambda: json.loads(pool.inside("k8spilot status --json; true"))["fit"], "the pilot is fit", 60)


@pytest.mark.cluster
def test_an_engines_container_that_is_killed_as_a_whole_is_followed_by_another(pool: Pool) -> None:
    jobs = pool.shell(SLOW)
    runs(jobs, pool)
    pool.ends_its_container(f"pkill -KILL -U $(id -u) -f -o {SUPERVISOR}", pool.lab.engine)
    ended_the_second_time(jobs, 120)
    statuses = {one["name"]: one for one in pool.status()["status"]["initContainerStatuses"]}
    assert statuses["engine"]["restartCount"] >= 1
    slot_takes_a_job_of_bob(pool)


@pytest.mark.landing
@pytest.mark.timeout(300)
def test_a_pilot_that_nobody_claims_completes_its_pod(pool: Pool) -> None:
    name = f"{pool.pod}-idle"
    pilot.deploy(pool.lab, name, {"ACCEPT_IDLE_MINUTES": "0.25", **QUICK})
    try:
        until(lambda: pool.of_pod(name).status()["status"]["phase"] == "Succeeded", "the pod is complete", 150)
        (status,) = pool.of_pod(name).status()["status"]["containerStatuses"]
        message = status["state"]["terminated"]["message"]
        assert message == "The pilot ends: idle for 0.25 min (ACCEPT_IDLE_MINUTES)."
    finally:
        pilot.discard(pool.lab, name)


def test_without_landlock_links_that_lead_out_are_removed_at_the_jobs_end(pool: Pool) -> None:
    name = f"{pool.pod}-fenced"
    pilot.deploy(pool.lab, name, {"K8SPILOT_CONFINE_STARTER": "false"})
    try:
        lab_jobs.wait_in_pool(pool.lab, name)
        fenced = pool.of_pod(name)
        done = result(
            fenced.shell(f"mkdir tree; ln -s {POOLS} tree/stolen; echo x >tree/own", transfer_output_files="tree")
        )
        assert {path for path in done.files if path.startswith("tree/")} == {"tree/own"}
        jobs = fenced.shell(f"ln -s {POOLS} stolen", transfer_output_files="stolen")
        assert jobs.held().attributes["HoldReasonCode"] == OUTPUT_HOLD
        assert "stolen" not in jobs.files()
    finally:
        pilot.discard(pool.lab, name)
