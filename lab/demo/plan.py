"""The demonstration's jobs, and the results that are expected of each."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from lab.settings import HERE

_SCRIPTS = HERE / "scripts"
_WORDS = "one payload one pod one pilot\n"


@dataclass(frozen=True)
class Job:
    """One submission, and its expected results."""

    user: str
    image: str
    shows: str
    """Feature that this job demonstrates, in a few words."""
    executable: str
    arguments: str
    cpus: int = 1
    """CPUs that it requests."""
    memory: int = 128
    """MiB that it requests; HTCondor gives multiples of 128."""
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


CONTAINERS = 4
"""Payload containers of the pilot, which run as many jobs at a time."""
CPUS, MEMORY_MB = 4, 1024
"""CPUs and MiB of all payload containers together."""

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
        cpus=2,
        memory=256,
        commands={
            "transfer_executable": "true",
            "transfer_input_files": "words.txt",
            "transfer_output_files": "counts.txt",
        },
        files={"count.sh": (_SCRIPTS / "count.sh").read_text(), "words.txt": _WORDS},
        output=("counted 6 words in Debian",),
        returned={"counts.txt": "3 one\n1 payload\n1 pilot\n1 pod\n"},
    ),
    Job(
        "bob",
        "busybox",
        "two jobs with the same image",
        "/bin/sh",
        _shell("echo uid $(id -u), files in /tmp: $(ls -A /tmp | wc -l); touch /tmp/mine; sleep 3"),
        count=2,
        output=("files in /tmp: 0",),
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
    Job(
        "alice",
        "busybox",
        "the whole pod",
        "/bin/sh",
        "limits.sh",
        cpus=CPUS,
        memory=MEMORY_MB,
        commands={"transfer_input_files": "limits.sh"},
        files={"limits.sh": (_SCRIPTS / "limits.sh").read_text()},
        output=(f"its container has {CPUS} CPUs and {MEMORY_MB} MiB",),
    ),
)
