"""The plan of a turn: which pilots are missing, which are surplus, and why. Pure.

Idle jobs are put into the space of pilots that exist, and then into new pilots as far as the limits allow. Users take
turns, one slot at a time, so that a user with many jobs does not take all new pilots. Pilots that exist are never
chosen for a job: HTCondor does that. The plan only counts what they will take.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from k8spilot.provisioner.planning import job_rate, scaling, template_closure
from k8spilot.provisioner.planning.demand import merged, smallest
from k8spilot.provisioner.planning.job_rate import COMING_SECONDS, FEW, JobRate
from k8spilot.provisioner.planning.model import (
    EXISTING,
    IN_POOL,
    PENDING,
    Demand,
    JobGroup,
    Pilot,
    PilotState,
    SlotSpace,
    Template,
    TemplateClosure,
)
from k8spilot.provisioner.planning.resources import Resources
from k8spilot.provisioner.planning.scaling import Budget

_COMING: Final = frozenset({PilotState.PENDING, PilotState.STARTING})
_WITHOUT_JOB: Final = _COMING | {PilotState.IDLE}
_ORDER: Final = (PilotState.BUSY, PilotState.IDLE, PilotState.STARTING, PilotState.PENDING)
"""Order in which the space of pilots is filled. So the unused pilots are pending ones, which can be deleted."""


@dataclass(slots=True)
class TemplatePlan:
    """Plan for one template, with the reasons."""

    template: Template
    create: int = 0
    delete: list[tuple[Pilot, str]] = field(default_factory=list)
    """Pilots to delete, with the reasons."""
    states: Counter[PilotState] = field(default_factory=Counter)
    idle_jobs: int = 0
    """Idle jobs that a pilot of the template could run."""
    lacking: int = 0
    """Pilots that are missing and that a limit forbids."""
    spare: int = 0
    """Pilots without a job that no idle job needs, beyond the least number that the operator wants."""
    limit: str = ""
    """Why idle jobs get no pilot now, such as that limit; empty if all have one."""
    trouble: str = ""
    """Why a pilot does not start; empty if none has trouble."""
    closure: TemplateClosure = field(default_factory=TemplateClosure)
    job_rate: JobRate = field(default_factory=JobRate)

    @property
    def wanted(self) -> int:
        """Number of pilots that the demand asks for: those that exist and are of use, and those that are missing."""
        return sum(self.states[state] for state in EXISTING) - self.spare + self.create + self.lacking


@dataclass(slots=True)
class TurnPlan:
    """Plan of a turn."""

    templates: dict[str, TemplatePlan]
    mismatches: list[JobGroup]
    """Jobs that no template can run."""
    others: dict[str, list[Pilot]] = field(default_factory=dict)
    """Pilots of templates that cannot be used."""
    ended: dict[str, list[tuple[Pilot, str]]] = field(default_factory=dict)
    """Ended pilots of such templates, which are to be deleted, with the reasons."""


@dataclass(slots=True)
class _Waiting:
    """Jobs of a group that have no space yet."""

    group: JobGroup
    left: int


@dataclass(slots=True)
class _Bin:
    """Space for jobs in one slot."""

    kind: int
    room: Resources
    jobs: int
    pilot: Pilot | None = None
    """The pilot that has it; None for one that is to be made, and for space that jobs leave when they end."""
    is_used: bool = False


def plan(
    demand: Demand,
    templates: Sequence[Template],
    pilots: Iterable[Pilot],
    closures: Mapping[str, TemplateClosure],
    now: float,
) -> TurnPlan:
    """Return what to do.

    Args:
        demand: idle jobs of the pool.
        templates: the operator's templates.
        pilots: pilots of all templates.
        closures: records of failures by template, after `template_closure.judge`.
        now: seconds since the epoch.
    """
    found = TurnPlan({}, [group for group in demand.groups if not group.matches])
    by_template: dict[str, list[Pilot]] = {template.name: [] for template in templates}
    for pilot in pilots:
        by_template.setdefault(pilot.template, []).append(pilot)
    groups = merged(demand.groups)
    packing = _Packing(now, smallest(groups))
    for template in templates:
        own = by_template[template.name]
        record = closures.get(template.name, TemplateClosure())
        one = found.templates[template.name] = TemplatePlan(
            template, closure=record, job_rate=job_rate.of(template, own)
        )
        one.states.update(pilot.state for pilot in own)
        one.trouble = next((f"{it.name}: {it.trouble}" for it in own if it.trouble and it.state in PENDING), "")
        one.idle_jobs = sum(group.idle for group in demand.groups if template.name in group.matches)
        packing.add(one, own, scaling.budget_of(template, own, record, now))
    packing.pack(groups)
    for name, one in found.templates.items():
        packing.keep_least(one)
        ours = [pilot for pilot in by_template[name] if pilot.is_ours]
        if demand.is_complete:
            one.spare = packing.spare(one, by_template[name])
            one.delete += packing.surplus(one, ours)
        one.delete += scaling.ended(one.template, ours, now)
    found.others = {name: own for name, own in by_template.items() if name not in found.templates}
    for name, own in found.others.items():
        if going := scaling.ended(None, [pilot for pilot in own if pilot.is_ours], now):
            found.ended[name] = going
    return found


class _Packing:
    """Idle jobs in the space of pilots, those that exist and new ones."""

    def __init__(self, now: float, smallest: Resources) -> None:
        """Initialize. No job wants less of anything than `smallest`: slots with less room are left out."""
        self._now = now
        self._smallest = smallest
        self._plans: dict[str, TemplatePlan] = {}
        self._bins: dict[str, list[_Bin]] = {}
        self._budgets: dict[str, Budget] = {}
        self._tried: dict[tuple[str, tuple[int, ...], Resources], int] = {}
        """Bins at the beginning of a template's list that have no space for such a job: none ever grows."""
        self._coming: dict[str, int] = {}
        """Pilots on their way to the pool, those that are planned included."""
        self._needs = Counter[str]()
        """Jobs that need pilots on their way, or more of them, by template."""

    def add(self, one: TemplatePlan, pilots: Sequence[Pilot], allowed: Budget) -> None:
        """Add a template and its pilots."""
        template = one.template
        self._plans[template.name] = one
        self._budgets[template.name] = allowed
        youngest = self._now - COMING_SECONDS
        self._coming[template.name] = sum(pilot.state in _COMING and pilot.created > youngest for pilot in pilots)
        bins = self._bins[template.name] = []
        is_closed = self._now < one.closure.until
        for state in _ORDER:
            for pilot in sorted((pilot for pilot in pilots if pilot.state is state), key=lambda pilot: pilot.created):
                if not pilot.is_black_hole and not (is_closed and template_closure.is_stuck(pilot, self._now)):
                    times = one.job_rate.each if pilot.state in IN_POOL else 1
                    for space in _space(template, pilot):
                        if not self._smallest.fits_in(space.room):
                            continue
                        bins.extend(_Bin(space.kind, space.room, space.jobs, pilot) for _ in range(times))
        for kind in template.kinds[:1]:
            bins.extend(_Bin(0, kind.room, 1) for _ in range(one.job_rate.taken))

    def pack(self, groups: Sequence[JobGroup]) -> None:
        """Find space for the jobs of all groups, users taking turns: in pilots that exist, and then in new ones."""
        waiting = [_Waiting(group, group.idle) for group in groups]
        _take_turns(waiting, self._place)
        left = [one for one in waiting if one.left]
        for name in self._plans:
            self._needs[name] += sum(one.left for one in left if name in one.group.matches)
        _take_turns(left, self._place_in_new)
        for one in left:
            if one.left:
                self._note_limit(one)
                self._count_lacking(one)

    def keep_least(self, one: TemplatePlan) -> None:
        """Create pilots up to the least number that the operator wants."""
        missing = one.template.limits.min_pilots - _alive(one) - one.create
        allowed = self._budgets[one.template.name]
        for _ in range(max(missing, 0)):
            if allowed.left <= 0:
                one.limit = allowed.limit
                break
            allowed.left -= 1
            one.create += 1

    def spare(self, one: TemplatePlan, pilots: Sequence[Pilot]) -> int:
        """Return the number of pilots without a job that no idle job needs."""
        return min(len(self._unused(one, pilots, _WITHOUT_JOB)), _beyond_least(one))

    def surplus(self, one: TemplatePlan, pilots: Sequence[Pilot]) -> list[tuple[Pilot, str]]:
        """Return the pending pilots that no job needs."""
        unused = self._unused(one, pilots, frozenset({PilotState.PENDING}))
        return scaling.surplus(unused, one.idle_jobs, _beyond_least(one), self._now)

    def _unused(self, one: TemplatePlan, pilots: Sequence[Pilot], states: Collection[PilotState]) -> list[Pilot]:
        """Return the pilots in some states that no job needs."""
        used = {id(space.pilot) for space in self._bins[one.template.name] if space.is_used}
        return [pilot for pilot in pilots if pilot.state in states and id(pilot) not in used]

    def _place(self, group: JobGroup, most: int) -> int:
        """Put jobs of a group into one slot of the pilots that exist or are planned; return how many."""
        for template in self._choices(group):
            if placed := self._fill(template, group, most):
                return placed
        return 0

    def _place_in_new(self, group: JobGroup, most: int) -> int:
        """Put jobs of a group into one slot, of a new pilot if need be; return how many."""
        if placed := self._place(group, most):
            return placed
        for template in self._choices(group):
            if self._is_under_way(template, group):
                return 0
            if self._open(template, group) and (placed := self._fill(template, group, most)):
                return placed
        return 0

    def _is_under_way(self, template: Template, group: JobGroup) -> bool:
        """Return whether the pilots on their way suffice for now. Once they are in the pool, a turn may plan more."""
        slots = self._coming[template.name] * _fits(template, group)
        return (
            slots > 0 and slots >= FEW + self._needs[template.name] // self._plans[template.name].job_rate.jobs_per_slot
        )

    def _choices(self, group: JobGroup) -> list[Template]:
        """Return the templates that could run jobs of a group, the preferred one first."""
        found = [self._plans[name].template for name in group.matches if name in self._plans]
        return sorted(found, key=lambda template: (-template.limits.priority, template.name))

    def _fill(self, template: Template, group: JobGroup, most: int) -> int:
        """Put jobs into the first slot with space in the pilots of a template; return how many."""
        bins, kinds = self._bins[template.name], group.matches[template.name]
        key = (template.name, kinds, group.wanted)
        for place in range(self._tried.get(key, 0), len(bins)):
            space = bins[place]
            if space.kind in kinds and (number := group.wanted.times_in(space.room, min(space.jobs, most))):
                space.room = space.room.minus(group.wanted, number)
                space.jobs -= number
                space.is_used = True
                if space.pilot is not None and space.pilot.state in _COMING:
                    self._needs[template.name] += number
                self._tried[key] = place
                return number
        self._tried[key] = len(bins)
        return 0

    def _open(self, template: Template, group: JobGroup) -> bool:
        """Plan one more pilot if a job of the group fits in it and the limits allow it."""
        allowed = self._budgets[template.name]
        if allowed.left <= 0 or not _fits(template, group):
            return False
        allowed.left -= 1
        self._plans[template.name].create += 1
        self._coming[template.name] += 1
        self._bins[template.name] += [_Bin(space.kind, space.room, space.jobs) for space in _whole(template)]
        return True

    def _note_limit(self, waiting: _Waiting) -> None:
        """Record which limits are in the way of these jobs."""
        for template in self._choices(waiting.group):
            if not _fits(template, waiting.group):
                continue
            one = self._plans[template.name]
            if self._is_under_way(template, waiting.group):
                coming = self._coming[template.name]
                one.limit = f"{coming} pilots are on their way, and more follow for jobs that then still wait"
                break
            if self._budgets[template.name].left <= 0:
                one.limit = self._budgets[template.name].limit

    def _count_lacking(self, waiting: _Waiting) -> None:
        """Count the pilots of the preferred template that these jobs lack, as if it had no limits."""
        template = next((one for one in self._choices(waiting.group) if _fits(one, waiting.group)), None)
        if template is None or self._is_under_way(template, waiting.group):
            return
        one = self._plans[template.name]
        if sum(kind.number * kind.jobs for kind in template.kinds) == 1:  # nothing is shared
            one.lacking += waiting.left
            return
        while waiting.left:
            if not (placed := self._fill(template, waiting.group, waiting.left)):
                one.lacking += 1
                self._bins[template.name] += [_Bin(space.kind, space.room, space.jobs) for space in _whole(template)]
            waiting.left -= placed


