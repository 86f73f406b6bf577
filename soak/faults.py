"""The faults. Each is a function of a pod; its damage is undone when it returns, or heals by itself."""

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from lab import outages, pilot
from lab.api import Lab
from lab.pod_processes import hit, oldest, still
from lab.settings import PILOT_NAMESPACE

ENGINE: Final = r"k8spilot\.engine"
SUPERVISOR: Final = r"supervisor\.py"
STARTD: Final = r"^\S*condor_startd\b"
STARTER: Final = r"^\S*condor_starter "
CLIENT: Final = "/docker-client start"
PAYLOAD_INIT: Final = "^/k8spilot/bin/payload-init"
"""In the command lines of a pod's processes."""


@dataclass(frozen=True)
class Fault:
    """One kind."""

    name: str
    make: Callable[[Lab, str, random.Random], None]
    weight: int = 2
    """How often it is drawn, beside the others."""
    whole_node: bool = False
    """It is not about one pod."""


def _signal(number: signal.Signals, pattern: str) -> Callable[[Lab, str, random.Random], None]:
    return lambda lab, pod, _draw: hit(lab, pod, pattern, number)


def _freeze_engine(lab: Lab, pod: str, draw: random.Random) -> None:
    with still(oldest(lab, pod, ENGINE)):
        time.sleep(draw.uniform(1, 8))


def _end_payload_init(lab: Lab, pod: str, draw: random.Random) -> None:
    hit(lab, pod, PAYLOAD_INIT, draw.choice((signal.SIGKILL, signal.SIGTERM)))


def _freeze_payload_init(lab: Lab, pod: str, draw: random.Random) -> None:
    with outages.payload_init_frozen(lab, pod):
        time.sleep(draw.uniform(1, 8))


def _patch_image(lab: Lab, pod: str, _: random.Random) -> None:
    change = f'{{"spec":{{"initContainers":[{{"name":"payload","image":"{lab.registry}/busybox:latest"}}]}}}}'
    lab.kubectl("patch", "pod", pod, "-n", PILOT_NAMESPACE, "--type=strategic", "-p", change)


def _patch_label(lab: Lab, pod: str, draw: random.Random) -> None:
    lab.kubectl("label", "pod", pod, "-n", PILOT_NAMESPACE, "--overwrite", f"soak={draw.randrange(1000)}")


def _cut_network(lab: Lab, pod: str, draw: random.Random) -> None:
    with outages.network_cut(lab, pod):
        time.sleep(draw.uniform(2, 15))


def _delete_pod(lab: Lab, pod: str, _: random.Random) -> None:
    pilot.deploy(lab, pod)  # deletes the one that is there, as kubectl does, and waits for its end


def _vacate(lab: Lab, pod: str, _: random.Random) -> None:
    lab.access_point("alice", f"condor_vacate_job -constraint 'regexp(\"{pod}\", RemoteHost)' >/dev/null 2>&1; true")


def _node(
    outage: Callable[[Lab], AbstractContextManager[None]], least: float, most: float
) -> Callable[[Lab, str, random.Random], None]:
    """Let an outage of the whole node last for some seconds."""

    def make(lab: Lab, _pod: str, draw: random.Random) -> None:
        with outage(lab):
            time.sleep(draw.uniform(least, most))

    return make


def _restart_containerd(lab: Lab, _pod: str, draw: random.Random) -> None:
    with outages.containerd_stopped(lab, kill=draw.random() < 0.5):
        time.sleep(draw.uniform(0, 3))


KINDS: Final = (
    Fault("engine killed", _signal(signal.SIGKILL, ENGINE), 4),
    Fault("engine frozen for a while", _freeze_engine),
    Fault("pilot container killed", _signal(signal.SIGKILL, SUPERVISOR), 1),
    Fault("startd killed", _signal(signal.SIGKILL, STARTD), 1),
    Fault("starter killed", _signal(signal.SIGKILL, STARTER)),
    Fault("docker client killed", _signal(signal.SIGKILL, CLIENT)),
    Fault("payload-init ended", _end_payload_init, 4),
    Fault("payload-init frozen for a while", _freeze_payload_init),
    Fault("image changed by hand", _patch_image),
    Fault("label changed by hand", _patch_label, 1),
    Fault("network to the pool cut for a while", _cut_network),
    Fault("pod deleted", _delete_pod, 1),
    Fault("job vacated", _vacate),
    Fault("kubelet restarted", _node(outages.kubelet_stopped, 0, 4), whole_node=True),
    Fault("kubelet frozen for a while", _node(outages.kubelet_frozen, 1, 6), whole_node=True),
    Fault("containerd restarted", _restart_containerd, whole_node=True),
    Fault("API server stopped for a while", _node(outages.api_server_stopped, 1, 10), 3, whole_node=True),
    Fault("registry stopped for a while", _node(outages.registry_stopped, 1, 10), whole_node=True),
)


def drawn(seed: int, *, whole_node: bool = True) -> Iterator[Fault]:
    """Draw faults without end, with those of the whole node or without: the same seed draws the same ones."""
    draw = random.Random(seed)
    kinds = [kind for kind in KINDS if whole_node or not kind.whole_node]
    while True:
        yield from draw.choices(kinds, [kind.weight for kind in kinds])
