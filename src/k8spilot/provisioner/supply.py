"""Pilots that exist: their pods, joined with their slots in the pool's collector.

Pods are bare ones and belong to no Job: whether another pilot follows one that ended depends on the demand, and not on
how it ended; and a Job would be a second object and three more writes for each pilot. Their owner is the template,
so that its deletion ends its pilots, and `kubectl drain` takes them as a controller's.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from k8spilot.provisioner.planning.model import EXISTING, IN_POOL, Pilot, PilotSlot, PilotState, SlotSpace, Template
from k8spilot.settings import ENGINE, PILOT

Json = dict[str, Any]

TEMPLATE: Final = "k8spilot/template"
"""Label of pilots: the name of their template."""
VERSION: Final = "k8spilot/template-version"
"""Annotation of pilots: the version of the template that they were made from."""
_OURS: Final = frozenset({"install", PILOT, ENGINE})
"""Containers whose troubles are the pilot's. Those of the payload containers are their jobs', once the pilot runs."""
_ORDINARY: Final = frozenset({"", "PodInitializing", "ContainerCreating"})
_WORKED_SECONDS: Final = 600.0
"""Run time of a pilot after which its failure does not count against its template."""
_FEW_LOST: Final = 2
_FORGOTTEN_SECONDS: Final = 300.0
"""Time after which each startd has sent its ad again (condor/configuration/values.py, UPDATE_SECONDS)."""
_JOINED_SECONDS: Final = 120.0
"""Age of a pilot that certainly was in the pool, if an earlier process has seen nothing wrong with it."""
_CRASHES: Final = 3
"""Ends of the pilot container before it was in the pool, after which it counts as failing."""


@dataclass(frozen=True, slots=True)
class PilotPod:
    """Facts of a pilot's pod. A pod has some 15 KiB of JSON, and there may be ten thousand of them."""

    name: str
    uid: str
    resource_version: str
    template: str
    template_version: str
    created: float
    scheduled: float
    """Time at which it got its node; 0 before."""
    phase: str
    is_deleted: bool
    started: float
    """Latest start of the pilot container; 0 if it does not run."""
    crashes: int
    trouble: str
    trouble_since: float
    was_disrupted: bool
    """Whether Kubernetes ended it for a reason that is not its own: preemption, eviction, a lost node."""
    worked_seconds: float
    """Time for which its pilot container ran, if that has ended."""
    is_ours: bool = True
    """Whether a provisioner made it. Another scaler's pods may have the label so that they count."""


@dataclass(slots=True)
class History:
    """Uids of pods, from all turns."""

    began: float = 0.0
    """Time from which it knows what pods do, in seconds since the epoch."""
    seen: dict[str, float] = field(default_factory=dict)
    """Uids of pods that have been in the pool, and when they were seen there last."""
    worked: set[str] = field(default_factory=set)
    """Uids of pods in which a job has run."""
    failing: dict[str, float] = field(default_factory=dict)
    """Uids of pods that end again and again, and when that was noticed."""

    def keep(self, uids: set[str]) -> None:
        """Forget all other pods."""
        self.seen = {uid: when for uid, when in self.seen.items() if uid in uids}
        self.worked &= uids
        self.failing = {uid: when for uid, when in self.failing.items() if uid in uids}


