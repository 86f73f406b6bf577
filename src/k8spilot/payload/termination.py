"""The end of a container without payload-init's report: what the pod's status and the kernel say of it."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from k8spilot.common.aio import first_of, side_by_side
from k8spilot.common.errors import ClusterError
from k8spilot.kube.backoff import retry
from k8spilot.kube.own_pod import OwnPod
from k8spilot.kube.pod import container, is_disturbed
from k8spilot.payload.usage import read_node_oom_kills

_STATUS_SECONDS: Final = 10.0
"""Seconds to wait for the container's end in the status. The kubelet needs about one second."""
_AGAIN_SECONDS: Final = 5.0
"""Additional seconds after an outage of the API server."""


@dataclass(frozen=True, slots=True)
class ContainerEnd:
    """How a container ended."""

    reason: str
    """A part of a sentence."""
    out_of_memory: bool
    killed_by: int = 0
    """Signal that ended its first process, if neither the cluster nor the kernel had a reason to send it; else 0."""


class TerminationObserver:
    """Finds out how one container ended. It begins while the container runs, to see what changes."""

    def __init__(self, pod: OwnPod, name: str, identity: str, patience: float) -> None:
        self._pod = pod
        self._name = name
        self._identity = identity
        self._patience = patience
        self._image = self._wanted()
        self._node_oom_kills = read_node_oom_kills()

    async def find(self, abandoned: asyncio.Event, oom_kills: int | None, deadly: Collection[int]) -> ContainerEnd:
        """Wait for the container's end in the pod's status.

        Args:
            abandoned: set when no client waits for the result any more. The slot waits then.
            oom_kills: the kernel's last count of the container, which may have vanished with it.
            deadly: signals that can end its first process, whoever sends them.
        """
        try:
            async with side_by_side(self._status(), abandoned.wait()) as (status, waiting):
                await first_of(status, waiting)
                found = status.result() if status.done() else {}
        except ClusterError as error:
            # The kernel counts every process of the container: second best.
            return ContainerEnd(f"for an unknown reason: {error}", out_of_memory=bool(oom_kills))
        if not found:
            return ContainerEnd("it was killed", out_of_memory=False)
        return ContainerEnd(
            f"{found.get('reason', 'Error')}, exit code {found.get('exitCode')}",
            out_of_memory=found.get("reason") == "OOMKilled",
            killed_by=0 if self._has_other_cause() else _signal_of(found, deadly),
        )

    def _has_other_cause(self) -> bool:
        """Return whether the cluster or the kernel may have killed the first process."""
        return (
            is_disturbed(self._pod.pod)
            or self._wanted() != self._image
            or read_node_oom_kills() != self._node_oom_kills
        )

    def _wanted(self) -> str:
        """Return the image of the container in the pod's spec."""
        view = container(self._pod.pod, self._name)
        return view.wanted if view is not None else ""

    async def _status(self) -> dict[str, Any]:
        """Return the container's end in the pod's status; empty if it is not there in time.

        Raises:
            ClusterError: the API server is unavailable.
        """
        found = await self._pod.until_shown(self._name, self._ended, _STATUS_SECONDS)
        if found is None:
            await retry(self._pod.refresh, self._patience)
            found = await self._pod.until_shown(self._name, self._ended, _AGAIN_SECONDS)  # the kubelet catches up, too
        return found or {}

    def _ended(self, pod: dict[str, Any]) -> dict[str, Any] | None:
        view = container(pod, self._name)
        end = view.ended if view is not None else None
        return end if end is not None and end.get("containerID") == self._identity else None


def _signal_of(end: dict[str, Any], deadly: Collection[int]) -> int:
    """Return which of the signals ended the first process, according to the pod's status; 0 if none did."""
    return next((one for one in deadly if end.get("reason") == "Error" and end.get("exitCode") == 128 + one), 0)
