"""Looking for the payload container's GPUs: once in a pod's life, before any job's image has run there.

What the probe says is trusted since nothing but the idle image, which is the pilot's own, has run in that container. An
engine that finds no record of it, but a container that has been changed, does not look any more: a job that makes
others believe in GPUs could still be there, or have left its nodes behind.
"""

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any, Final

from k8spilot.common.errors import PilotError
from k8spilot.gpu.discovery.evidence import Evidence
from k8spilot.gpu.discovery.pod_request import PodRequest
from k8spilot.gpu.discovery.record import GpuRecord
from k8spilot.kube.pod import container
from k8spilot.model.command import Command
from k8spilot.payload.exec_session import ExecSession
from k8spilot.payload.stdio import STDERR, STDOUT, Stdio
from k8spilot.payload_init.server import PayloadInitServer
from k8spilot.settings import PILOT

logger = logging.getLogger(__name__)

PROBE: Final = ("-I", "-m", "k8spilot.gpu.discovery.probe")
_CONNECT_SECONDS: Final = 30.0
"""For payload-init, of a pod that is to have GPUs; that of others is not waited for."""
_AT_ONCE: Final = 0.1
_PROBE_SECONDS: Final = 60.0
"""NVML takes a second or two for each GPU whose driver was asleep."""
_NUMBER: Final = 1
"""Of the command; 0 would be a job."""


_TOUCHED: Final = (
    "the payload container has been changed since the pod's start, so that what it shows is no proof any more; only a "
    "new pod is looked into"
)


class _Failed(PilotError):
    """The payload container could not be looked into."""


async def discover(
    pod: dict[str, Any], name: str, init_server: PayloadInitServer, folder: Path
) -> tuple[GpuRecord, bool]:
    """Find the pod's GPUs, or what was found before.

    Args:
        pod: the own one, as the API server has it.
        name: of the payload container.
        init_server: where its payload-init connects to.
        folder: where the record is kept.

    Returns:
        What is known, and whether it is new.
    """
    if (known := GpuRecord.load(folder)) is not None:
        return known, False
    promise = _promise(pod, name)
    found = await _looked(promise, init_server) if _is_untouched(pod, name) else GpuRecord(promise, failure=_TOUCHED)
    try:
        found.save(folder)
    except OSError as error:
        logger.warning("What was found of GPUs cannot be kept in %s: %s.", folder, error)
    return found, True


async def _looked(promise: PodRequest, init_server: PayloadInitServer) -> GpuRecord:
    try:
        return GpuRecord(promise, await _probed(init_server, _CONNECT_SECONDS if promise != PodRequest() else _AT_ONCE))
    except _Failed as error:
        return GpuRecord(promise, failure=str(error))


def _promise(pod: dict[str, Any], name: str) -> PodRequest:
    spec = pod.get("spec", {})
    containers = [*spec.get("initContainers", ()), *spec.get("containers", ())]
    return PodRequest.of(next((one for one in containers if one["name"] == name), None))


def _is_untouched(pod: dict[str, Any], name: str) -> bool:
    """Whether the payload container still is, or runs again, what the pod came with."""
    payload, pilot = container(pod, name), container(pod, PILOT)
    if payload is None:
        return False
    if payload.restarts == 0:
        return True
    # The specification alone says nothing: the kubelet may not have ended the job's container yet.
    same = pilot is not None and (payload.wanted, payload.image_id) == (pilot.wanted, pilot.image_id)
    return same and payload.running and payload.image_id != ""


async def _probed(init_server: PayloadInitServer, patience: float) -> Evidence:
    """Run the probe and read what it says."""
    command = Command(arguments=tuple(one.encode() for one in (sys.executable, *PROBE)), directory=b"/")
    try:
        async with asyncio.timeout(patience):
            channel = await init_server.until(lambda _: True)
    except TimeoutError:
        raise _Failed("its payload-init has not connected") from None
    stdio = Stdio()
    session = ExecSession(channel, _NUMBER, command, stdio)
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            await session.follow()
    except TimeoutError:
        channel.sweep()
        raise _Failed(f"the probe has not ended within {_PROBE_SECONDS:.0f} s") from None
    code = session.ended.result().code
    said, complaint = (
        b"".join(piece.data for piece in stdio.tail if piece.stream == stream) for stream in (STDOUT, STDERR)
    )
    last = complaint.decode(errors="replace").strip().rpartition("\n")[2][:200]
    why = f"exit code {code}{': ' if last else ''}{last}"
    if code == 0:
        try:
            return Evidence.of(json.loads(said))
        except ValueError as error:
            why = str(error)
    raise _Failed(
        f"the probe failed in the payload container ({why}), whose image at the pod's start must be the pilot's own"
    )
