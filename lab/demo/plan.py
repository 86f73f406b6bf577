"""The demonstration's jobs, and what must come of each."""

from collections.abc import Sequence
from dataclasses import dataclass, field

_COUNT = """\
#!/bin/bash
set -e
tr ' ' '\\n' <"$1" | sort | uniq -c | sort -k1,1rn -k2 | sed 's/^ *//' >"$2"
echo "counted $(wc -w <"$1") words in $(. /etc/os-release; echo $NAME)"
"""
_WORDS = "one payload one pod one pilot\n"


@dataclass(frozen=True)
class Job:
    """What is submitted, and what must come of it."""

    user: str
    image: str
    shows: str
    """What this one is there for, in a few words."""
    executable: str
    arguments: str
    commands: dict[str, str] = field(default_factory=dict)
    """More submit commands."""
    files: dict[str, str] = field(default_factory=dict)
    """Beside the submit file."""
    count: int = 1
    code: int = 0
    output: tuple[str, ...] = ()
    """Must be in its standard output."""
    errors: str = ""
    """Must be its standard error."""
    returned: dict[str, str] = field(default_factory=dict)
    """Files that must come back, with their content."""


def _shell(script: str) -> str:
    """Arguments of /bin/sh in HTCondor's quoted form."""
    return f"\"-c '{script}'\""


PLAN: Sequence[Job] = (
    Job(
        "alice",
        "hello",
        "an image FROM scratch",
        "/hello",
        "0 scratch",
        output=("one static program", "argument 2: scratch"),
    ),
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
        files={"count.sh": _COUNT, "words.txt": _WORDS},
        output=("counted 6 words in Debian",),
        returned={"counts.txt": "3 one\n1 payload\n1 pilot\n1 pod\n"},
    ),
    Job(
        "bob",
        "busybox",
        "the same image twice in a row",
        "/bin/sh",
        _shell("echo as uid $(id -u), with $(ls -A /tmp | wc -l) files in /tmp; touch /tmp/mine"),
        count=2,
        output=("as uid 65534, with 0 files in /tmp",),
    ),
    Job(
        "bob",
        "busybox",
        "exit code 7",
        "/bin/sh",
        _shell("echo this one fails; echo and says why >&2; exit 7"),
        code=7,
        output=("this one fails",),
        errors="and says why\n",
    ),
)
