"""HTCondor's command lines for docker, word by word (docker-api.cpp in HTCondor); no I/O.

HTCondor calls a handful of commands, each with its words in one order. Every other line is refused, because a job's
image, executable and arguments are on the same line: docker's client would take an image that begins with a dash for an
option.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from k8spilot.common.errors import Refused
from k8spilot.docker.create_request.options import short

INSPECTION: Final = """ContainerId="{{.Id}}"
Pid={{.State.Pid}}
Name="{{.Name}}"
Running={{.State.Running}}
ExitCode={{.State.ExitCode}}
StartedAt="{{.State.StartedAt}}"
FinishedAt="{{.State.FinishedAt}}"
DockerError={{json .State.Error}}
OOMKilled="{{.State.OOMKilled}}\""""
"""Template of HTCondor's inspection of a container (docker-api.cpp, DockerAPI::inspect)."""

_JOB: Final = re.compile(r"HTCJob[0-9]+_[0-9]+_[A-Za-z0-9_.-]*PID[0-9]{1,7}")
"""HTCondor's names of containers (docker_proc.cpp, StartJob)."""
_IMAGE: Final = re.compile(r"[A-Za-z0-9\[].*", re.DOTALL)
"""Checks the first character only. Reference.parse checks the rest of a name, with a clear message."""
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_VARIABLE: Final = re.compile(r"[^=]+=.*", re.DOTALL)


class UnknownLine(Refused):
    """Raised when HTCondor has not written a line as it does, or a user's word is in the place of an image."""


@dataclass(frozen=True, slots=True)
class Pull:
    """`pull -q IMAGE`."""

    image: str
    """Empty if the word is not an image: a pull does not fail."""


@dataclass(frozen=True, slots=True)
class Create:
    """`create ...`."""

    name: str
    body: Mapping[str, Any] = field(repr=False)
    """The same request as a ContainerConfig of the Engine API."""
    pulls: bool
    """Whether the line has `--pull always`."""


@dataclass(frozen=True, slots=True)
class Start:
    """`start -a NAME`."""

    name: str


@dataclass(frozen=True, slots=True)
class Kill:
    """`kill --signal NUMBER NAME`."""

    number: str
    name: str


@dataclass(frozen=True, slots=True)
class OfContainer:
    """A command with the name of a container and no other choice: rm, pause, unpause, inspect."""

    command: str
    name: str


@dataclass(frozen=True, slots=True)
class Architecture:
    """`inspect --format {{.Architecture}} IMAGE`."""

    image: str


@dataclass(frozen=True, slots=True)
class Info:
    """`info`."""


@dataclass(frozen=True, slots=True)
class Prune:
    """`container prune -f --filter=label=org.htcondorproject=True`."""


@dataclass(frozen=True, slots=True)
class Exec:
    """`exec -i|-ti ...`, which docker's own client runs."""

    name: str


Line = Pull | Create | Start | Kill | OfContainer | Architecture | Info | Prune | Exec


def is_job(word: str = "") -> bool:
    """Return whether a word is the name of a job's container."""
    return _JOB.fullmatch(word) is not None


def is_image(word: str = "") -> bool:
    """Return whether a word can be the name of an image, and no option."""
    return _IMAGE.fullmatch(word) is not None


def is_number(word: str = "") -> bool:
    """Return whether a word is a number that Docker can take."""
    return _NUMBER.fullmatch(word) is not None


def is_variable(word: str = "") -> bool:
    """Return whether a word is NAME=VALUE."""
    return _VARIABLE.fullmatch(word) is not None


def _is_any(_word: str) -> bool:
    return True


def _pull(image: str) -> Pull:
    return Pull(image if is_image(image) else "")


_LINES: Final[Sequence[tuple[Sequence[str | Callable[[str], bool]], Callable[..., Line]]]] = (
    (("pull", "-q", _is_any), _pull),
    (("start", "-a", is_job), Start),
    (("kill", "--signal", is_number, is_job), Kill),
    (("rm", "-f", "-v", is_job), partial(OfContainer, "rm")),
    (("pause", is_job), partial(OfContainer, "pause")),
    (("unpause", is_job), partial(OfContainer, "unpause")),
    (("inspect", "--format", INSPECTION, is_job), partial(OfContainer, "inspect")),
    (("inspect", "--format", "{{.Architecture}}", is_image), Architecture),
    (("info",), Info),
    (("container", "prune", "-f", "--filter=label=org.htcondorproject=True"), Prune),
)
"""Lines of a fixed length: their words, or tests of them, and what makes a line of the tested words."""


def parse(words: Sequence[str]) -> Line:
    """Parse each line of HTCondor's but `create`.

    Raises:
        UnknownLine: HTCondor writes no such line.
    """
    for pattern, make in _LINES:
        if len(words) == len(pattern) and all(map(_fits, pattern, words)):
            return make(*(word for one, word in zip(pattern, words, strict=True) if callable(one)))
    if words[:2] in (["exec", "-i"], ["exec", "-ti"]):
        return _exec(words[2:])
    raise unknown(" ".join(words[:4]))


def _fits(pattern: str | Callable[[str], bool], word: str) -> bool:
    return pattern(word) if callable(pattern) else pattern == word


def _exec(words: Sequence[str]) -> Exec:
    """Parse `exec -i|-ti` after these (docker-api.cpp, execInContainer): variables, the container, the command."""
    place = 0
    while words[place : place + 1] == ["-e"]:
        if not is_variable(*words[place + 1 : place + 2]):
            raise unknown("exec -e")
        place += 2
    if not is_job(*words[place : place + 1]):
        raise unknown("exec")
    return Exec(words[place])


def unknown(words: str) -> UnknownLine:
    """Return the error for a line that begins with these words, or for one word of it."""
    return UnknownLine(
        f"HTCondor called docker in a way that k8spilot does not know ('{short(words)}'); report the job's submit "
        "commands to the site"
    )
