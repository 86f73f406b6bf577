"""Jobs that save their state and begin again from it, here or elsewhere."""

import pytest

from lab.jobs import BAD_NEWS
from tests.e2e.pool import MATCHED_SECONDS, Pool, result, until

STEPS = """
step=$(cat state 2>/dev/null || echo 0)
step=$((step + 1))
echo $step >state
echo step $step
ls -d /tmp/left 2>/dev/null; touch /tmp/left
[ $step = 3 ] && exit 7
setsid sleep 300 &
{leave}
"""
"""A job of three steps, which tells after each that it has saved its state; what it leaves is nobody's."""

SAVER = """
trap 'echo $count >state; exit 0' TERM
count=$(cat state 2>/dev/null || echo 0)
[ $count -gt 0 ] && { echo began at $count; exit 3; }
count=42
echo ready; touch ready
while :; do sleep 0.1; done
"""
"""A job that saves its state when it is asked to end."""


@pytest.mark.parametrize(
    ("leave", "commands"),
    [
        ("exit 85", {"checkpoint_exit_code": "85"}),
        pytest.param(
            "exit 85", {"+SuccessCheckpointExitCode": "85", "+WantFTOnCheckpoint": "true"}, marks=pytest.mark.nightly
        ),
        (
            "kill -USR2 $$; sleep 9",
            {
                "+SuccessCheckpointExitBySignal": "true",
                "+SuccessCheckpointExitSignal": "12",
                "+WantFTOnCheckpoint": "true",
            },
        ),
    ],
    ids=["checkpoint_exit_code", "SuccessCheckpointExitCode", "SuccessCheckpointExitSignal"],
)
def test_a_job_goes_on_after_each_checkpoint(pool: Pool, leave: str, commands: dict[str, str]) -> None:
    jobs = pool.submit(
        {
            "executable": "job.sh",
            "transfer_executable": "true",
            "transfer_checkpoint_files": "state",
            "transfer_output_files": "state",
            **commands,
        },
        files={"job.sh": f"#!/bin/sh\n{STEPS.format(leave=leave)}"},
    )
    done = result(jobs)
    assert done.code == 7
    assert done.text.splitlines() == ["step 1", "step 2", "step 3"]
    assert done.files["state"] == b"3\n"
    assert not [line for line in pool.processes() if "sleep 300" in line]


def test_a_checkpoint_outlives_the_eviction_of_its_job(pool: Pool) -> None:
    script = STEPS.format(leave="[ $step = 2 ] && sleep 300; exit 85")
    jobs = pool.shell(
        script,
        checkpoint_exit_code="85",
        transfer_checkpoint_files="state",
        transfer_output_files="state",
        stream_output="true",
    )
    until(lambda: b"step 2" in jobs.files().get("out.0", b""), "the job has begun its second step", MATCHED_SECONDS)
    jobs.command("condor_vacate_job", "-fast")
    jobs.wait("JobEvictedEvent", ignore=BAD_NEWS)
    until(
        lambda: jobs.files()["out.0"].count(b"step 2") == 2, "the job has begun its second step again", MATCHED_SECONDS
    )


def test_a_job_is_asked_for_a_checkpoint_with_its_own_signal(pool: Pool) -> None:
    script = """#!/bin/sh
    [ -e state ] && { echo again; exit 0; }
    trap 'echo asked; touch state; exit 85' USR2
    echo ready
    while :; do sleep 0.1; done
    """
    jobs = pool.submit(
        {
            "executable": "job.sh",
            "transfer_executable": "true",
            "checkpoint_exit_code": "85",
            "transfer_checkpoint_files": "state",
            "stream_output": "true",
            "+WantCheckpointSignal": "true",
            "+CheckpointSig": '"SIGUSR2"',
        },
        files={"job.sh": script},
    )
    until(lambda: b"ready" in jobs.files().get("out.0", b""), "the job runs", MATCHED_SECONDS)
    # After PERIODIC_CHECKPOINT's hours HTCondor signals the docker client that waits (vanilla_proc.cpp, Ckpt).
    pool.inside("kill -USR2 $(pgrep -f '^/run/k8spilot/condor/docker-client start ')")
    assert result(jobs).text == "ready\nasked\nagain\n"


def test_files_come_back_at_an_eviction_and_the_job_goes_on_from_them(pool: Pool) -> None:
    jobs = pool.shell(
        SAVER,
        when_to_transfer_output="ON_EXIT_OR_EVICT",
        transfer_output_files="state, ready",
        stream_output="true",
    )
    until(lambda: b"ready" in jobs.files().get("out.0", b""), "the job runs", MATCHED_SECONDS)
    jobs.command("condor_vacate_job")
    jobs.wait("JobEvictedEvent", ignore=BAD_NEWS)
    event = jobs.ended(ignore=BAD_NEWS)
    assert event.attributes["ReturnValue"] == 3
    files = jobs.files()
    assert b"began at 42\n" in files["out.0"]
    assert files["state"] == b"42\n"


def test_a_job_that_asks_for_it_brings_files_back_only_after_success(pool: Pool) -> None:
    jobs = pool.shell(
        "echo $1 >made.$1; exit $1",
        count=2,
        when_to_transfer_output="ON_SUCCESS",
        success_exit_code="1",
        max_retries="0",
        transfer_output_files="made.$(Process)",
    )
    assert [jobs.ended(proc).attributes["ReturnValue"] for proc in range(2)] == [0, 1]
    files = jobs.files()
    assert "made.0" not in files
    assert files["made.1"] == b"1\n"
