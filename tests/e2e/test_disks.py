"""Volumes of the pod are full, or have no inodes left: what is in the way is taken away, and all goes on."""

import errno
import re
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from lab import jobs, pilot, pod_faults
from lab.api import Lab
from lab.jobs import BAD_NEWS
from tests.e2e.pool import Pool, result, runs, slot_takes_a_job_of_bob, until
from tests.runner.tiers import each_day

AGAIN_SECONDS = 120.0
"""Within this time after a fault the slot runs jobs again."""

INPUT_HOLD = 13
"""CONDOR_HOLD_CODE::TransferInputError."""
OVER_DISK = (21, 104)
"""CONDOR_HOLD_CODE::StartdHeldJob, and HTCondor's subcode for the disk."""
BURST = (6, 0)
"""CONDOR_HOLD_CODE::FailedToCreateProcess: the docker client's error."""


@pytest.fixture(scope="module")
def pod(lab: Lab, owner: str) -> Iterator[str]:
    """A pilot pod with volumes that can be filled without harm."""
    name = f"e2e-{owner}-disks"
    volumes = [pilot.in_memory("execute", "96Mi"), pilot.in_memory("exchange", "8Mi"), pilot.in_memory("tmp", "16Mi")]
    environment = {"K8SPILOT_IDLE_AFTER_SECONDS": "1", "K8SPILOT_MIN_FREE_MB": "1"}
    pilot.deploy(lab, name, environment, {"patches": volumes})
    jobs.wait_in_pool(lab, name)
    yield name
    pilot.discard(lab, name)


_FILES: dict[str, str | bytes] = {"in": "x" * 100_000}


def test_a_job_whose_input_has_no_room_is_held_by_htcondor_and_the_slot_is_fit_when_it_has(pool: Pool) -> None:
    with pod_faults.volume_full(pool.lab, pool.pod, "execute"):
        facts = pool.shell("cat in", files=_FILES, transfer_input_files="in").held().attributes
    assert (facts["HoldReasonCode"], facts["HoldReasonSubCode"]) == (INPUT_HOLD, errno.ENOSPC), facts
    assert "No space left on device" in facts["HoldReason"]
    slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)


def test_a_job_for_whose_sandbox_there_are_no_inodes_runs_later(pool: Pool) -> None:
    until(lambda: pool.inside("ls -A /var/lib/condor/execute/slot") == "", "no job's sandbox can leave inodes free")
    with pod_faults.volume_full(pool.lab, pool.pod, "execute", inodes=True):
        submitted = pool.shell("cat in", files=_FILES, transfer_input_files="in")
        submitted.wait("JobEvictedEvent", "ShadowExceptionEvent", ignore=BAD_NEWS)
    submitted.ended(timeout=AGAIN_SECONDS, ignore=BAD_NEWS)
    assert "JobHeldEvent" not in {event.kind for event in submitted.events}
    assert submitted.files()["out.0"] == b"x" * 100_000
    slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)


@pytest.mark.landing
def test_output_for_which_there_is_no_room_is_no_good_result(pool: Pool) -> None:
    submitted = pool.shell("echo begun; sleep 20; head -c 1000000 /dev/zero; echo done")
    runs(pool, "sleep 20")
    with pod_faults.volume_full(pool.lab, pool.pod, "execute"):
        submitted.wait("JobEvictedEvent", "ShadowExceptionEvent", timeout=60, ignore=BAD_NEWS)
    submitted.ended(timeout=AGAIN_SECONDS, ignore=BAD_NEWS)
    assert len(submitted.files()["out.0"]) == len("begun\n") + 1000000 + len("done\n")


def test_a_job_that_fills_its_sandbox_learns_it_itself(pool: Pool) -> None:
    done = result(pool.shell("cat /dev/zero >x 2>/dev/null; code=$?; rm x; echo told; exit $code", request_disk="1G"))
    assert (done.code, done.stdout) == (1, b"told\n")


def test_a_job_that_uses_more_than_it_requested_is_held_while_it_runs(pool: Pool) -> None:
    submitted = pool.shell("head -c 60000000 /dev/zero >x; sleep 600", request_disk="20M")
    facts = submitted.held().attributes
    assert (facts["HoldReasonCode"], facts["HoldReasonSubCode"]) == OVER_DISK, facts
    assert re.search(r"the job has used \d+ MiB of disk, and requested 20 MiB; set request_disk", facts["HoldReason"])
    slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)


@pytest.mark.parametrize("inodes", each_day((False,), (False, True)), ids=["bytes", "inodes"])
def test_jobs_run_and_follow_one_another_while_the_exchange_is_full(pool: Pool, inodes: bool) -> None:
    with pod_faults.volume_full(pool.lab, pool.pod, "exchange", inodes=inodes):
        assert result(pool.shell("echo fine")).stdout == b"fine\n"
        slot_takes_a_job_of_bob(pool, AGAIN_SECONDS)


