"""Discovery of the payload container's GPUs: once in a pod's life, before any job's image has run there.

The probe's output is trusted because nothing but the idle image, which is the pilot's own, has run in that container.
An engine that finds no record, but a changed container, does not probe any more: a job that feigns GPUs could still run
there, or could have left its device nodes.
"""

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any, Final

from k8spilot.common.errors import PilotError
from k8spilot.gpu.discovery.claims import Claims
from k8spilot.gpu.discovery.evidence import Evidence
from k8spilot.gpu.discovery.pod_request import PodRequest
from k8spilot.gpu.discovery.record import GpuRecord
from k8spilot.kube.pod import container
from k8spilot.model.command import Command
from k8spilot.payload.command.exec_session import ExecSession
from k8spilot.payload.command.stdio import STDERR, STDOUT, Stdio
from k8spilot.payload_init.server import PayloadInitServer
from k8spilot.settings import PILOT

logger = logging.getLogger(__name__)

PROBE: Final = ("-I", "-m", "k8spilot.gpu.discovery.probe")
_CONNECT_SECONDS: Final = 30.0
"""Seconds to wait for payload-init in a pod that requests GPUs. Other pods are not waited for."""
_AT_ONCE: Final = 0.1
_PROBE_SECONDS: Final = 60.0
"""NVML takes a second or two for each GPU whose driver was asleep."""
_NUMBER: Final = 1
"""Number of the command. 0 is the number of a job."""

_TOUCHED: Final = (
    "the payload container has changed since the pod's start, so that its devices prove nothing any more; only a new "
    "pod is probed"
)


class _Failed(PilotError):
    """Raised when the payload container cannot be probed."""


async def discover(
    pod: dict[str, Any], claims: Claims, name: str, init_server: PayloadInitServer, folder: Path
) -> tuple[GpuRecord, bool]:
    """Find the pod's GPUs, or load the record of an earlier engine.

    Args:
        pod: the own pod's JSON.
        claims: its claims.
        name: name of the payload container.
        init_server: server of its payload-init.
        folder: folder of the record.

    Returns:
        The record, and whether it is new.
    """
    if (known := GpuRecord.load(folder)) is not None:
        return known, False
    request = _request(pod, claims, name)
    record = await _probe(request, init_server) if _is_untouched(pod, name) else GpuRecord(request, failure=_TOUCHED)
    try:
        record.save(folder)
    except OSError as error:
        logger.warning("The GPU record cannot be written to %s: %s.", folder, error)
    return record, True


async def _probe(request: PodRequest, init_server: PayloadInitServer) -> GpuRecord:
    try:
        return GpuRecord(request, await _probed(init_server, _CONNECT_SECONDS if request != PodRequest() else _AT_ONCE))
    except _Failed as error:
        return GpuRecord(request, failure=str(error))


def _request(pod: dict[str, Any], claims: Claims, name: str) -> PodRequest:
    spec = pod.get("spec", {})
    containers = [*spec.get("initContainers", ()), *spec.get("containers", ())]
    return PodRequest.of(next((item for item in containers if item["name"] == name), None), claims)


def _is_untouched(pod: dict[str, Any], name: str) -> bool:
    """Return whether the payload container runs the pod's original image, still or again."""
    payload, pilot = container(pod, name), container(pod, PILOT)
    if payload is None:
        return False
    if payload.restarts == 0:
        return True
    # The specification alone proves nothing: the kubelet may not have ended the job's container yet.
    same = pilot is not None and (payload.wanted, payload.image_id) == (pilot.wanted, pilot.image_id)
    return same and payload.running and payload.image_id != ""


async def _probed(init_server: PayloadInitServer, patience: float) -> Evidence:
    """Run the probe, and parse its output."""
    command = Command(arguments=tuple(word.encode() for word in (sys.executable, *PROBE)), directory=b"/")
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
    output, errors = (
        b"".join(piece.data for piece in stdio.tail if piece.stream == stream) for stream in (STDOUT, STDERR)
    )
    last = errors.decode(errors="replace").strip().rpartition("\n")[2][:200]
    why = f"exit code {code}{': ' if last else ''}{last}"
    if code == 0:
        try:
            return Evidence.of(json.loads(output))
        except ValueError as error:
            why = str(error)
    raise _Failed(
        f"the probe failed in the payload container ({why}), whose image at the pod's start must be the pilot's own"
    )
