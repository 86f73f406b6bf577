"""Demand and supply, as the plan sees them."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from k8spilot.provisioner.limits import Limits
from k8spilot.provisioner.planning.resources import Resources


@dataclass(frozen=True, slots=True)
class SlotKind:
    """Equal slots that each pilot of a template has."""

    number: int
    """Number of such slots in a pilot."""
    room: Resources
    """Resources of each of them."""
    jobs: int
    """Most jobs that run in one of them at a time: 1, or the payload containers of a partitionable slot."""
    ad: str = ""
    """The ad that the startd would send, in HTCondor's long form."""


@dataclass(frozen=True, slots=True)
class Template:
    """A pod template and its limits."""

    name: str
    limits: Limits
    kinds: tuple[SlotKind, ...]
    version: str = ""
    """Digest of the pod in the template: pilots of an earlier version have another one."""

    @property
    def closure_version(self) -> str:
        """Digest of all that decides whether its pilots work and which jobs match them."""
        limits = self.limits
        rules = repr((limits.jobs, limits.slot_attributes, limits.gpu_properties))
        return f"{self.version}-{hashlib.sha256(rules.encode()).hexdigest()[:8]}"


@dataclass(frozen=True, slots=True)
class JobGroup:
    """Idle jobs of one user that no template can tell apart."""

    user: str
    idle: int
    wanted: Resources
    matches: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Names of the templates whose slots match, with the places of these slots in Template.kinds."""
    jobs: str = ""
    """Ids of some of them, for people."""
    mismatch: str = ""
    """Why no template matches: the template that is nearest, and the expression that is not true."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Idle jobs of the pool."""

    groups: Sequence[JobGroup]
    running: int = 0
    """Jobs that run anywhere in the pool and match a template."""
    missing: Sequence[str] = ()
    """Sentences about access points that did not answer: there may be more jobs than `groups` has."""
    is_complete: bool = True
    """Whether all jobs are known. An access point that has been away for long is taken for one without jobs."""


class PilotState(StrEnum):
    """State of a pilot, from its pod and the pool's collector."""

    PENDING = "pending"
    """The pilot container has not started."""
    STARTING = "starting"
    """The pilot runs, but was never seen in the pool."""
    IDLE = "idle"
    """The pool has its slots, and no job is in them."""
    BUSY = "busy"
    """At least one job is in it."""
    RETIRING = "retiring"
    """The pilot takes no more jobs: its lifetime is over, it drains, or its pod is being deleted."""
    LOST = "lost"
    """The pilot runs and was in the pool, but is not any more."""
    FAILING = "failing"
    """The pilot container ends again and again before the pool has its slots."""
    FAILED = "failed"
    """The pod has failed."""
    SUCCEEDED = "succeeded"
    """The pod has come to its end."""


EXISTING = frozenset(PilotState) - {PilotState.FAILED, PilotState.SUCCEEDED}
"""States of pilots that count for the limit of pilots."""
PENDING = frozenset({PilotState.PENDING, PilotState.STARTING, PilotState.FAILING})
"""States of pilots that count for the limit of pending pilots."""
NOT_STARTED = PENDING - {PilotState.STARTING}
"""States of pilots whose pilot container does not run. It may have begun to run since the plan was made."""
IN_POOL = frozenset({PilotState.IDLE, PilotState.BUSY})


@dataclass(frozen=True, slots=True)
class SlotSpace:
    """Space for jobs in a slot of a pilot."""

    kind: int
    """Place of the slot in Template.kinds."""
    room: Resources
    jobs: int


@dataclass(frozen=True, slots=True)
class Pilot:
    """A pilot of one template."""

    name: str
    uid: str
    template: str
    state: PilotState
    created: float
    """Creation of the pod, in seconds since the epoch."""
    started: float = 0.0
    """Latest start of its pilot container, in seconds since the epoch; 0 before the first one."""
    awaited_since: float = 0.0
    """Time since which it could come into the pool: it got its node then, or its container started again."""
    failing_since: float = 0.0
    """Time at which it was first seen failing; 0 if it does not."""
    resource_version: str = ""
    """resourceVersion of the pod."""
    template_version: str = ""
    """Version of the template that it was made from."""
    room: tuple[SlotSpace, ...] = ()
    """Space of a pilot in the pool. A pilot that is not in the pool yet counts with the space of its template."""
    trouble: str = ""
    """Why it is pending, failing or failed; empty if nothing is wrong."""
    trouble_since: float = 0.0
    """Time of its failure; of a pilot that is stuck, the time since when."""
    has_worked: bool = False
    """Whether it was in the pool, or ended for a reason that is not its own."""
    is_black_hole: bool = False
    is_ours: bool = True
    """Whether a provisioner made it. Pods of another scaler are counted, and left to it."""
    had_job: bool = False
    """Whether a job has run in it, as far as this provisioner has seen."""
    ended_jobs: int = 0
    """Jobs that ended in it lately."""
    busy_seconds: float = 0.0
    """Seconds for which jobs ran in its slots meanwhile; of several at a time, the sum."""


@dataclass(frozen=True, slots=True)
class TemplateClosure:
    """A template's record of failures. After a failure no pilots are made for a time that doubles."""

    failures: int = 0
    """Failures since the last success."""
    until: float = 0.0
    """No pilot is made before that time, in seconds since the epoch."""
    reason: str = ""
    last: float = 0.0
    """Time of the latest failure."""
    version: str = ""
    """Template.closure_version of the template that failed."""
    needs_job: bool = False
    """Whether only a pilot that gets a job opens the template, because the last ones came in vain."""
    pause: float = 0.0
    """Seconds from the failure to `until`."""

    @property
    def closed_at(self) -> float:
        """Time of the latest closure."""
        return self.until - self.pause


@dataclass(frozen=True, slots=True)
class Waiting:
    """Idle jobs that match a template."""

    jobs: int
    since: float
    """Time since which there have always been some, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class PilotSlot:
    """A static or partitionable slot in the pool's collector."""

    pod_uid: str
    has_gpus: bool
    running: int
    """Jobs in it: 0 or 1, or the dynamic slots of a partitionable slot."""
    is_draining: bool
    to_retire: float
    """Time from which it takes no jobs, in seconds since the epoch; 0 if it has none."""
    room: Resources
    """Resources that no job has."""
    is_black_hole: bool
    idle_claims: int = 0
    """Claims in `running` without a job: each is about to take one, which its access point still counts as idle."""
    ended_jobs: int = 0
    """Jobs that ended lately in all slots of the pilot (the startd has one figure for all)."""
    ended_seconds: float = 0.0
    """Seconds that these jobs took."""
    claimed_seconds: float = 0.0
    """Seconds for which this slot's claims last; of several at a time, the sum."""