@pytest.mark.parametrize("inodes", each_day((True,), (False, True)), ids=["bytes", "inodes"])
def test_a_job_whose_tmp_is_full_ends_and_the_next_one_has_room(pool: Pool, inodes: bool) -> None:
    submitted = pool.shell("sleep 20; echo more >/tmp/mine; echo $?")
    runs(pool, "sleep 20")
    with pod_faults.volume_full(pool.lab, pool.pod, "tmp", inodes=inodes):
        assert result(submitted).stdout == b"1\n"
        assert result(pool.shell("echo more >/tmp/mine && echo room", user="bob")).stdout == b"room\n"


@pytest.fixture(scope="module")
def little(lab: Lab, owner: str) -> Iterator[str]:
    """A pilot pod with little disk, on the node's own."""
    name = f"e2e-{owner}-little"
    limit = "/spec/initContainers/1/resources/limits/ephemeral-storage"
    size = pilot.change({"op": "replace", "path": limit, "value": "300Mi"})
    pilot.deploy(lab, name, {"K8SPILOT_IDLE_AFTER_SECONDS": "1"}, {"patches": [size]})
    jobs.wait_in_pool(lab, name)
    yield name
    pilot.discard(lab, name)


class TestLimit:
    """A slot whose disk ends where the kubelet would evict the pod."""

    @pytest.fixture
    def pod(self, little: str) -> str:
        """Of this pod."""
        return little

    @pytest.mark.parametrize("place", ["x", "/tmp/x", "/run/lock/x"], ids=["sandbox", "tmp", "image"])
    @pytest.mark.parametrize("size", each_day((285,), (285, 381)))
    def test_a_job_that_writes_more_than_the_slot_promises_is_held_and_the_pod_lives(
        self, pool: Pool, place: str, size: int
    ) -> None:
        """`size` in MiB: the slot promises 270; the limit is 300, beyond which the kubelet may evict the pod first."""
        write = f"head -c {size << 20} /dev/zero >{place} || exit 9; sleep 600"
        facts = pool.shell(write, image="debian:forky", request_disk="200M").held().attributes
        expected = (OVER_DISK,) if size < 300 else (OVER_DISK, BURST)
        assert (facts["HoldReasonCode"], facts["HoldReasonSubCode"]) in expected, facts
        # HTCondor measures the sandbox itself (docs/how-to/held-jobs.md), and may do so first.
        of_htcondor = "|disk usage exceeded allocated disk" if place == "x" else ""
        words = rf"the job has used \d+ MiB of disk, and requested 200 MiB{of_htcondor}"
        assert re.search(words, facts["HoldReason"]), facts
        assert result(pool.shell("echo fine", user="bob", request_disk="64M")).text == "fine\n"
        assert pool.status()["status"]["phase"] == "Running"

    def test_the_slot_promises_less_than_the_pod_has(self, pool: Pool) -> None:
        done = result(pool.shell("grep -i '^Disk *=' .machine.ad", request_disk="64M"))
        assert done.text.split()[-1] == str(270 * 1024)


@pytest.mark.nightly  # four minutes; tests/engine/test_last_run.py has the rule
@pytest.mark.timeout(500)
def test_a_job_under_which_a_pod_was_evicted_for_disk_is_held_by_the_next_pilot(lab: Lab, owner: str) -> None:
    first, second = (f"e2e-{owner}-disk-{number}" for number in (1, 2))
    # The kubelet counts less than the slot promises here, so that the watch cannot prevent it.
    little_tmp = pilot.change({"op": "replace", "path": "/spec/volumes/3/emptyDir", "value": {"sizeLimit": "20Mi"}})
    commands = {
        "container_image": f"docker://{lab.registry}/busybox",
        "requirements": " || ".join(f'TARGET.K8SPodName == "{pod}"' for pod in (first, second)),
        "executable": "job.sh",
        "transfer_executable": "true",
    }
    # The kubelet's figure of a volume is up to two minutes old: before that an earlier job may have filled it.
    script = "#!/bin/sh\nsleep 135; head -c 60000000 /dev/zero >/tmp/x; sleep 600\n"
    with ExitStack() as cleanup:
        for pod in (first, second):
            cleanup.callback(pilot.discard, lab, pod)
        pilot.deploy(lab, first, overlay={"patches": [little_tmp]})
        jobs.wait_in_pool(lab, first)
        submitted = jobs.submit(lab, "alice", commands, files={"job.sh": script})
        cleanup.callback(submitted.remove)
        submitted.wait("JobEvictedEvent", "JobReconnectFailedEvent", timeout=330, ignore=BAD_NEWS)
        pilot.deploy(lab, second)
        jobs.wait_in_pool(lab, second)
        facts = submitted.held().attributes
        assert 'Kubernetes evicted the pod (Usage of EmptyDir volume "tmp" exceeds' in facts["HoldReason"], facts
        submitted.command("condor_release")
        until(lambda: _runs(submitted) == 2, "it runs after its release", 60)


def _runs(submitted: jobs.Jobs) -> int:
    submitted.look()
    return sum(event.kind == "ExecuteEvent" for event in submitted.events)
