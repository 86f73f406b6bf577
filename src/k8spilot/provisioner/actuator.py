"""The actuator: creates and deletes pods as a plan says."""

import asyncio
import base64
import copy
import hashlib
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from k8spilot.common.errors import ClusterError
from k8spilot.kube.client import ApiRefusal
from k8spilot.provisioner import supply
from k8spilot.provisioner.cluster import NamespaceClient, Reflector, owner_of
from k8spilot.provisioner.planning import scaling
from k8spilot.provisioner.planning.model import NOT_STARTED, Pilot
from k8spilot.provisioner.planning.plan import TemplatePlan, TurnPlan
from k8spilot.provisioner.supply import PilotPod
from k8spilot.provisioner.templates.pod_template import pod_in

logger = logging.getLogger(__name__)

Json = dict[str, Any]

_LASTING: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.UNPROCESSABLE_ENTITY})
"""Refusals that the next turn would meet again: quota, policies, an invalid pod."""
_AT_A_TIME: Final = 10
"""Requests to the API server at a time."""
_LEASE_LOST: Final = "another provisioner has the Lease, so that the rest of the plan is left to it"


@dataclass(slots=True)
class Done:
    """Outcome of a plan."""

    created: dict[str, int] = field(default_factory=dict)
    """Pilots made, by template."""
    deleted: dict[str, int] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)
    """Why the API server refused the pilots of a template."""
    fault: str = ""
    """Why the rest of the plan was left to the next turn."""


class Actuator:
    """Creates and deletes pilots."""

    def __init__(self, cluster: NamespaceClient, pods: Reflector[PilotPod], may_act: Callable[[], bool]) -> None:
        """Initialize without I/O.

        Args:
            cluster: the cluster.
            pods: the pilots' pods, to which new ones are added.
            may_act: whether the Lease is held, which is looked at before each few changes.
        """
        self._cluster = cluster
        self._pods = pods
        self._may_act = may_act
        self._used: tuple[str, set[str]] = ("", set())
        """A minute, and the names that were chosen in it: no other pilot gets the name of one that is gone."""

    async def do(self, plan: TurnPlan, objects: Mapping[str, Json], now: float) -> Done:
        """Do what `plan` says.

        Args:
            plan: the plan.
            objects: the CronJob objects by name, of the templates that the plan was made with.
            now: seconds since the epoch.
        """
        done = Done()
        for name, one in plan.templates.items():
            try:
                if one.create:
                    await self._create(one, objects[name], done, now)
                await self._delete(name, one.delete, done)
            except ApiRefusal as error:
                done.fault = f"template {name}: {error}"
                logger.warning("Template %s: the API server refuses a request: %s.", name, error)
            except ClusterError as error:  # the next turn looks again
                done.fault = str(error)
                logger.warning("The turn ends early: %s.", error)
                return done
        for name, going in plan.ended.items():
            try:
                await self._delete(name, going, done)
            except ClusterError as error:
                done.fault = str(error)
                logger.warning("Pilots of template %s that have ended are not deleted: %s.", name, error)
        return done

    async def _create(self, one: TemplatePlan, found: Json, done: Done, now: float) -> None:
        name = one.template.name
        names = self._names(found, one.create, now)
        for batch in _batches(names):
            if not self._may_act():
                raise ClusterError(_LEASE_LOST)
            results = await asyncio.gather(*(self._make(found, one, pod) for pod in batch), return_exceptions=True)
            for pod, result in zip(batch, results, strict=True):
                if isinstance(result, Exception):
                    self._used[1].discard(pod)  # if it was made and only the answer is lost, the server says so
                if isinstance(result, ApiRefusal) and result.status in _LASTING:
                    done.refusals[name] = _refusal(result)
                elif isinstance(result, BaseException):
                    raise result
                else:
                    done.created[name] = done.created.get(name, 0) + result
            if name in done.refusals:
                logger.warning("Template %s: the API server refuses a pilot: %s.", name, done.refusals[name])
                return
        logger.info("Template %s: %d pilots made, for %d idle jobs.", name, done.created.get(name, 0), one.idle_jobs)

    def _names(self, template: Json, number: int, now: float) -> list[str]:
        """Return names that no pilot has: the template, a mark of it, the minute, and a number within it.

        Two provisioners that work at once choose the same names, so that the API server refuses the second of each. The
        mark tells pilots of other clusters apart: a pool keeps one ad for each name (HTCondor's hashkey.cpp).
        """
        minute = scaling.minute(now)
        if self._used[0] != minute:
            self._used = (minute, set())
        used = self._used[1]
        prefix = f"{template['metadata']['name']}-{mark_of(template)}-{minute}"
        free = (f"{prefix}-{place:03d}" for place in itertools.count())
        found = list(
            itertools.islice((one for one in free if one not in self._pods.objects and one not in used), number)
        )
        used.update(found)
        return found

    async def _make(self, found: Json, one: TemplatePlan, name: str) -> int:
        """Create a pod; return 1, or 0 if there is one of that name."""
        body = pod_of(found, name, one.template.version)
        try:
            created = await self._cluster.request("POST", self._cluster.path("pods"), body=body)
        except ApiRefusal as error:
            if error.status == HTTPStatus.CONFLICT and error.reason == "AlreadyExists":
                logger.warning("The pilot %s exists; another provisioner may be at work.", name)
                return 0
            raise
        self._pods.take(created)
        return 1

    async def _delete(self, name: str, going: Sequence[tuple[Pilot, str]], done: Done) -> None:
        for batch in _batches(going):
            if not self._may_act():
                raise ClusterError(_LEASE_LOST)
            await asyncio.gather(*(self._end(pilot, why) for pilot, why in batch))
            done.deleted[name] = done.deleted.get(name, 0) + len(batch)

    async def _end(self, pilot: Pilot, why: str) -> None:
        """Delete a pod if it is still what the plan saw: a pending one may have begun to run since."""
        conditions = {"uid": pilot.uid}
        if pilot.state in NOT_STARTED:
            conditions["resourceVersion"] = pilot.resource_version
        try:
            options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions}
            await self._cluster.request("DELETE", self._cluster.path("pods", pilot.name), body=options)
        except ApiRefusal as error:
            if error.status not in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND):
                raise
            if error.status == HTTPStatus.NOT_FOUND:
                self._pods.drop(pilot.name)
                logger.info("The pilot %s is gone already.", pilot.name)
            else:
                logger.info("The pilot %s has changed, and is not deleted.", pilot.name)
        else:
            logger.info("The pilot %s is deleted: %s.", pilot.name, why)


