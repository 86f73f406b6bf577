"""condor_tail: the end of a running job's output."""

from tests.e2e.pool import Pool, until

SCRIPT = "echo first; echo to errors >&2; while [ ! -e go ]; do sleep 0.1; done; echo last"


def test_output_errors_and_files_of_a_running_job_are_seen(pool: Pool) -> None:
    jobs = pool.shell(f"echo in a file > own; {SCRIPT}", transfer_output_files="own")
    jobs.wait("ExecuteEvent")
    job = f"{jobs.cluster}.0"

    def tail(*options: str) -> str:
        return pool.lab.access_point("alice", f"condor_tail {' '.join(options)} 2>/dev/null || true")

    assert until(lambda: tail(job), "the output is seen", 40) == "first\n"
    assert tail("-no-stdout", "-stderr", job) == "to errors\n"
    assert tail("-no-stdout", job, "own") == "in a file\n"
