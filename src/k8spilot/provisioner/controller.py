"""The turns of the provisioner: observe, plan, act, report."""

import asyncio
import json
import logging
import time
from collections.abc import Collection
from http import HTTPStatus
from typing import Any, Final

from k8spilot.common.errors import ClusterError
from k8spilot.kube.client import ApiRefusal
from k8spilot.provisioner import report
from k8spilot.provisioner.actuator import Actuator, Done
from k8spilot.provisioner.cluster import NamespaceClient, Reflector
from k8spilot.provisioner.leader import Leadership
from k8spilot.provisioner.metrics import ProvisionerMetrics
from k8spilot.provisioner.planning import template_closure
from k8spilot.provisioner.planning.demand import share_of
from k8spilot.provisioner.planning.model import Demand, Pilot, TemplateClosure, Waiting
from k8spilot.provisioner.planning.plan import TurnPlan, plan
from k8spilot.provisioner.pool.client import PoolAway, PoolClient
from k8spilot.provisioner.pool.query import PoolQuery
from k8spilot.provisioner.report import CONFIG_MAP, KEY, Turn
from k8spilot.provisioner.settings import ProvisionerSettings
from k8spilot.provisioner.supply import TEMPLATE, CollectorMemory, History, PilotPod, join, pod_facts
from k8spilot.provisioner.template_events import TemplateEvents
from k8spilot.provisioner.templates.store import TemplateStore

logger = logging.getLogger(__name__)

Json = dict[str, Any]

_FRESH_SECONDS: Final = 10.0
"""Age of a copy of the pilots with which a new leader can begin."""
_STATUS_SECONDS: Final = 10.0
"""Seconds between updates of a status in which only numbers have changed."""


