"""The pilot's own pod: a reflector, and the one kind of patch that changes its payload container's image.

A patch names the value that it replaces, so that a late patch cannot undo a later change.
"""

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from k8spilot.common.errors import ClusterError, ClusterRefused
from k8spilot.kube import reflector
from k8spilot.kube.client import Api, ApiRefusal
from k8spilot.kube.kubelet_work import KubeletWork
from k8spilot.kube.pod import (
    BUSY_COST,
    clear_managed_fields_operations,
    deletion_cost_operations,
    image_of,
    set_bind_operations,
)
from k8spilot.kube.reflector import PodReflector

_CONFLICTS: Final = 3
_DEFINITE: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.UNPROCESSABLE_ENTITY})
"""Statuses of a PATCH that is refused for its content: admission policies and webhooks, validation."""
NOT_READY: Final = re.compile(r"\bnot yet ready to handle request")
"""A refusal (403) of a server that has just started, in the words of an admission plugin (admission/handler.go)."""
_OF_THE_PILOT: Final = re.compile(rf'\bcannot patch resource "pods"|{NOT_READY.pattern}')
"""Refusals (403) that are not about the image: the authorizer's words are about the client (apiserver,
endpoints/handlers/responsewriters/errors.go)."""


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A native sidecar of the pod, whose image changes."""

    name: str
    annotation: str
    """Annotation of the pod that names the last change."""


class OwnPod(PodReflector):
    """The pod of this process, which it follows and changes."""

    def __init__(self, api: Api, namespace: str, name: str, uid: str = "") -> None:
        super().__init__(api, namespace, name, uid)
        self._extras = 2
        """Number of the parts of a change that no job needs, and that a policy may refuse: the end of the pod's
        managedFields, and its deletion cost."""
        self.work = KubeletWork()
        """What the kubelet does for the pod at present."""
        self._patching = asyncio.Lock()
        """Keeps the order of patches."""
        self._costs: dict[str, str] = {}
        """Deletion cost for each sidecar; the pod has the highest."""
        self._is_annotated = False
        """Whether the pod has annotations since a patch, which the watch may show later."""

    async def until_shown[T](self, name: str, look: Callable[[dict[str, Any]], T | None], seconds: float) -> T | None:
        """Wait until `look` returns a value for the pod, and return that; None if the status does not show it in time.

        Args:
            name: the container that `look` is about.
            look: returns what it finds in the pod, or None.
            seconds: time limit. It is longer while the kubelet changes another container.
        """
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    return await self.until(look)
            if not self.work.delays(name):
                return None

    async def set_image(self, sidecar: Sidecar, image: str, bind: str, cost: str = BUSY_COST) -> dict[str, Any] | None:
        """Request another image of a native sidecar. Return when the API server has accepted it.

        Args:
            sidecar: the sidecar.
            image: reference of the image.
            bind: new name of this change, hexadecimal digits, which its container gets.
            cost: deletion cost of the pod because of this sidecar from now on (kube/pod.py).

        Returns:
            The pod at that moment, whose status still is that of the previous container; None if an earlier attempt,
            whose answer was lost, had taken effect.

        Raises:
            ClusterRefused: the refusal is permanent: a policy, an invalid reference.
            ClusterError: the request failed this time, or this pilot does not have the right.
        """
        self.expect_change()
        try:
            async with self._patching, asyncio.timeout(reflector.REQUEST_SECONDS):
                self._costs[sidecar.name] = cost
                answer = await self._patch(sidecar, image, bind, max(self._costs.values(), key=int))
        except TimeoutError:
            fault = ClusterError(f"no answer within {reflector.REQUEST_SECONDS:.0f} s")
        except ClusterError as error:
            fault = error
        else:
            await self.connectivity.note("patch", "")
            self.watch_now()
            return answer
        words = (
            f"the image of container {sidecar.name} in pod {self.namespace}/{self.name} cannot be changed now: {fault}"
        )
        await self.connectivity.note("patch", words)
        raise _like(fault, words) from fault

    async def _patch(self, sidecar: Sidecar, image: str, bind: str, cost: str) -> dict[str, Any] | None:
        """Change the image from its known value; if it has another one, read the pod and try again."""
        place, now = image_of(self.pod, sidecar.name)
        if now == image:
            await self._list()  # the watch's view may be stale
        extras = self._extras
        for _ in range(_CONFLICTS):
            place, now = image_of(self.pod, sidecar.name)
            if now == image:
                return None
            is_annotated = self._is_annotated or bool(self.pod["metadata"].get("annotations"))
            naming = set_bind_operations(sidecar.annotation, bind, is_first=not is_annotated)
            parts = [clear_managed_fields_operations(self.pod), deletion_cost_operations(self.pod, cost)][:extras]
            more = [operation for part in parts for operation in part]
            # An abandoned patch may still arrive. It finds another image by then, and must not change that.
            changes = [
                {"op": "test", "path": "/metadata/uid", "value": self._uid},
                {"op": "test", "path": place, "value": now},
                {"op": "replace", "path": place, "value": image},
                naming,
                *more,
            ]
            try:
                answer = await self.api.read("patch", f"{self.path}/{self.name}", body=changes)
            except ApiRefusal as error:
                if error.status not in _DEFINITE | {HTTPStatus.CONFLICT}:
                    raise
                refusal = error
            else:
                self._extras, self._is_annotated = extras, True
                return answer
            await self._list()
            # Another image by now, or annotations that were added or removed: the patch was made for another state.
            self._is_annotated = bool(self.pod["metadata"].get("annotations"))
            is_same = image_of(self.pod, sidecar.name)[1] == now and self._is_annotated == is_annotated
            if refusal.status != HTTPStatus.CONFLICT and is_same:
                if more:
                    extras -= 1 if extras > 1 and parts[-1] else extras
                    continue
                if _OF_THE_PILOT.search(str(refusal)):
                    raise refusal
                raise ClusterRefused(f"the Kubernetes API does not accept image {image}: {refusal}") from refusal
        raise ClusterError("another client changes it, too")


def _like(error: ClusterError, words: str) -> ClusterError:
    """Return the ClusterError with other words."""
    new = ClusterError(words)
    new.retry_after = error.retry_after
    return new
