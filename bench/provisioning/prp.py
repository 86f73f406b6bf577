"""The loop of PRP's provisioner (github.com/sfiligoi/prp-htcondor-portal, provisioner/), written anew.

It follows the sources at commit 085f0ed1: event_loop.py, provisioner_clustering.py, provisioner_k8s.py,
provisioner_main.py and the worker's container_startup.sh.
"""

from collections import Counter

from bench.provisioning.demand import Size
from bench.provisioning.pods import Phase, Pod, Shape
from bench.provisioning.pool import Life
from bench.provisioning.world import Orders, Sight

TURN_SECONDS = 120.0
MOST_WAITING = 20
"""Value of max_pods_per_cluster: most pods of a size that are made while none of them is claimed."""
MOST_PODS = 1000
"""Value of max_submit_pods_per_cluster."""
LIFE = Life(idle_seconds=1200.0, seconds=7200.0)
"""Value of STARTD_NOCLAIM_SHUTDOWN in its sources, and the default of MASTER_PEACEFUL_SHUTDOWN."""


class Prp:
    """PRP's provisioner. It looks at idle jobs by size only, and deletes nothing."""

    def __init__(self, life: Life = LIFE) -> None:
        self.interval = TURN_SECONDS
        self.life = life

    def turn(self, sight: Sight) -> Orders:
        """Make pods for each size that has idle jobs."""
        idle = Counter[Size]()
        for (_, size), number in sight.idle.items():
            idle[size] += number
        create: list[Shape] = []
        for size, number in idle.items():
            pods = [pod for pod in sight.pods if pod.shape.size == size and pod.phase is not Phase.ENDED]
            unclaimed = sum(not pod.claims for pod in pods)
            if len(pods) < MOST_PODS:
                create += [Shape(f"prp-{size.cpus}", size)] * max(wanted(number) - unclaimed, 0)
        return Orders(create, _ended(sight))


def wanted(idle: int) -> int:
    """Return the number of unclaimed pods that it wants for a number of idle jobs."""
    number = 1 + idle // 4
    if number > 20:
        number = 20 + (number - 20) // 4
    return min(number, MOST_WAITING)


def _ended(sight: Sight) -> list[Pod]:
    """Return the ended pods, whose objects Kubernetes deletes."""
    return [pod for pod in sight.pods if pod.phase is Phase.ENDED]
