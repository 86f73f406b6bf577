"""The pilot's own pod: a reflector, and the one kind of patch that changes its payload container's image.

A patch names the value that it replaces, so that a late patch cannot undo a later change.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
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
    relists: bool = False
    """Whether the kubelet is asked to begin a change at once (kube/relist.py)."""


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A requested change of a sidecar's image."""

    sidecar: Sidecar
    image: str
    bind: str
    """Name of the change."""
    cost: str
    """Deletion cost of the pod because of the sidecar."""
    answer: asyncio.Future[dict[str, Any] | None]


class _RefusedTogether(Exception):
    """Raised when a patch of several images is refused, which does not show for which of them."""


class OwnPod(PodReflector):
    """The pod of this process, which it follows and changes."""

    def __init__(self, api: Api, namespace: str, name: str, uid: str = "") -> None:
        super().__init__(api, namespace, name, uid)
        self._extras = 2
        """Number of the parts of a change that no job needs, and that a policy may refuse: the end of the pod's
        managedFields, and its deletion cost."""
        self.work = KubeletWork()
        """Present work of the kubelet for the pod."""
        self._patching = asyncio.Lock()
        """Keeps the order of patches."""
        self._waiting: list[Change] = []
        """Changes that no patch has yet."""
        self._costs: dict[str, str] = {}
        """Deletion cost for each sidecar; the pod has the highest."""
        self._is_annotated = False
        """Whether the pod has annotations since a patch, which the watch may show later."""

    async def until_shown[T](self, name: str, find: Callable[[dict[str, Any]], T | None], seconds: float) -> T | None:
        """Wait until `find` returns a value for the pod, and return that; None if the status does not show it in time.

        Args:
            name: the container that `find` is about.
            find: returns what it finds in the pod, or None.
            seconds: time limit. It is longer while the kubelet changes another container.
        """
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    return await self.until(find)
            if not self.work.delays(name):
                return None

    async def set_image(self, sidecar: Sidecar, image: str, bind: str, cost: str = BUSY_COST) -> dict[str, Any] | None:
        """Request another image of a native sidecar. Return when the API server has accepted it.

        Requests for several sidecars that come while the server answers an earlier one go in one patch.

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
        change = Change(
            sidecar=sidecar, image=image, bind=bind, cost=cost, answer=asyncio.get_running_loop().create_future()
        )
        self._waiting.append(change)
        try:
            async with self._patching:
                if not change.answer.done():  # no other one has taken it along
                    await self._patch_waiting()
            answer = await change.answer
        except ClusterError as error:
            words = (
                f"the image of container {sidecar.name} in pod {self.namespace}/{self.name} cannot be changed now: "
                f"{error}"
            )
            await self.connectivity.note("patch", words)
            raise _like(error, words) from error
        finally:
            change.answer.cancel()
            if change in self._waiting:
                self._waiting.remove(change)
        await self.connectivity.note("patch", "")
        self.watch_now()
        return answer

    async def _patch_waiting(self) -> None:
        """Make the changes that wait together, one of each sidecar. If they are refused, make each by itself."""
        changes = list({change.sidecar.name: change for change in reversed(self._waiting)}.values())
        self._waiting = [change for change in self._waiting if change not in changes]
        try:
            await self._patch_in_time(changes)
            for change in [change for change in changes if not change.answer.done()]:
                await self._patch_in_time([change])
        finally:  # if this caller was cancelled, the others make their own
            self._waiting = [change for change in changes if not change.answer.done()] + self._waiting

    async def _patch_in_time(self, changes: Sequence["Change"]) -> None:
        """Make changes, and set their answers. Several that are refused together get none."""
        try:
            async with asyncio.timeout(reflector.REQUEST_SECONDS):
                answers = await self._patch(changes)
        except TimeoutError:
            fault: Exception = ClusterError(f"no answer within {reflector.REQUEST_SECONDS:.0f} s")
        except _RefusedTogether:
            return
        except (ClusterError, ClusterRefused) as error:
            fault = error
        else:
            for change, answer in zip(changes, answers, strict=True):
                if not change.answer.done():  # its caller may have been cancelled
                    change.answer.set_result(answer)
            return
        for change in changes:
            if not change.answer.done():
                change.answer.set_exception(fault)
                change.answer.exception()  # a caller that is cancelled now does not read it

    async def _patch(self, changes: Sequence["Change"]) -> list[dict[str, Any] | None]:
        """Change images from their known values; if one has another value, read the pod and try again."""
        self._costs.update({change.sidecar.name: change.cost for change in changes})
        cost = max(self._costs.values(), key=int)
        if any(self._image(change) == change.image for change in changes):
            await self._list()  # the watch's view may be stale
        extras = self._extras
        for _ in range(_CONFLICTS):
            before = [self._image(change) for change in changes]
            new = [change for change, now in zip(changes, before, strict=True) if now != change.image]
            if not new:
                return [None for _ in changes]
            is_annotated = self._is_annotated or bool(self.pod["metadata"].get("annotations"))
            parts = [clear_managed_fields_operations(self.pod), deletion_cost_operations(self.pod, cost)][:extras]
            more = [operation for part in parts for operation in part]
            try:
                answer = await self.api.read(
                    "patch",
                    f"{self.path}/{self.name}",
                    body=[*self._operations(new, is_annotated=is_annotated), *more],
                )
            except ApiRefusal as error:
                if error.status not in _DEFINITE | {HTTPStatus.CONFLICT}:
                    raise
                refusal = error
            else:
                self._extras, self._is_annotated = extras, True
                return [answer if change in new else None for change in changes]
            await self._list()
            # Another image by now, or annotations that were added or removed: the patch was made for another state.
            self._is_annotated = bool(self.pod["metadata"].get("annotations"))
            is_same = [self._image(change) for change in changes] == before and self._is_annotated == is_annotated
            if refusal.status != HTTPStatus.CONFLICT and is_same:
                if more:
                    extras -= 1 if extras > 1 and parts[-1] else extras
                    continue
                raise _final(refusal, changes) from refusal
        raise ClusterError("another client changes it, too")

    def _image(self, change: "Change") -> str:
        """Return the image that a sidecar has in the pod's specification."""
        return image_of(self.pod, change.sidecar.name)[1]

    def _operations(self, changes: Sequence["Change"], *, is_annotated: bool) -> list[dict[str, Any]]:
        """Return a JSON patch. An abandoned one may still arrive: it finds another image, and must not change that."""
        operations: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": self._uid}]
        for change in changes:
            place, now = image_of(self.pod, change.sidecar.name)
            operations += [
                {"op": "test", "path": place, "value": now},
                {"op": "replace", "path": place, "value": change.image},
                set_bind_operations(change.sidecar.annotation, change.bind, is_first=not is_annotated),
            ]
            is_annotated = True
        return operations


def _final(refusal: ApiRefusal, changes: Sequence[Change]) -> Exception:
    """Return the error of a patch that the API server refuses for its content."""
    if _OF_THE_PILOT.search(str(refusal)):
        return refusal
    if len(changes) > 1:
        return _RefusedTogether()
    return ClusterRefused(f"the Kubernetes API does not accept image {changes[0].image}: {refusal}")


def _like(error: ClusterError, words: str) -> ClusterError:
    """Return the ClusterError with other words."""
    new = ClusterError(words)
    new.retry_after = error.retry_after
    return new
