"""Faults of one of several payload containers. Jobs in the other ones are its neighbours, and must run on."""

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from lab import pod_faults
from lab.errors import LabError, NothingToHitError
from lab.faulty import BLOBS
from lab.faulty import Fault as RegistryFault
from lab.jobs import BAD_NEWS, Event, Jobs, submit
from lab.oci import Entry, OciImage, Pusher, layer, shell
from lab.pod_processes import payload_init
from lab.registries import faulty_registry
from soak.faults import CLIENT, NODE, STARTER, WHOLE_POD, Fault, Make, change_image, vacate
from soak.target import SLOT, Target

_FOUND_SECONDS: Final = 40.0
"""Time limit until a job that makes a fault has a slot and does its damage."""
_HUNGRY: Final = "head -c 400000000 /dev/zero | tail -c 400000000 | wc -c; sleep 5"
_SUICIDE: Final = "kill -KILL -1; sleep 60"


def _kill(pattern: str) -> Make:
    def make(pod: Target, draw: random.Random) -> int:
        number, process = pod.chosen_process(pattern, draw)
        _signal(pod, process, signal.SIGKILL)
        return number

    return make


def _signal(pod: Target, process: int, number: signal.Signals) -> None:
    try:
        os.kill(process, number)
    except ProcessLookupError as error:
        raise NothingToHitError(f"the process of pod {pod.name} that was to be hit has just ended") from error


def _end_payload_init(pod: Target, draw: random.Random) -> int:
    number = pod.any_number(draw)
    process = payload_init(pod.lab, pod.name, pod.container(number))
    _signal(pod, process, draw.choice((signal.SIGKILL, signal.SIGTERM)))
    return number


def _freeze_payload_init(pod: Target, draw: random.Random) -> int:
    number = pod.any_number(draw)
    with pod_faults.payload_init_frozen(pod.lab, pod.name, pod.container(number)):
        time.sleep(draw.uniform(1, 8))
    return number


def _change_image(pod: Target, draw: random.Random) -> int:
    number = pod.any_number(draw)
    change_image(pod, number)
    return number


def _vacate(pod: Target, draw: random.Random) -> int:
    number, _ = pod.chosen_process(STARTER, draw)
    vacate(pod, pod.slot(number))
    return number


@contextmanager
def _job(pod: Target, image: str, script: str) -> Iterator[Jobs]:
    """Submit a job of another user to the pod."""
    commands = {
        "container_image": f"docker://{image}",
        "executable": "job.sh",
        "transfer_executable": "true",
        "transfer_output_files": '""',
        "priority": "100",
    }
    with submit(pod.lab, "bob", commands, files={"job.sh": f"#!/bin/sh\n{script}\n"}, pilot=pod.name) as jobs:
        yield jobs


def _wait(jobs: Jobs, *kinds: str) -> Event:
    try:
        return jobs.wait(*kinds, timeout=_FOUND_SECONDS, ignore=BAD_NEWS)
    except LabError as problem:
        raise NothingToHitError(f"the job of the fault came to nothing: {problem}") from problem


def number_of(event: Event) -> int | None:
    """Return the number of the payload container in which an ExecuteEvent says that the job runs."""
    found = SLOT.match(str(event.attributes.get("SlotName", "")))
    return int(found[1]) if found else None


def _starve(pod: Target, _: random.Random) -> int | None:
    """Run a job of another user that takes more memory than it may, until it is held."""
    with _job(pod, f"{pod.lab.registry}/busybox", _HUNGRY) as jobs:
        number = number_of(_wait(jobs, "ExecuteEvent"))
        _wait(jobs, "JobHeldEvent")
        return number


def _kill_from_inside(pod: Target, _: random.Random) -> int | None:
    """Run a job that kills its container. HTCondor's starter looks at it for 20 s more, so the job is removed here."""
    with _job(pod, f"{pod.lab.registry}/busybox", _SUICIDE) as jobs:
        number = number_of(_wait(jobs, "ExecuteEvent"))
        time.sleep(4)
        return number


def _stall_pull(pod: Target, draw: random.Random) -> int | None:
    """Stall the pull of a new image in the middle for a while."""
    with ExitStack() as undo:
        registry = undo.enter_context(faulty_registry(pod.lab))
        node = pod.lab.settings.runtime_agent
        registry.fails(RegistryFault(BLOBS, silent=True, agent=node))
        mark = layer(Entry("mark", data=str(time.time_ns()).encode()))
        pushed = Pusher(pod.lab.registry).push(f"soak-pulls:{time.time_ns()}", OciImage((shell(), mark)))
        image = pushed.partition("@")[0].replace(pod.lab.registry, registry.address)
        jobs = undo.enter_context(_job(pod, image, "true"))
        deadline = time.monotonic() + _FOUND_SECONDS
        while not registry.asked(BLOBS, node):
            if time.monotonic() > deadline:
                raise NothingToHitError(f"the node pulls nothing for a job of pod {pod.name}")
            time.sleep(0.1)
        time.sleep(draw.uniform(3, 15))
        registry.is_well()
        return number_of(_wait(jobs, "ExecuteEvent"))


ONE_CONTAINER: Final = (
    Fault("starter killed", _kill(STARTER), 4),
    Fault("docker client killed", _kill(CLIENT), 3),
    Fault("payload-init ended", _end_payload_init, 6),
    Fault("payload-init frozen for a while", _freeze_payload_init, 3),
    Fault("image changed by hand", _change_image, 3),
    Fault("job vacated", _vacate, 3),
    Fault("job that takes more memory than it may", _starve, 2),
    Fault("job that kills its own container", _kill_from_inside, 1),
    Fault("pull that stalls for a while", _stall_pull, 2),
)
"""Faults of one payload container, in a pod with several."""
KINDS: Final = (*WHOLE_POD, *ONE_CONTAINER, *NODE)