class Controller:
    """Observes, plans, acts and reports."""

    def __init__(
        self, settings: ProvisionerSettings, cluster: NamespaceClient, pool: PoolClient, leadership: Leadership
    ) -> None:
        """Initialize without I/O."""
        self._settings = settings
        self._cluster = cluster
        self._pool = pool
        self._leadership = leadership
        self.pods: Reflector[PilotPod] = Reflector(cluster, "pods", TEMPLATE, pod_facts)
        self.templates = TemplateStore(cluster, settings.central_manager)
        self.metrics = ProvisionerMetrics()
        self._actuator = Actuator(cluster, self.pods, lambda: leadership.is_held)
        self._events = TemplateEvents(cluster, settings.pod_name)
        self._closures: dict[str, TemplateClosure] = {}
        self._refusals: dict[str, str] = {}
        self._history = History(began=time.time())
        self._collector = CollectorMemory()
        self._idle_since: dict[str, float] = {}
        """Time since which jobs have waited that match a template, by its name."""
        self._status: Json = {}
        self._written = -_STATUS_SECONDS
        """Time of the latest write of the status, by the monotonic clock."""
        self.has_reported = False
        """Whether a turn has ended."""
        self.last_end = time.monotonic()
        """Time of the end of the last turn, or of a check of the Lease, by the monotonic clock."""

    async def run(self) -> None:
        """Take turns while the Lease is held, until cancelled."""
        is_new = True
        while True:
            began = time.monotonic()
            if self._leadership.is_held:
                is_new = is_new and not await self._take_over()
                if not is_new:
                    await self.turn()
            else:
                is_new = True
                self.metrics.plan = None  # that of another process counts
            self.metrics.is_leader = self._leadership.is_held
            self.last_end = time.monotonic()
            await asyncio.sleep(max(self._settings.interval_seconds - (self.last_end - began), 0.1))

    async def _take_over(self) -> bool:
        """Begin as the leader; return whether that was possible.

        What pods did while another provisioner had the Lease is not known, and a watch may be dead without a sign.
        """
        self._history, self._collector = History(began=time.time()), CollectorMemory()
        self._idle_since = {}
        await self.recall()
        try:
            if time.monotonic() - self.pods.listed_at > _FRESH_SECONDS:
                await self.pods.relist()
        except ClusterError as error:
            logger.warning("The pilots cannot be listed: %s.", error)
            return False
        return True

    async def turn(self) -> None:
        """Take one turn."""
        now, began = time.time(), time.monotonic()
        made, faults = await self.observe(now)
        invalid = self.templates.invalid
        if made is not None and self._leadership.is_held:
            current = self.templates.current
            postpone(made, current.keys())
            done = await self._actuator.do(made, current, now)
            self._count(done)
            _correct(made, done)
            faults += [done.fault] if done.fault else []
        seconds = time.monotonic() - began
        self.metrics.turn_seconds, self.metrics.invalid = seconds, len(invalid)
        turn = Turn(
            time=now, seconds=seconds, leader=self._settings.pod_name, faults=faults, invalid=invalid, plan=made
        )
        await self._report(turn)
        self.has_reported = True

    async def observe(self, now: float) -> tuple[TurnPlan | None, list[str]]:
        """Return a plan, or None if it cannot be made; and sentences about what is missing."""
        await self.templates.refresh(now)
        faults = [fault for fault in (self.pods.fault, self.templates.fault) if fault]
        self.metrics.api_answers = not faults
        if faults:
            return None, [f"the Kubernetes API cannot be watched, so that nothing is changed: {faults[0]}"]
        templates = self.templates.usable
        query = PoolQuery(self._settings.pod_namespace, self._settings.schedds, templates)
        try:
            view = await self._pool.run(query)
        except PoolAway as error:
            self.metrics.pool_answers = False
            return None, [f"{error}; the demand is unknown, so that nothing is changed"]
        self.metrics.pool_answers = True
        by_name = {template.name: template for template in templates}
        pods = self.pods.objects.values()
        pilots = list(join(pods, templates=by_name, slots=view.slots, history=self._history, now=now))
        if fault := self._collector.fault(pilots, now):
            return None, [fault]
        self._history.keep({pilot.uid for pilot in pilots})
        own: dict[str, list[Pilot]] = {}
        for pilot in pilots:
            own.setdefault(pilot.template, []).append(pilot)
        self._closures = {
            template.name: template_closure.judge(
                self._closures.get(template.name, TemplateClosure()),
                template,
                own.get(template.name, []),
                now,
                refusal=self._refusals.get(template.name, ""),
                waiting=self._waiting(template.name, view.demand, now),
            )
            for template in templates
        }
        self._refusals = {}
        uids = {pilot.uid for pilot in pilots}
        own_running = sum(slot.running - slot.idle_claims for slot in view.slots if slot.pod_uid in uids)
        demand = share_of(view.demand, self._settings.share, own_running)
        # In a thread: very many sizes of jobs take seconds, and the Lease and the probes do not wait.
        made = await asyncio.to_thread(plan, demand, templates, pilots, closures=self._closures, now=now)
        self.metrics.plan = made
        self.metrics.last_turn = now
        return made, list(demand.missing)

    def _waiting(self, template: str, demand: Demand, now: float) -> Waiting:
        jobs = sum(group.idle for group in demand.groups if template in group.matches)
        if not jobs:
            self._idle_since.pop(template, None)
        return Waiting(jobs, self._idle_since.setdefault(template, now) if jobs else now)

    def _count(self, done: Done) -> None:
        self._refusals = done.refusals
        self.metrics.created.update(done.created)
        self.metrics.deleted.update(done.deleted)

    async def recall(self) -> None:
        """Read the records of failures that the last leader has written."""
        try:
            found = await self._cluster.request("GET", self._cluster.path("configmaps", CONFIG_MAP))
            self._status = json.loads((found.get("data") or {}).get(KEY) or "{}")
        except (ClusterError, ValueError) as error:
            if not (isinstance(error, ApiRefusal) and error.status == HTTPStatus.NOT_FOUND):
                logger.warning("The last status cannot be read: %s.", error)
            return
        self._closures = report.closures(self._status)

    async def _report(self, turn: Turn) -> None:
        """Log, publish and write what has changed."""
        before, self._status = self._status, report.status(turn, self._status)
        for line in _changes(before, self._status):
            logger.info("%s", line)
        await self._events.record(turn, self.templates.objects)
        is_same = _essence(before) == _essence(self._status)
        if is_same and time.monotonic() - self._written < _STATUS_SECONDS:
            return
        body = {"data": {KEY: json.dumps(self._status, indent=1)}}
        try:
            try:
                await self._cluster.request("PATCH", self._cluster.path("configmaps", CONFIG_MAP), body=body)
            except ApiRefusal as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
                new = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG_MAP}, **body}
                await self._cluster.request("POST", self._cluster.path("configmaps"), body=new)
            self._written = time.monotonic()
        except ClusterError as error:
            logger.warning("The status cannot be written: %s.", error)


def postpone(made: TurnPlan, current: Collection[str]) -> None:
    """Leave pilots of templates that have changed since the plan was made to the next turn."""
    for name, one in made.templates.items():
        if one.create and name not in current:
            one.lacking += one.create
            one.create, one.limit = 0, "the template has just changed, so that the next turn plans its pilots anew"


def _correct(made: TurnPlan, done: Done) -> None:
    """Take pilots that the API server has refused out of the plan, for the report."""
    for name, words in done.refusals.items():
        one, created = made.templates[name], done.created.get(name, 0)
        one.lacking += one.create - created
        one.create, one.limit = created, words


def _essence(found: Json) -> Json:
    """Return the part of a status whose change is written at once."""
    return {name: value for name, value in found.items() if name not in ("time", "seconds")}


def _changes(before: Json, after: Json) -> list[str]:
    """Return sentences about what has changed, for the log."""
    found = [f"Fault: {words}." for words in after["faults"] if words not in (before.get("faults") or ())]
    for name, words in after["invalid"].items():
        if (before.get("invalid") or {}).get(name) != words:
            found.append(f"Template {name} is not used: {words}.")
    for name, one in (after.get("templates") or {}).items():
        if ((before.get("templates") or {}).get(name) or {}).get("next") != one["next"]:
            found.append(
                f"Template {name}: {one['idleJobs']} idle jobs, pilots: {_counted(one['pilots'])}; {one['next']}."
            )
    return found


def _counted(pilots: Json) -> str:
    return ", ".join(f"{number} {state}" for state, number in pilots.items()) or "none"
