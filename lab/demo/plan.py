"""The demonstration's jobs, and the results that are expected of each."""

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
    """One submission, and its expected results."""

    user: str
    image: str
    shows: str
    """What this job demonstrates, in a few words."""
    executable: str
    arguments: str
    commands: dict[str, str] = field(default_factory=dict)
    """Additional submit commands."""
    files: dict[str, str] = field(default_factory=dict)
    """Files to put beside the submit file: name -> content."""
    count: int = 1
    code: int = 0
    output: tuple[str, ...] = ()
    """Texts that its standard output must contain."""
    errors: str = ""
    """Its whole standard error."""
    returned: dict[str, str] = field(default_factory=dict)
    """Output files that HTCondor must return: name -> content."""


def _shell(script: str) -> str:
    """Return the arguments that make /bin/sh run `script`, quoted for a submit file."""
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
        "two jobs with the same image",
        "/bin/sh",
        _shell("echo uid $(id -u), files in /tmp: $(ls -A /tmp | wc -l); touch /tmp/mine"),
        count=2,
        output=("uid 65534, files in /tmp: 0",),
    ),
    Job(
        "bob",
        "busybox",
        "exit code 7",
        "/bin/sh",
        _shell("echo a job that fails with 7; echo its reason >&2; exit 7"),
        code=7,
        output=("a job that fails with 7",),
        errors="its reason\n",
    ),
)
