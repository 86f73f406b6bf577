"""Checks of HTCondor's own test of the docker universe (src/condor_tests/test_docker.py), in this pool."""

from typing import Final

from tests.e2e.pool import Pool, until

IDLE, RUNNING, COMPLETED, HELD = 1, 2, 4, 5
_STATES: Final = "grep '^103 {job} JobStatus ' $(condor_config_val JOB_QUEUE_LOG) | cut -d ' ' -f 4"
"""The schedd's log of changes has each as `103 job attribute value` (classad_log.h, CondorLogOp_SetAttribute)."""


def test_a_docker_universe_job_is_idle_then_running_then_completed_and_never_held(pool: Pool) -> None:
    image = pool.image("busybox").removeprefix("docker://")
    jobs = pool.submit(
        {
            "universe": "docker",
            "docker_image": image,
            "container_image": "",
            "executable": "/bin/ps",
            "arguments": "auxww",
            "transfer_output_files": "",
        }
    )

    def states() -> list[int]:
        script = _STATES.format(job=f"{jobs.cluster}.0")
        answer = pool.lab.kubectl("exec", "-n", "pool", "access-point", "--", "sh", "-c", f"{script}; true")
        return [int(line) for line in answer.split()]

    until(lambda: COMPLETED in states(), "the job is completed", 60)
    seen = states()
    assert HELD not in seen
    assert seen.index(IDLE) < seen.index(RUNNING) < seen.index(COMPLETED)
