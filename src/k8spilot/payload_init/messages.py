"""The messages of payload-init, as values; pure (payload-init.c documents them).

A message that `parse` accepts has the right form. Whether it may come now is known to the object whose state it
changes: channel.py, process.py, leash.py.
"""

import os
from dataclasses import dataclass
from typing import Final

_VERSION: Final = "4"
_LAST_STATUS: Final = 0xFFFF
"""Highest status of waitpid(2)."""
_LAST_ERROR: Final = 4095
"""Highest errno of the kernel (MAX_ERRNO in include/linux/err.h)."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message."""

    fresh: bool
    """Whether no job has run in the container yet."""
    scoped: bool
    """Whether the kernel isolates the container's processes from abstract sockets of other containers."""
    bind: str
    """Id of the change of image for which the container was created (kube/own_pod.py), as the kubelet received it."""
    names: tuple[str, ...]
    """Names of the message's descriptors: files of the container's cgroup, and `root` for its root folder."""


@dataclass(frozen=True, slots=True)
class Swept:
    """payload-init is the only process left in the container."""


@dataclass(frozen=True, slots=True)
class Cleared:
    """payload-init is the only process of its user in the pod."""


@dataclass(frozen=True, slots=True)
class LeashAnswer:
    """The answer to an offered leash."""

    error: int
    """An errno, or 0: the end of the terminal kills payload-init."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """The answer to the request to run another job."""

    worn: str
    """Why the container cannot run another job: the leftover or change of the last one; empty if it can."""


@dataclass(frozen=True, slots=True)
class TerminalOpened:
    """The command has a terminal. Its master side is the only descriptor of the message."""

    number: int


@dataclass(frozen=True, slots=True)
class Started:
    """The command runs."""

    number: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The command could not run; an end follows."""

    number: int
    error: int
    """An errno."""
    stage: str
    """The stage that failed, as payload-init names it."""


@dataclass(frozen=True, slots=True)
class Exited:
    """The command has ended."""

    number: int
    status: int
    """Wait status (waitpid(2)) of an ended process."""


type Report = TerminalOpened | Started | Failed | Exited
"""A message about a command, by its number."""
type Answer = Swept | Cleared | LeashAnswer | Renewal
"""An answer to a request of the pilot."""
type Message = Hello | Answer | Report
"""A message to the pilot."""
_WORDS: Final[dict[str, Answer]] = {"swept": Swept(), "cleared": Cleared(), "renewed": Renewal("")}
"""Messages of one word."""


def parse(data: bytes) -> Message | None:
    """Return the message, or None if its form is invalid."""
    match data.decode("ascii", "replace").split(" "):
        case ["hello", version, "fresh" | "used" as use, "scoped" | "open" as reach, bind, *names] if (
            version == _VERSION and len(set(names)) == len(names)
        ):
            return Hello(use == "fresh", reach == "scoped", bind, tuple(names))
        case [word] if word in _WORDS:
            return _WORDS[word]
        case ["leash", error] if _is_errno(error):
            return LeashAnswer(int(error))
        case ["worn", what] if what:
            return Renewal(what)
        case [word, number, *values] if number.isdecimal():
            return _report(word, int(number), values)
    return None


def _report(word: str, number: int, values: list[str]) -> Report | None:
    match word, values:
        case "terminal", []:
            return TerminalOpened(number)
        case "started", [_]:  # its process id, which nothing uses
            return Started(number)
        case "failed", [error, stage] if _is_errno(error):
            return Failed(number, int(error), stage)
        case "exit", [status] if status.isdecimal() and _is_end(int(status)):
            return Exited(number, int(status))
    return None


def _is_errno(text: str) -> bool:
    return text.isdecimal() and int(text) <= _LAST_ERROR


def _is_end(status: int) -> bool:
    """Return whether a wait status is that of an ended process. Others are of a stopped process."""
    return status <= _LAST_STATUS and (os.WIFEXITED(status) or os.WIFSIGNALED(status))
