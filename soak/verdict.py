"""The verdict on the jobs, from their event logs and their own output alone. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from lab.patience import scaled
from soak.blame import Run
from soak.ledger import Life

STUCK_SECONDS = scaled(120.0)
"""Seconds on this machine after which a job without any event is stuck, if it ran or could have run."""
_OFTEN = 5
_BEAT_SECONDS = 3.0
"""Seconds. A run that still reports this long after the next run began has run at the same time."""


@dataclass(frozen=True)
class Story:
    """One job, as its user sees it."""

    name: str
    events: Sequence[tuple[str, float]]
    """Events in order: HTCondor's name of the event's class, and its time in seconds."""
    code: int | None = None
    expected: int | None = None
    """Exit code that is expected."""
    files: bool = True
    """Whether the returned files are right."""
    detail: str = ""
    """Description of a wrong file."""
    is_large: bool = False
    """Whether the job requests more than a payload container's part of the pod: smaller jobs can keep it waiting."""
    broken_runs: Sequence[Run] = ()
    """Starts of the job that were followed by another start."""


@dataclass
class Verdict:
    """Verdict on all jobs."""

    submitted: int = 0
    right: int = 0
    wrong: list[str] = field(default_factory=list)
    """Jobs that ended with a wrong result."""
    lost: list[str] = field(default_factory=list)
    """Jobs that did not end by themselves."""
    doubled: list[str] = field(default_factory=list)
    """Jobs that ran twice at one time, or ended twice."""
    stuck: list[str] = field(default_factory=list)
    crowded_out: list[str] = field(default_factory=list)
    """Large jobs that waited so long for a match because HTCondor gave claims of their size to smaller jobs of their
    user."""
    again: int = 0
    """Number of jobs that were started more than once, by HTCondor's own rules."""
    again_unhit: list[str] = field(default_factory=list)
    """Starts of jobs that ended early although no fault hit their payload containers or their pods."""
    reasons: dict[str, int] = field(default_factory=dict)
    """Numbers of events that do not occur in the life of an undisturbed job."""

    @property
    def good(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.wrong or self.lost or self.doubled or self.stuck or self.again_unhit)


_BACK_IN_QUEUE = {"JobEvictedEvent", "ShadowExceptionEvent", "JobReconnectFailedEvent"}
_MATCHED = {"FileTransferEvent", "ExecuteEvent"}
_USUAL = {"SubmitEvent", "FileTransferEvent", "ExecuteEvent", "JobImageSizeEvent", "JobTerminatedEvent"}


def judge(stories: Sequence[Story], lives: Mapping[str, Life]) -> Verdict:
    """Judge all jobs."""
    verdict, reasons = Verdict(submitted=len(stories)), Counter[str]()
    for story in stories:
        kinds = Counter(kind for kind, _ in story.events)
        reasons.update({kind: number for kind, number in kinds.items() if kind not in _USUAL})
        verdict.again += kinds["ExecuteEvent"] > 1
        ended = kinds["JobTerminatedEvent"]
        runs = sorted((life for life in lives.values() if life.job == story.name), key=lambda life: life.began)
        if ended > 1 or any(one.last > other.began + _BEAT_SECONDS for one, other in pairwise(runs)):
            verdict.doubled.append(story.name)
        stuck, crowded_out = _waits(story)
        verdict.stuck += stuck[:1]
        verdict.crowded_out += crowded_out[:1]
        if ended == 0:
            verdict.lost.append(f"{story.name}: {', '.join(kind for kind, _ in story.events)}")
        elif story.code != story.expected or not story.files:
            verdict.wrong.append(
                f"{story.name}: {story.code} for {story.expected}, files right: {story.files} {story.detail}".rstrip()
            )
        else:
            verdict.right += 1
    verdict.reasons = dict(reasons.most_common())
    return verdict


def _waits(story: Story) -> tuple[list[str], list[str]]:
    """Describe the times without an event that were too long, after the job had begun for the first time.

    Returns:
        Those in which the job was stuck, and those in which it is large and waited for a match.
    """
    stuck: list[str] = []
    crowded_out: list[str] = []
    begun = False
    for (kind, at), (following, then) in pairwise(story.events):
        begun = begun or kind == "ExecuteEvent"
        if begun and then - at > STUCK_SECONDS:
            in_queue = kind in _BACK_IN_QUEUE and following in _MATCHED
            words = f"{story.name}: {then - at:.0f} s between {kind} and {following}"
            (crowded_out if story.is_large and in_queue else stuck).append(words)
    return stuck, crowded_out


def unmade(missed: Sequence[str], made: Sequence[str]) -> list[str]:
    """Return the names of faults that often had no object and were never made: they look for the wrong thing."""
    return [name for name, times in Counter(missed).items() if times >= _OFTEN and name not in made]
