"""Start of the engine before the first job: folders, payload-init, the own pod, its GPUs."""

import asyncio
import logging
import os
from contextlib import suppress
from typing import Final

from k8spilot.common.errors import ClusterError, PreflightError
from k8spilot.gpu.discovery.claims import NO_CLAIMS, Claims, read_claims
from k8spilot.gpu.discovery.record import GpuRecord
from k8spilot.kube.backoff import BackOff
from k8spilot.kube.own_pod import OwnPod
from k8spilot.payload.gpu_discovery import discover
from k8spilot.payload.scrub.processes import kill_outside
from k8spilot.payload_init.server import PayloadInitServer
from k8spilot.settings import Settings, SlotSettings
from k8spilot.supervisor.plan import DEATHS
from k8spilot.telemetry.slot_recorder import SlotRecorder

logger = logging.getLogger(__name__)

_POD_SECONDS: Final = 60.0
_PAYLOAD_SECONDS: Final = 5.0
_CLAIMS_SECONDS: Final = 30.0


def deaths() -> int:
    """Return the number of engines that died in this container before this one, as counted by the supervisor."""
    return int(os.environ.get(DEATHS, "0"))


def open_folders(settings: Settings) -> None:
    """Set the permissions of the volumes, if the engine is root.

    The kubelet makes them writable for all. HTCondor also runs programs as the jobs' account in the pilot container
    (sshd, transfer plugins). These must not replace our socket by another one, nor leave files there.
    """
    if os.geteuid() != 0:
        return
    for folder in (settings.exchange, *(slot.exchange for slot in settings.slots), settings.gpu_metrics):
        if folder.is_dir():
            folder.chmod(0o755)
    shared = [] if settings.shared_memory is None else [settings.shared_memory]
    if len(settings.slots) > 1:  # programs of one slot's jobs in the pilot container must not reach another slot's
        for folder in (settings.exchange, *settings.scratch_folders, *shared):
            folder.chmod(0o700)
    # As any /tmp: a job could change the attributes of a folder that is not sticky (xattr(7)).
    for slot in settings.slots:
        for folder in slot.emptied_folders:
            folder.chmod(0o1777)


async def await_pod(settings: Settings, pod: OwnPod) -> None:
    """Wait until the own pod has been read.

    Raises:
        PreflightError: the Kubernetes API does not return it.
    """
    try:
        async with asyncio.timeout(_POD_SECONDS):
            await pod.until(lambda pod: pod)
    except TimeoutError:
        raise PreflightError(
            f"pod {settings.pod_namespace}/{settings.pod_name} cannot be read from the Kubernetes "
            f"API within {_POD_SECONDS:.0f} s; check the API server, POD_NAME and POD_NAMESPACE"
        ) from None


async def await_payload_init(slot: SlotSettings, init_server: PayloadInitServer, cgroup: str | None) -> bool:
    """Wait for payload-init, so that the first bind knows which container it ends.

    After the death of an engine, payload-init has killed its job when the connection ended. A payload-init that its job
    has stopped cannot do so: then kill all processes in the payload container. A container without a running image has
    none. Before the first job no job can have stopped payload-init: it is slow, and the kubelet would delay its
    restart.

    Args:
        slot: the slot.
        init_server: server of its payload-init.
        cgroup: cgroup of the pilot container, whose processes are spared; None outside of a container.

    Returns:
        Whether the node may still pull for a bind of an earlier engine.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(_PAYLOAD_SECONDS):
            await init_server.until(lambda _: True)
            return False
    # An earlier engine of this pod may have had a job: each engine looks for GPUs before that.
    had_jobs = deaths() > 0 or GpuRecord.load(slot.exchange) is not None
    killed = kill_outside(slot.uid, cgroup) if cgroup is not None and had_jobs else 0
    logger.warning(
        "payload-init of container %s has not connected within %.0f s; killed %d processes there.",
        slot.container,
        _PAYLOAD_SECONDS,
        killed,
    )
    return had_jobs


async def find_claims(settings: Settings, pod: OwnPod) -> Claims:
    """Return the pod's claims, as far as the pilot may read them, for the first engine of the pod.

    Without them the number of GPUs is not compared. Later engines have the records of the GPUs, and do not wait.
    """
    if all(GpuRecord.load(slot.exchange) is not None for slot in settings.slots):
        return NO_CLAIMS
    back_off = BackOff(1.0, 5.0)
    try:
        async with asyncio.timeout(_CLAIMS_SECONDS):
            while True:
                try:
                    return await read_claims(pod.api, pod.pod)
                except ClusterError as error:
                    logger.warning("The ResourceClaims of the pod cannot be read: %s; asking again.", error)
                    await asyncio.sleep(back_off.delay(error))
    except TimeoutError:
        logger.warning("The ResourceClaims of the pod are not compared with the GPUs that its containers see.")
        return NO_CLAIMS


async def find_gpus(
    pod: OwnPod, claims: Claims, slot: SlotSettings, init_server: PayloadInitServer, recorder: SlotRecorder
) -> GpuRecord:
    """Find the GPUs of a slot's payload container. Report a fault once in a pod's life; the status shows it always."""
    began = asyncio.get_running_loop().time()
    gpus, new = await discover(pod.pod, claims, name=slot.container, init_server=init_server, folder=slot.exchange)
    if gpus.verdict.problem:
        recorder.gpus_doubtful(gpus.summary, new=new)
    seconds = asyncio.get_running_loop().time() - began
    logger.log(
        logging.WARNING if gpus.verdict.problem else logging.INFO,
        "GPUs: %s.%s",
        gpus.summary,
        f" Found in {seconds:.3f} s." if new else " As found before.",
    )
    return gpus