def pod_facts(pod: Json) -> PilotPod:
    """Return the facts of a pod, as the API server sends it."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    by_name = {one["name"]: one for one in containers}
    pilot = by_name.get(PILOT) or {}
    running = (pilot.get("state") or {}).get("running") or {}
    started = _time(running.get("startedAt"))
    phase = status.get("phase") or "Pending"
    created = _time(metadata.get("creationTimestamp"))
    scheduling = _condition(pod, "PodScheduled")
    scheduled = _time(scheduling.get("lastTransitionTime")) if scheduling.get("status") == "True" else 0.0
    trouble, since = _trouble(pod, by_name, has_run=bool(started or pilot.get("restartCount")))
    return PilotPod(
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata.get("resourceVersion", ""),
        template=(metadata.get("labels") or {}).get(TEMPLATE, ""),
        template_version=(metadata.get("annotations") or {}).get(VERSION, ""),
        created=created,
        scheduled=scheduled,
        phase=phase,
        is_deleted="deletionTimestamp" in metadata,
        started=started,
        crashes=int(pilot.get("restartCount") or 0),
        trouble=trouble,
        trouble_since=since or scheduled or created,
        was_disrupted=_condition(pod, "DisruptionTarget").get("status") == "True",
        worked_seconds=_worked(pilot),
        is_ours=VERSION in (metadata.get("annotations") or {}),
    )


def join(
    pods: Iterable[PilotPod],
    templates: Mapping[str, Template],
    slots: Iterable[PilotSlot],
    history: History,
    now: float,
) -> Iterator[Pilot]:
    """Yield the pilots.

    Args:
        pods: their pods.
        templates: the templates by name.
        slots: their slots in the pool.
        history: what is known of the pods from earlier turns. What the slots tell is added.
        now: seconds since the epoch.
    """
    by_pod: dict[str, list[PilotSlot]] = {}
    for slot in slots:
        by_pod.setdefault(slot.pod_uid, []).append(slot)
    history.seen |= dict.fromkeys(by_pod, now)
    history.worked.update(slot.pod_uid for own in by_pod.values() for slot in own if slot.running or slot.ended_jobs)
    for pod in pods:
        template, own = templates.get(pod.template), by_pod.get(pod.uid, [])
        yield _pilot(pod, template=template, slots=own, history=history, now=now)


def _pilot(pod: PilotPod, template: Template | None, slots: Sequence[PilotSlot], history: History, now: float) -> Pilot:
    """Return the pilot of a pod and its slots."""
    is_older = pod.created < history.began  # its earlier life is not known
    if is_older and 0 < pod.started < history.began - _JOINED_SECONDS:
        history.seen.setdefault(pod.uid, history.began)
    seen = history.seen.get(pod.uid)
    state = _state(pod, slots, now, seen=seen)
    return Pilot(
        name=pod.name,
        uid=pod.uid,
        template=pod.template,
        state=state,
        created=pod.created,
        started=pod.started,
        awaited_since=pod.started if seen is not None else pod.scheduled,
        failing_since=history.failing.setdefault(pod.uid, now) if state is PilotState.FAILING else 0.0,
        resource_version=pod.resource_version,
        template_version=pod.template_version,
        room=tuple(_room(template, slots)),
        trouble=pod.trouble,
        trouble_since=pod.trouble_since,
        has_worked=pod.uid in history.seen
        or pod.was_disrupted
        or pod.worked_seconds > _WORKED_SECONDS
        or (is_older and state not in EXISTING),
        is_ours=pod.is_ours,
        had_job=pod.uid in history.worked or is_older,
        is_black_hole=any(slot.is_black_hole for slot in slots),
        ended_jobs=max((slot.ended_jobs for slot in slots), default=0),
        busy_seconds=max(
            max((slot.ended_seconds for slot in slots), default=0.0), sum(slot.claimed_seconds for slot in slots)
        ),
    )


class CollectorMemory:
    """Notices that the collector has forgotten pilots: one that was started again has no slots for some minutes."""

    def __init__(self) -> None:
        self._since: float | None = None

    def fault(self, pilots: Sequence[Pilot], now: float) -> str:
        """Return why the pilots' slots are not known, as a sentence; empty if they are."""
        lost = sum(pilot.state is PilotState.LOST for pilot in pilots)
        in_pool = sum(pilot.state in IN_POOL for pilot in pilots)
        if lost < _FEW_LOST or lost < in_pool:
            self._since = None
            return ""
        self._since = now if self._since is None else self._since
        if not 0 <= now - self._since < _FORGOTTEN_SECONDS:
            return ""
        return (
            f"the collector no longer has the slots of {lost} of {lost + in_pool} pilots, and may have been started "
            "again, so that nothing is changed for some minutes"
        )


