"""The pilot's own pod: a reflector, and the one kind of patch that changes its payload container's image.

A patch says what it changes from, so that one which takes effect late cannot undo what came after it.
"""

import asyncio
import re
from http import HTTPStatus
from typing import Any, Final

from k8spilot.common.errors import ClusterError, ClusterRefused
from k8spilot.kube import reflector
from k8spilot.kube.client import Api, ApiRefusal
from k8spilot.kube.pod import clear_managed_fields_operations, image_of, set_bind_operations
from k8spilot.kube.reflector import PodReflector

_CONFLICTS: Final = 3
_DEFINITE: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.UNPROCESSABLE_ENTITY})
"""Statuses of a PATCH that is refused for what it asks: admission policies and webhooks, validation."""
NOT_READY: Final = re.compile(r"\bnot yet ready to handle request")
"""A refusal (403) of a server that has just begun, in an admission plugin's words (admission/handler.go)."""
_OF_THE_PILOT: Final = re.compile(rf'\bcannot patch resource "pods"|{NOT_READY.pattern}')
"""Refusals (403) that are not about the image: the authorizer's words are about who asks (apiserver,
endpoints/handlers/responsewriters/errors.go)."""


class OwnPod(PodReflector):
    """The pod that this process runs in: followed, and changed."""

    def __init__(self, api: Api, namespace: str, name: str, uid: str = "") -> None:
        super().__init__(api, namespace, name, uid)
        self._unmanage = True
        """Whether the account of who manages the pod's fields is ended where there is one."""
        self._patching = asyncio.Lock()
        """Patches are sent in the order in which they are made."""

    async def set_image(self, container: str, image: str, bind: str) -> dict[str, Any] | None:
        """Ask for another image of the native sidecar `container`. Returns when the API server has taken it.

        Args:
            container: its name.
            image: the reference.
            bind: a new name of this change, hexadecimal digits, which the container that is made for it gets to know.

        Returns:
            The pod at that moment, whose status still is that of the container before; None when an earlier try had
            taken effect, whose answer was lost.

        Raises:
            ClusterRefused: it never will: a policy, an invalid reference.
            ClusterError: it did not this time, or does not let this pilot.
        """
        self.expect_change()
        try:
            async with self._patching, asyncio.timeout(reflector.REQUEST_SECONDS):
                answer = await self._patch(container, image, bind)
        except TimeoutError:
            fault = ClusterError(f"no answer within {reflector.REQUEST_SECONDS:.0f} s")
        except ClusterError as error:
            fault = error
        else:
            await self.connectivity.note("patch", "")
            self.watch_now()
            return answer
        words = f"the image of container {container} in pod {self.namespace}/{self.name} cannot be changed now: {fault}"
        await self.connectivity.note("patch", words)
        raise _like(fault, words) from fault

    async def _patch(self, container: str, image: str, bind: str) -> dict[str, Any] | None:
        """Change the image from what it is known to be; where it is not, look and try again."""
        place, now = image_of(self.pod, container)
        if now == image:
            await self._list()  # what the watch tells may be the past
        plain = not self._unmanage
        for _ in range(_CONFLICTS):
            place, now = image_of(self.pod, container)
            if now == image:
                return None
            more = [] if plain else clear_managed_fields_operations(self.pod)
            # A patch that was given up may still arrive. It finds another image by then, and must not change that.
            changes = [
                {"op": "test", "path": "/metadata/uid", "value": self._uid},
                {"op": "test", "path": place, "value": now},
                {"op": "replace", "path": place, "value": image},
                set_bind_operations(self.pod, bind),
                *more,
            ]
            try:
                answer = await self.api.read("patch", f"{self.path}/{self.name}", body=changes)
            except ApiRefusal as error:
                if error.status not in _DEFINITE | {HTTPStatus.CONFLICT}:
                    raise
                refusal = error
            else:
                self._unmanage = not plain
                return answer
            await self._list()
            # Another image by now, or annotations that came or went: the patch was made for another pod.
            is_same = image_of(self.pod, container)[1] == now and set_bind_operations(self.pod, bind) in changes
            if refusal.status != HTTPStatus.CONFLICT and is_same:
                if more:  # it may be this that somebody does not want, and no job needs it
                    plain = True
                    continue
                if _OF_THE_PILOT.search(str(refusal)):
                    raise refusal
                raise ClusterRefused(f"the Kubernetes API does not take image {image}: {refusal}") from refusal
        raise ClusterError("something else changes it, too")


def _like(error: ClusterError, words: str) -> ClusterError:
    """A ClusterError with other words."""
    new = ClusterError(words)
    new.retry_after = error.retry_after
    return new
