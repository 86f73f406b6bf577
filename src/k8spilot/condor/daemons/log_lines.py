"""Lines of HTCondor's logs: their head, their severity, and what they say about the slot's jobs.

HTCondor writes a head before each message (dprintf.cpp): time, process ID, and the category of the message. The pilot's
own log has a time of its own, so the head is left out there. Text of a message can come from others: it decides about
the level of a line in the log, and about nothing else here.
"""

import logging
import re
import time
from dataclasses import dataclass
from typing import Final

_HEAD: Final = re.compile(
    r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d(?:\.\d+)? (?:\(pid:\d+\) )?(?:\((?P<category>D_[A-Z_]+)(?::\d)?(?:\|[A-Z_|]+)?\) )?"
)

_ERROR: Final = re.compile(
    r"ERROR\b|Failed to (?:start non-blocking|send non-blocking|send|start) |SECMAN: (?:FAILED|required authentication)"
    r"|SECMAN: .*\bfailing\b|Can't resolve collector |PERMISSION DENIED|AUTHENTICATE:\d+:|SECMAN:\d+:"
    r"|The STARTD .* died |CCBListener: (?:failed|no )"
)
"""Beginnings of messages about faults that HTCondor does not mark as errors."""
_OF_JOBS: Final = re.compile(
    r"slot\d+(?:_\d+)?(?:\[\d+\.\d+\])?: |Starter pid \d+ exited with status 0$|OfflineUniverses = \{"
    r"|Error: (?:can't find resource with ClaimId|problem finding resource for )"
    r"|condor_write\(\): Socket closed when trying to write |Buf::write\(\): condor_write\(\) failed$"
)
"""Messages that the startd logs for each job and claim."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a daemon's log."""

    message: str
    """The line without its head."""
    category: str = ""
    """HTCondor's category, such as D_ALWAYS or D_ERROR; empty if the line has none."""

    @classmethod
    def of(cls, line: str) -> "LogLine":
        """Return the parts of a line. A line without a head continues the message before it."""
        head = _HEAD.match(line)
        return cls(line) if head is None else cls(line[head.end() :], head["category"] or "")

    @property
    def level(self) -> int:
        """Return the level of the line in the pilot's log."""
        if _OF_JOBS.match(self.message):
            return logging.DEBUG
        if self.category == "D_ERROR" or _ERROR.match(self.message):
            return logging.ERROR
        return logging.INFO


_OWNER: Final = re.compile(r"(slot\d+(?:_\d+)?): Remote owner is (\S+)")
_JOB: Final = re.compile(r"(slot\d+(?:_\d+)?): Remote job ID is (\d+\.\d+)")
_STARTED: Final = re.compile(r"(slot\d+(?:_\d+)?): State change: claim-activation protocol successful, Starter (\d+)")
_STARTER_ENDED: Final = re.compile(r"Starter pid (\d+) (exited with status \d+|died on signal \d+).*")


class JobLines:
    """Summary of a job's lines in the startd's log: one line of our own at the end of the job's starter."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}
        """Owner of the claim, by slot."""
        self._jobs: dict[str, str] = {}
        """Job that the slot's claim was activated for last, by slot."""
        self._starters: dict[str, tuple[str, float]] = {}
        """Process ID of a starter -> words about its job, and its start (monotonic seconds)."""

    def summary(self, message: str) -> str:
        """Return a sentence if a message of the startd is the end of a job's starter, or an empty string."""
        if match := _OWNER.fullmatch(message):
            self._owners = {match[1]: match[2]}
        elif match := _JOB.fullmatch(message):
            self._jobs = {match[1]: match[2]}
        elif match := _STARTED.fullmatch(message):
            slot, starter = match.groups()
            words = f"Job {self._jobs.get(slot, 'unknown')} of {self._owners.get(slot, 'unknown')}"
            self._starters = {starter: (words, time.monotonic())}
        elif (match := _STARTER_ENDED.fullmatch(message)) and match[1] in self._starters:
            words, began = self._starters.pop(match[1])
            return f"{words} left the slot after {time.monotonic() - began:.0f} s: its starter {match[2]}."
        return ""
