"""Standard input, output and error: as files, streamed, shared, closed, held open, and not wanted."""

import hashlib

import pytest

from tests.e2e.pool import MATCHED_SECONDS, Pool, result, until
from tests.runner.tiers import each_day

ODD_ENDS = r"""
case $1 in
0) echo before; exec >&- 2>&-; sleep 1; exit 3 ;;
1) echo said; setsid sh -c 'trap "" TERM HUP; echo from behind; touch said; sleep 300' &
    while [ ! -e said ]; do sleep 0.1; done; exit 4 ;;
2) (sleep 300 &) ; printf 'no newline'; kill -9 $$ ;;
3) exec <&-; cat; echo "read: $?" ;;
esac
"""
"""Jobs that close their output, leave it open in processes that stay behind, die with it, close their input."""

SOON_SECONDS = 20.0


def test_output_of_jobs_that_end_in_odd_ways_is_whole_and_does_not_delay_them(pool: Pool) -> None:
    jobs = pool.shell(ODD_ENDS, count=4)
    ends = [jobs.ended(proc) for proc in range(4)]
    assert all(end.at - jobs.wait("ExecuteEvent", proc=end.proc).at < SOON_SECONDS for end in ends)
    events = [end.attributes for end in ends]
    files = jobs.files()
    assert [event.get("ReturnValue") for event in events] == [3, 4, None, 0]
    assert [files[f"out.{proc}"] for proc in range(3)] == [b"before\n", b"said\nfrom behind\n", b"no newline"]
    assert files["out.3"].startswith(b"read: ")
    assert not [line for line in pool.processes() if "sleep 300" in line]


def test_nobody_needs_output(pool: Pool) -> None:
    jobs = pool.shell("echo out; echo err >&2; exit $1", count=2, output="/dev/null", error="/dev/null")
    assert [jobs.ended(proc).attributes["ReturnValue"] for proc in range(2)] == [0, 1]
    assert not [name for name in jobs.files() if name.startswith(("out", "err"))]


def test_output_and_error_in_one_file_keep_their_order_or_at_least_their_lines(pool: Pool) -> None:
    script = "i=0; while [ $i -lt 500 ]; do echo out $i; echo err $i >&2; i=$((i + 1)); done"
    jobs = pool.shell(script, output="both", error="both")
    jobs.ended()
    lines = jobs.files()["both"].decode().splitlines()
    for stream in ("out", "err"):
        assert [line for line in lines if line.startswith(stream)] == [f"{stream} {i}" for i in range(500)]
    assert len(lines) == 1000


@pytest.mark.parametrize("streamed", ["true", "false"])
def test_binary_output_of_some_size_is_the_same_at_the_other_end(pool: Pool, streamed: str) -> None:
    make = "dd if=/dev/urandom of=block bs=1048576 count=8 2>/dev/null"
    # HTCondor's starter reads on as long as the job runs: of a streamed job's last words it may lose up to a pipe full.
    linger = "sleep 4" if streamed == "true" else ":"
    script = f"{make}; for i in 1 2 3 4; do cat block; done; md5sum block >&2; {linger}"
    jobs = pool.shell(script, stream_output=streamed, stream_error=streamed)
    jobs.ended()
    files = jobs.files()
    out, block = files["out.0"], files["out.0"][: 8 * 1048576]
    assert len(out) == 32 * 1048576
    assert out == block * 4
    assert files["err.0"].split()[0].decode() == hashlib.md5(block).hexdigest()  # noqa: S324 -- what busybox has


def test_streamed_output_is_there_while_the_job_runs(pool: Pool) -> None:
    script = "echo first; echo trouble >&2; while [ ! -e /tmp/never ]; do sleep 0.2; done"
    jobs = pool.shell(script, stream_output="true", stream_error="true")

    def both() -> bool:
        files = jobs.files()
        return files.get("out.0") == b"first\n" and files.get("err.0") == b"trouble\n"

    until(both, "both streams have come", MATCHED_SECONDS)
    assert not [event for event in jobs.events if event.kind == "JobTerminatedEvent"]


TEXT = "first line\n\n" + "ä" * 100_000 + "\nno newline at the end"


@pytest.mark.parametrize("streamed", each_day(("false",), ("true", "false")))
def test_standard_input_is_the_file_that_the_user_names(pool: Pool, streamed: str) -> None:
    done = result(pool.shell("cat; echo $? >&2", files={"text": TEXT}, input="text", stream_input=streamed))
    assert done.text == TEXT
    assert done.stderr == b"0\n"


def test_without_an_input_file_there_is_an_end_at_once(pool: Pool) -> None:
    done = result(pool.shell("cat; echo $?"))
    assert done.text == "0\n"
