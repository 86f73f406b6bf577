"""The demonstration: real HTCondor jobs of two users in one pilot pod, each in the container image that it asks for."""

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from textwrap import dedent

from rich.console import Console
from rich.live import Live

from lab import jobs, pilot
from lab.api import Lab
from lab.demo_log import PilotLog
from lab.demo_view import Row, closing_table, hints, live_table
from lab.errors import LabError
from lab.jobs import Event, Jobs

PILOT = "demo"
LIMIT_S = 90.0
"""For all jobs together; they take a quarter of it."""

_TRANSFER_IN_FINISHED = 3  # FileTransferEventType of HTCondor's condor_event.h
_WORDS = "one payload one pod one pilot\n"


@dataclass(frozen=True)
class Job:
    """What is submitted, and what must come of it."""

    user: str
    image: str
    shows: str
    """What this one is there for, in a few words."""
    executable: str
    arguments: str = ""
    commands: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    count: int = 1
    code: int = 0
    output: tuple[str, ...] = ()
    """Must be in its standard output."""
    returned: dict[str, str] = field(default_factory=dict)
    """Files that must come back, with their content."""


PLAN: Sequence[Job] = (
    Job("alice", "hello", "image FROM scratch", "/hello", "0 scratch", output=("one static program", "scratch")),
    Job(
        "alice",
        "debian:forky",
        "files in and out",
        "count.sh",
        "words.txt counts.txt",
        commands={
            "transfer_executable": "true",
            "transfer_input_files": "words.txt",
            "transfer_output_files": "counts.txt",
        },
        files={
            "count.sh": "#!/bin/bash\nset -e\ntr ' ' '\\n' <$1 | sort | uniq -c | sort -rn | sed 's/^ *//' >$2\n"
            "echo counted $(wc -w <$1) words in $(. /etc/os-release; echo $NAME)\n",
            "words.txt": _WORDS,
        },
        output=("counted 6 words in Debian",),
        returned={"counts.txt": "3 one\n1 pod\n1 pilot\n1 payload\n"},
    ),
    Job(
        "bob",
        "busybox",
        "same image twice",
        "/bin/sh",
        "\"-c 'echo job $0 as uid $(id -u) finds $(ls -A /tmp | wc -l) files in /tmp; touch /tmp/mine' $(Process)\"",
        count=2,
        output=("as uid 65534 finds 0 files in /tmp",),
    ),
    Job(
        "bob",
        "busybox",
        "exit code 7",
        "/bin/sh",
        "\"-c 'echo this one fails; echo and says why >&2; exit 7'\"",
        code=7,
        output=("this one fails",),
    ),
)


def main() -> int:
    """Bring everything up, run the jobs, show what happens; return 0 if all of it came out right."""
    console = Console(highlight=False)
    began = time.monotonic()
    lab = Lab.up()
    with lab.progress.step("deploy a pilot and wait until its slot is in the pool", remember=True):
        pilot.deploy(lab, PILOT)
        jobs.wait_in_pool(lab, PILOT)
    with ExitStack() as parts:
        rows = _submit(lab, parts)
        watch = _Watch(rows, parts.enter_context(PilotLog(lab, PILOT)), console)
        faults = watch.follow()
        faults += _check(rows)
    console.print(closing_table(rows))
    console.print(f"{len(rows)} jobs in one pod, {time.monotonic() - began:.0f} s with all set-up.")
    for fault in faults:
        console.print(f"✗ {fault}", style="red", markup=False)
    if not faults:
        console.print("✓ Every exit code, output and file is as it should be.", style="green")
    console.print(hints(lab, PILOT), markup=False)
    return 1 if faults else 0


def _submit(lab: Lab, parts: ExitStack) -> list[Row]:
    rows = []
    for job in PLAN:
        commands = {
            "container_image": f"docker://{lab.registry}/{job.image}",
            "executable": job.executable,
            "arguments": job.arguments,
            "transfer_output_files": '""',
            **job.commands,
        }
        submitted = jobs.submit(lab, job.user, commands, files=job.files, pilot=PILOT, count=job.count)
        parts.callback(submitted.remove)
        now = time.monotonic()
        rows += [Row(job, submitted, number, now) for number in range(job.count)]
    return rows
