"""The faults. Each is a function of a pod; its damage is undone when it returns, or heals by itself."""

import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from lab import outages, pod_faults
from lab.api import Lab
from lab.pilot import SUPERVISOR
from lab.pod_processes import hit, oldest, still
from lab.settings import PILOT_NAMESPACE
from soak.target import Target

ENGINE: Final = r"k8spilot\.engine"
STARTD: Final = r"^\S*condor_startd\b"
STARTER: Final = r"^\S*condor_starter "
CLIENT: Final = "/docker-client start"
PAYLOAD_INIT: Final = "^/k8spilot/bin/payload-init"
"""Pattern of payload-init's command line, among those of a pod's processes."""

Make = Callable[[Target, random.Random], int | None]
"""Function that makes a fault of a pod. It returns the number of the payload container that is hit; None: the whole
pod."""


@dataclass(frozen=True)
class Fault:
    """A kind of fault."""

    name: str
    make: Make
    weight: int = 2
    """Relative frequency."""
    whole_node: bool = False
    """Whether the fault hits the whole node instead of one pod."""


def _signal(number: signal.Signals, pattern: str) -> Make:
    def make(pod: Target, _draw: random.Random) -> None:
        hit(pod.lab, pod.name, pattern, number)

    return make


def _freeze_engine(pod: Target, draw: random.Random) -> None:
    with still(oldest(pod.lab, pod.name, ENGINE)):
        time.sleep(draw.uniform(1, 8))


def _end_payload_init(pod: Target, draw: random.Random) -> None:
    hit(pod.lab, pod.name, PAYLOAD_INIT, draw.choice((signal.SIGKILL, signal.SIGTERM)))


def _freeze_payload_init(pod: Target, draw: random.Random) -> None:
    with pod_faults.payload_init_frozen(pod.lab, pod.name):
        time.sleep(draw.uniform(1, 8))


def change_image(pod: Target, number: int) -> None:
    """Change the image of a payload container as a person would do it."""
    container = pod.container(number)
    change = f'{{"spec":{{"initContainers":[{{"name":"{container}","image":"{pod.lab.registry}/busybox:latest"}}]}}}}'
    pod.lab.kubectl("patch", "pod", pod.name, "-n", PILOT_NAMESPACE, "--type=strategic", "-p", change)


def _patch_image(pod: Target, _: random.Random) -> None:
    change_image(pod, 1)


def _patch_label(pod: Target, draw: random.Random) -> None:
    label = f"soak={draw.randrange(1000)}"
    pod.lab.kubectl("label", "pod", pod.name, "-n", PILOT_NAMESPACE, "--overwrite", label)


def _cut_network(pod: Target, draw: random.Random) -> None:
    with pod_faults.network_cut(pod.lab, pod.name):
        time.sleep(draw.uniform(2, 15))


def _delete_pod(pod: Target, _: random.Random) -> None:
    pod.deploy()


def vacate(pod: Target, slot: str = "") -> None:
    """Vacate the jobs of a pod, or of one of its slots."""
    where = f"{slot}@.*{pod.name}" if slot else pod.name
    command = f"condor_vacate_job -constraint 'regexp(\"{where}\", RemoteHost)' >/dev/null 2>&1; true"
    pod.lab.access_point("alice", command)


def _vacate(pod: Target, _: random.Random) -> None:
    vacate(pod)


def _node(outage: Callable[[Lab], AbstractContextManager[None]], least: float, most: float) -> Make:
    """Let an outage of the whole node last for some seconds."""

    def make(pod: Target, draw: random.Random) -> None:
        with outage(pod.lab):
            time.sleep(draw.uniform(least, most))

    return make


def _restart_containerd(pod: Target, draw: random.Random) -> None:
    with outages.runtime_stopped(pod.lab, kill=draw.random() < 0.5):
        time.sleep(draw.uniform(0, 3))


WHOLE_POD: Final = (
    Fault("engine killed", _signal(signal.SIGKILL, ENGINE), 4),
    Fault("engine frozen for a while", _freeze_engine),
    Fault("pilot container killed", _signal(signal.SIGKILL, SUPERVISOR), 1),
    Fault("startd killed", _signal(signal.SIGKILL, STARTD), 1),
    Fault("label changed by hand", _patch_label, 1),
    Fault("network to the pool cut for a while", _cut_network),
    Fault("pod deleted", _delete_pod, 1),
)
ONLY_CONTAINER: Final = (
    Fault("starter killed", _signal(signal.SIGKILL, STARTER)),
    Fault("docker client killed", _signal(signal.SIGKILL, CLIENT)),
    Fault("payload-init ended", _end_payload_init, 4),
    Fault("payload-init frozen for a while", _freeze_payload_init),
    Fault("image changed by hand", _patch_image),
    Fault("job vacated", _vacate),
)
"""Faults of a pod with one payload container."""
NODE: Final = (
    Fault("kubelet restarted", _node(outages.kubelet_stopped, 0, 4), whole_node=True),
    Fault("kubelet frozen for a while", _node(outages.kubelet_frozen, 1, 6), whole_node=True),
    Fault("containerd restarted", _restart_containerd, whole_node=True),
    Fault("API server stopped for a while", _node(outages.api_server_stopped, 1, 10), 3, whole_node=True),
    Fault("registry stopped for a while", _node(outages.registry_stopped, 1, 10), whole_node=True),
)
KINDS: Final = (*WHOLE_POD, *ONLY_CONTAINER, *NODE)


def drawn(seed: int, kinds: Sequence[Fault] = KINDS, *, whole_node: bool = True) -> Iterator[Fault]:
    """Draw faults without end, with or without those of the whole node. The same seed draws the same faults."""
    draw = random.Random(seed)
    kinds = [kind for kind in kinds if whole_node or not kind.whole_node]
    while True:
        yield from draw.choices(kinds, [kind.weight for kind in kinds])
