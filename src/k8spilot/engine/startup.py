"""What the engine does before the first job can come: folders, payload-init, the own pod, its GPUs."""

import asyncio
import logging
import os
from contextlib import suppress
from typing import Final

from k8spilot.common.errors import PreflightError
from k8spilot.gpu.discovery.record import GpuRecord
from k8spilot.kube.own_pod import OwnPod
from k8spilot.payload.gpu_discovery import discover
from k8spilot.payload.scrub.processes import kill_outside
from k8spilot.payload_init.server import PayloadInitServer
from k8spilot.settings import Settings
from k8spilot.supervisor.supervisor import DEATHS
from k8spilot.telemetry.slot_recorder import SlotRecorder

logger = logging.getLogger(__name__)

_POD_SECONDS: Final = 60.0
_PAYLOAD_SECONDS: Final = 5.0


def deaths() -> int:
    """Engines that died in this container before this one, as the supervisor counts them."""
    return int(os.environ.get(DEATHS, "0"))


def open_folders(settings: Settings) -> None:
    """Give the volumes the rights that they should have, where the engine is root.

    The kubelet makes them writable for all. HTCondor runs things as the jobs' account in the pilot container, too
    (sshd, transfer plugins), and none of them may put a socket of its own in the place of ours, or leave anything
    there.
    """
    if os.geteuid() != 0:
        return
    for folder in (settings.exchange, settings.gpu_metrics):
        if folder.is_dir():
            folder.chmod(0o755)
    # As any /tmp: of one that is not sticky, a job could change the attributes (xattr(7)).
    for folder in settings.scratch_folders:
        folder.chmod(0o1777)


async def see_pod(settings: Settings, pod: OwnPod) -> None:
    """Wait until the own pod is known.

    Raises:
        PreflightError: the Kubernetes API does not show it.
    """
    try:
        async with asyncio.timeout(_POD_SECONDS):
            await pod.until(lambda pod: pod)
    except TimeoutError:
        raise PreflightError(
            f"pod {settings.pod_namespace}/{settings.pod_name} cannot be read from the Kubernetes "
            f"API within {_POD_SECONDS:.0f} s; look at the API server, and at POD_NAME and POD_NAMESPACE"
        ) from None


async def hear_payload(settings: Settings, init_server: PayloadInitServer, cgroup: str | None) -> bool:
    """Wait for payload-init: the first bind then knows which container it ends.

    An engine that follows one that died finds it between jobs: it has killed its own when the connection ended. One
    that its job has stopped has not, and never will: all that is in the payload container is killed then. Where no
    image has come to run there is nothing in it. Where no job can have come yet, nobody has stopped it: it is slow,
    and the kubelet would make a pause after its end.

    Args:
        settings: the pilot's.
        init_server: where payload-init connects to.
        cgroup: of the pilot container, whose processes are spared; None where that is not a container.

    Returns:
        Whether the node may still pull for a bind of an engine before this one.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(_PAYLOAD_SECONDS):
            await init_server.until(lambda _: True)
            return False
    # A job can have come to an engine of this pod before this one: each looks for GPUs before that.
    had_jobs = deaths() > 0 or GpuRecord.load(settings.exchange) is not None
    killed = kill_outside(settings.payload_uid, cgroup) if cgroup is not None and had_jobs else 0
    logger.warning(
        "payload-init of container %s has not connected within %.0f s; %d processes are killed there.",
        settings.payload_container,
        _PAYLOAD_SECONDS,
        killed,
    )
    return had_jobs


async def find_gpus(
    settings: Settings, pod: OwnPod, init_server: PayloadInitServer, recorder: SlotRecorder
) -> GpuRecord:
    """Find the pod's GPUs; what is wrong with them is told once in a pod's life, and seen in the status."""
    began = asyncio.get_running_loop().time()
    gpus, new = await discover(pod.pod, settings.payload_container, init_server, settings.exchange)
    if gpus.verdict.problem:
        recorder.gpus_doubtful(gpus.words, new=new)
    seconds = asyncio.get_running_loop().time() - began
    logger.log(
        logging.WARNING if gpus.verdict.problem else logging.INFO,
        "GPUs: %s.%s",
        gpus.words,
        f" Found in {seconds:.3f} s." if new else " As found before.",
    )
    return gpus