def _state(pod: PilotPod, slots: Sequence[PilotSlot], now: float, *, seen: float | None) -> PilotState:
    if pod.phase in ("Failed", "Succeeded"):
        return PilotState.FAILED if pod.phase == "Failed" else PilotState.SUCCEEDED
    if pod.is_deleted or any(slot.is_draining or 0 < slot.to_retire < now for slot in slots):
        return PilotState.RETIRING
    if slots:
        return PilotState.BUSY if any(slot.running for slot in slots) else PilotState.IDLE
    if seen is not None:  # a container that starts again comes back into the pool
        return PilotState.LOST if 0 < pod.started <= seen else PilotState.STARTING
    if pod.crashes >= _CRASHES and not pod.started:
        return PilotState.FAILING
    return PilotState.STARTING if pod.started or pod.crashes else PilotState.PENDING


def _room(template: Template | None, slots: Sequence[PilotSlot]) -> Iterator[SlotSpace]:
    kinds = {kind.room.gpus > 0: place for place, kind in enumerate(template.kinds)} if template is not None else {}
    for slot in slots:
        place = kinds.get(slot.has_gpus)
        if template is None or place is None:
            continue
        kind = template.kinds[place]
        if (left := kind.jobs - slot.running) > 0:
            yield SlotSpace(place, slot.room, left)
        for _ in range(min(slot.idle_claims, kind.jobs)):
            yield SlotSpace(place, kind.room, 1)


def _worked(pilot: Json) -> float:
    end = (pilot.get("state") or {}).get("terminated") or {}
    return _time(end.get("finishedAt")) - _time(end.get("startedAt")) if end else 0.0


def _trouble(pod: Json, by_name: Mapping[str, Json], *, has_run: bool) -> tuple[str, float]:
    """Return why the pod does not run, or why it failed, and since when; an empty text if nothing is wrong."""
    status = pod.get("status") or {}
    if status.get("phase") == "Failed":
        ends = [end for one in by_name.values() if (end := (one.get("state") or {}).get("terminated"))]
        pilot = ((by_name.get(PILOT) or {}).get("state") or {}).get("terminated") or {}
        words = status.get("message") or pilot.get("message") or pilot.get("reason") or status.get("reason") or ""
        times = [_time(end.get("finishedAt")) for end in ends]
        return _line(words) or "it says no reason", max(times, default=0.0)
    if status.get("phase") == "Succeeded":
        ends = [(one.get("state") or {}).get("terminated") or {} for one in by_name.values()]
        return "", max((_time(end.get("finishedAt")) for end in ends), default=0.0)
    scheduling = _condition(pod, "PodScheduled")
    if scheduling.get("status") == "False":
        words = _line(f"{scheduling.get('reason')}: {scheduling.get('message')}")
        return words, _time(scheduling.get("lastTransitionTime"))
    for name, one in by_name.items():
        waiting = (one.get("state") or {}).get("waiting") or {}
        if (name in _OURS or not has_run) and waiting.get("reason", "") not in _ORDINARY:
            last = (one.get("lastState") or {}).get("terminated") or {}
            words = f"{waiting.get('reason')}: {last.get('message') or waiting.get('message') or ''}"
            return _line(f"the container {name} waits: {words}"), _time(last.get("finishedAt"))
    return "", 0.0


def _condition(pod: Json, kind: str) -> Json:
    """Return a condition of the pod; empty if it has none of that type."""
    conditions: list[Json] = (pod.get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one.get("type") == kind), {})


def _line(text: str) -> str:
    return " ".join(text.split())[:500]


def _time(text: str | None) -> float:
    """Return a time of the API server in seconds since the epoch; 0 without one."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0