def _take_turns(waiting: Iterable[_Waiting], place: Callable[[JobGroup, int], int]) -> None:
    """Let users place the jobs of one slot after each other, until nothing more can be placed."""
    queues: dict[str, deque[_Waiting]] = {}
    for one in waiting:
        queues.setdefault(one.group.user, deque()).append(one)
    turns = deque(queues.values())
    while turns:
        queue = turns.popleft()
        placed = place(queue[0].group, queue[0].left)
        queue[0].left -= placed
        if not placed or not queue[0].left:
            queue.popleft()
        if queue:
            turns.append(queue)


def _alive(one: TemplatePlan) -> int:
    """Return the number of pilots that take jobs, or will."""
    return sum(one.states[state] for state in _ORDER)


def _beyond_least(one: TemplatePlan) -> int:
    """Return how many pilots there are beyond the least number that the operator wants."""
    return max(_alive(one) - one.template.limits.min_pilots, 0)


def _fits(template: Template, group: JobGroup) -> int:
    """Return how many jobs of a group fit in a new pilot."""
    return sum(
        group.wanted.times_in(kind.room, kind.jobs) * kind.number
        for place, kind in enumerate(template.kinds)
        if place in group.matches[template.name]
    )


def _space(template: Template, pilot: Pilot) -> Sequence[SlotSpace]:
    return pilot.room if pilot.state in IN_POOL else _whole(template)


def _whole(template: Template) -> list[SlotSpace]:
    """Return the space of a pilot without jobs."""
    kinds = enumerate(template.kinds)
    return [SlotSpace(place, kind.room, kind.jobs) for place, kind in kinds for _ in range(kind.number)]
