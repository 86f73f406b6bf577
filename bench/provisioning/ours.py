"""k8spilot's provisioner, with its real plan, budget and record of failures (src/k8spilot/provisioner)."""

from collections import Counter
from collections.abc import Iterable, Sequence

from bench.provisioning.demand import Size
from bench.provisioning.pods import Phase, Pod, Shape
from bench.provisioning.pool import Life
from bench.provisioning.world import Orders, Sight
from k8spilot.provisioner.limits import Limits
from k8spilot.provisioner.planning import scaling, template_closure
from k8spilot.provisioner.planning.model import (
    Demand,
    JobGroup,
    Pilot,
    PilotState,
    SlotKind,
    SlotSpace,
    Template,
    TemplateClosure,
)
from k8spilot.provisioner.planning.plan import plan
from k8spilot.provisioner.planning.resources import Resources

TURN_SECONDS = 5.0
"""Default of K8SPILOT_INTERVAL_SECONDS."""
LIFE = Life(idle_seconds=1800.0, seconds=336 * 3600.0)
"""Defaults of ACCEPT_IDLE_MINUTES and ACCEPT_JOBS_FOR_HOURS."""
VERSION = "1"


class Ours:
    """k8spilot's provisioner, in place of its controller."""

    def __init__(self, shapes: Sequence[Shape], limits: Limits, life: Life = LIFE) -> None:
        self.interval = TURN_SECONDS
        self.life = life
        self._shapes = {shape.name: shape for shape in shapes}
        self._templates = [_template(shape, limits) for shape in shapes]
        self._closures: dict[str, TemplateClosure] = {}
        self._names: dict[Pod, str] = {}
        self._pods: dict[str, Pod] = {}
        self._new: list[str] = []
        self._named: Counter[str] = Counter()
        """Numbers of chosen names, by their beginning."""

    def turn(self, sight: Sight) -> Orders:
        """Take a turn as Controller.observe does; return the pods to create and to delete."""
        self._name(sight.pods)
        if not sight.idle and all(pod.phase in (Phase.IN_POOL, Phase.ENDED) for pod in sight.pods):
            return Orders()  # the plan would be empty but for the objects of ended pods, which can wait
        pilots = [self._pilot(pod, sight.now) for pod in sight.pods]
        self._closures = {
            template.name: template_closure.judge(
                self._closures.get(template.name, TemplateClosure()),
                template,
                [pilot for pilot in pilots if pilot.template == template.name],
                sight.now,
            )
            for template in self._templates
        }
        made = plan(self._demand(sight), self._templates, pilots, closures=self._closures, now=sight.now)
        create = []
        for name, one in made.templates.items():
            create += [self._shapes[name]] * one.create
            self._new += self._free_names(name, one.create, sight.now)
        return Orders(create, [self._pods[pilot.name] for one in made.templates.values() for pilot, _ in one.delete])

    def _name(self, pods: Iterable[Pod]) -> None:
        """Give the pods of the last turn the names that it chose."""
        new = iter(self._new)
        for pod in pods:
            if pod not in self._names:
                name = self._names[pod] = next(new)
                self._pods[name] = pod
        self._new = []

    def _free_names(self, template: str, number: int, now: float) -> list[str]:
        prefix = f"{template}-{scaling.minute(now)}"
        first = self._named[prefix]
        self._named[prefix] += number
        return [f"{prefix}-{place:03d}" for place in range(first, first + number)]

    def _demand(self, sight: Sight) -> Demand:
        groups = [
            JobGroup(user, number, _resources(size), self._matches(size)) for (user, size), number in sight.idle.items()
        ]
        return Demand(groups, sight.running)

    def _matches(self, size: Size) -> dict[str, tuple[int, ...]]:
        return {
            name: (0,)
            for name, shape in self._shapes.items()
            if size == shape.size or (shape.jobs > 1 and _resources(size).fits_in(_resources(shape.size)))
        }

    def _pilot(self, pod: Pod, now: float) -> Pilot:
        """Return a pilot as supply.join does."""
        state = state_of(pod)
        room: tuple[SlotSpace, ...] = ()
        ended, busy = pod.recent(now) if pod.phase is Phase.IN_POOL else (0, 0.0)
        if pod.phase is Phase.IN_POOL and pod.claims < pod.shape.jobs:
            room = (SlotSpace(0, _resources(pod.free), pod.shape.jobs - pod.claims),)
        return Pilot(
            name=self._names[pod],
            uid=str(pod.number),
            template=pod.shape.name,
            state=state,
            created=pod.created,
            started=pod.started,
            template_version=VERSION,
            room=room,
            trouble=pod.trouble,
            trouble_since=pod.ended or pod.created,
            has_worked=True,
            ended_jobs=ended,
            busy_seconds=busy,
        )


_STATES = {
    Phase.WAITING: PilotState.PENDING,
    Phase.PULLING: PilotState.PENDING,
    Phase.STARTING: PilotState.STARTING,
    Phase.ENDED: PilotState.SUCCEEDED,
}


def state_of(pod: Pod) -> PilotState:
    """Return the state of a pilot as supply.py determines it."""
    if pod.phase is not Phase.IN_POOL:
        return _STATES[pod.phase]
    if pod.is_retiring:
        return PilotState.RETIRING
    return PilotState.BUSY if pod.claims else PilotState.IDLE


def _template(shape: Shape, limits: Limits) -> Template:
    return Template(shape.name, limits, (SlotKind(1, _resources(shape.size), shape.jobs),), VERSION)


def _resources(size: Size) -> Resources:
    return Resources(size.cpus, size.memory)
