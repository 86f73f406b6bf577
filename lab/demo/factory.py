"""`make demo-factory`: pilots come for a hundred jobs of three kinds, and go when no job waits."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from lab import jobs, pilot_picture
from lab.api import Lab
from lab.factory import Factory, TemplateOf, factory
from lab.jobs import Jobs
from lab.patience import scaled
from lab.pilot_samples import Sample

NAMESPACE: Final = "demo-factory"
PICTURE: Final = Path("build/demo-factory.svg")
IDLE_MINUTES: Final = 2.0
"""Idle time after which a pilot ends; HTCondor looks every two minutes."""
LIMIT_S: Final = scaled(900.0)
_LOOK_S: Final = 1.0
_ENDED: Final = frozenset({"Succeeded", "Failed"})


def _template(name: str, most: int, *, cpus: int, memory: int, priority: int = 0) -> TemplateOf:
    """A template of pilots whose payload container has that size."""
    requests = {"cpu": "100m", "memory": "64Mi", "ephemeral-storage": "200Mi"}
    size = {"limits": {"cpu": str(cpus), "memory": f"{memory}Mi", "ephemeral-storage": "1Gi"}, "requests": requests}
    patch = {"op": "replace", "path": "/spec/jobTemplate/spec/template/spec/initContainers/1/resources", "value": size}
    limits = {"max-pilots": str(most), "max-new-per-minute": "100", "priority": str(priority)}
    return TemplateOf(name, limits, {"ACCEPT_IDLE_MINUTES": str(IDLE_MINUTES)}, [patch])


TEMPLATES: Final = {
    "small": _template("small", 4, cpus=1, memory=256, priority=1),
    "wide": _template("wide", 2, cpus=4, memory=512),
    "large": _template("large", 2, cpus=1, memory=1024),
}
KINDS: Final[Mapping[str, tuple[int, Mapping[str, str]]]] = {
    "small": (60, {"request_memory": "100M"}),
    "wide": (20, {"request_cpus": "4", "request_memory": "200M"}),
    "large": (20, {"request_memory": "700M"}),
}
"""Numbers of the jobs of each kind, and what they request. Each kind has a template that suits it best."""


@dataclass
class Story:
    """The course of the demonstration."""

    samples: list[Sample] = field(default_factory=list)
    most: Counter[str] = field(default_factory=Counter)
    """Most pilots at a time, by template."""
    first_pilot: float = 0.0
    """Seconds from the submission to the first pilot's pod."""
    last_job: float = 0.0
    """Seconds from the submission to the end of the last job."""
    last_pilot: float = 0.0
    """Seconds from the submission to the end of the last pilot."""
    made: int = 0
    """Pilots in all."""
    faults: list[str] = field(default_factory=list)


def main() -> int:
    """Bring the lab up, deploy a factory, and show its pilots. Return 0 if all jobs have run and all pilots have ended.

    Raises LabError.
    """
    console = Console(highlight=False)
    lab = Lab.up()
    with factory(lab, NAMESPACE) as site:
        with lab.progress, lab.progress.step("deploy three pod templates and the provisioner"):
            site.apply(*TEMPLATES.values())
            site.provisioner()
        story = run(site, lambda words: console.print(words, markup=False, soft_wrap=True))
    pilot_picture.draw(PICTURE, "100 jobs of three kinds, and their pilots", {"": story.samples}, "s")
    console.print(f"The first pilot came {story.first_pilot:.0f} s after the jobs, {story.made} in all.")
    console.print(f"The last job ended after {story.last_job:.0f} s, the last pilot after {story.last_pilot:.0f} s.")
    console.print(f"Most pilots at a time: {dict(sorted(story.most.items()))}. The picture is in {PICTURE}.")
    for fault in story.faults:
        console.print(f"✗ {fault}", style="red", markup=False, soft_wrap=True)
    return 1 if story.faults else 0


def run(site: Factory, say: Callable[[str], None] = lambda _: None) -> Story:
    """Submit the jobs, and follow them and their pilots until all pilots have ended."""
    story, told = Story(), ""
    with ExitStack() as parts:
        began = time.monotonic()
        submitted = [_submit(site, kind) for kind in KINDS]
        for one in submitted:
            parts.callback(one.remove)
        while (now := time.monotonic() - began) < LIMIT_S:
            pods = site.pilots()
            sample = _sample(now, pods, submitted)
            _note(story, sample, pods)
            if (words := _next(site)) != told:
                told = words
                say(f"{now:4.0f} s  {words}")
            if not sample.idle + sample.running and not _alive(pods):
                story.faults += [words for one in submitted for words in _troubles(one)]
                return story
            time.sleep(_LOOK_S)
    story.faults.append(f"jobs or pilots are left after {LIMIT_S:.0f} s")
    return story


def _submit(site: Factory, kind: str) -> Jobs:
    number, requests = KINDS[kind]
    commands = {
        "container_image": f"docker://{site.lab.registry}/busybox",
        "executable": "/bin/sh",
        "arguments": "\"-c 'sleep 5'\"",
        "transfer_output_files": '""',
        "request_disk": "20M",
        "requirements": f'TARGET.K8SNamespace == "{site.namespace}"',
        **requests,
    }
    return jobs.submit(site.lab, "alice", commands, count=number)


def _troubles(submitted: Jobs) -> list[str]:
    """Return why jobs have not ended by themselves, a sentence for each."""
    return [
        f"job {submitted.cluster}.{event.proc}: {jobs.words(event)}"
        for event in submitted.events
        if event.kind in ("JobAbortedEvent", "JobHeldEvent")
    ]


def _alive(pods: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [pod for pod in pods if pod["status"].get("phase") not in _ENDED]


def _sample(now: float, pods: Sequence[Mapping[str, Any]], submitted: Sequence[Jobs]) -> Sample:
    """Count the pods by their own status, and the jobs by their event logs."""
    states: Counter[str] = Counter()
    for one in submitted:
        one.look()
        last = {event.proc: event.kind for event in one.events if event.kind in _STATES}
        states.update(_STATES[kind] for kind in last.values())
    alive = _alive(pods)
    ready = sum(_is_ready(pod) for pod in alive)
    running, total = states["running"], sum(one.count for one in submitted)
    idle = total - running - states["over"]
    return Sample(now, idle, running, len(alive) - ready, max(ready - running, 0), min(running, ready))


_STATES: Final = {
    "ExecuteEvent": "running",
    "JobEvictedEvent": "idle",
    "ShadowExceptionEvent": "idle",
    "JobTerminatedEvent": "over",
    "JobAbortedEvent": "over",
}


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == "True"


def _note(story: Story, sample: Sample, pods: Sequence[Mapping[str, Any]]) -> None:
    """Record the times, the largest numbers of pilots, and faults."""
    story.samples.append(sample)
    alive = Counter(pod["metadata"]["labels"]["k8spilot/template"] for pod in _alive(pods))
    story.most |= alive
    story.made = max(story.made, len(pods))
    if alive and not story.first_pilot:
        story.first_pilot = sample.time
    if sample.idle + sample.running:
        story.last_job = sample.time
    if alive:
        story.last_pilot = sample.time
    for name, number in alive.items():
        limit = int(TEMPLATES[name].annotations["max-pilots"])
        fault = f"template {name} has more than {limit} pilots at a time"
        if number > limit and fault not in story.faults:
            story.faults.append(fault)


def _next(site: Factory) -> str:
    """The provisioner's next step for each template."""
    templates = site.status().get("templates", {})
    return "; ".join(f"{name}: {one['next']}" for name, one in sorted(templates.items()))