def mark_of(template: Json) -> str:
    """Return five characters that are the template's own, among all clusters."""
    digest = hashlib.sha256(str(template["metadata"]["uid"]).encode()).digest()
    return base64.b32encode(digest)[:5].decode().lower()


def pod_of(found: Json, name: str, version: str) -> Json:
    """Return the pod of a pod template's object, with its name."""
    pod = copy.deepcopy(pod_in(found))
    metadata = pod.setdefault("metadata", {})
    metadata["name"] = name
    metadata["labels"] = {**(metadata.get("labels") or {}), supply.TEMPLATE: found["metadata"]["name"]}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), supply.VERSION: version}
    metadata["ownerReferences"] = [owner_of(found)]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod["spec"]}


def _refusal(error: ApiRefusal) -> str:
    """Return why the API server refuses pods, with the remedy."""
    words = str(error)
    if "exceeded quota" in words:
        return f"the namespace's quota is used up; lower max-pilots or ask for more ({words})"
    if "failed quota" in words:
        return f"the namespace's quota counts what the pod does not state; give its containers that ({words})"
    if any(word in words for word in ("LimitRange", "maximum", "minimum", "limit to request ratio")):
        return f"the namespace's LimitRange does not allow such a pod; change the template's resources ({words})"
    if error.status == HTTPStatus.FORBIDDEN:
        return f"the cluster does not allow such a pod; look at its policies and the provisioner's rights ({words})"
    return words


def _batches[Item](items: Iterable[Item]) -> Iterable[list[Item]]:
    every = list(items)
    for begin in range(0, len(every), _AT_A_TIME):
        yield every[begin : begin + _AT_A_TIME]
