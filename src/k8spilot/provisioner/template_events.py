"""Events on pod templates: when one is closed, opened, or cannot be used."""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from k8spilot.common.errors import ClusterError
from k8spilot.model.event_reasons import EventKind
from k8spilot.provisioner.cluster import NamespaceClient
from k8spilot.provisioner.report import Turn

logger = logging.getLogger(__name__)

Json = dict[str, Any]

EVENTS: Final[Mapping[str, EventKind]] = {
    "TemplateClosed": EventKind(
        "Warning",
        "Pilots of the template failed, do not start, were refused by the API server, or are black holes. The message "
        "has the reason and the time for which no pilot is made.",
        "Do what the message says; a change of the template opens it at once.",
    ),
    "TemplateOpened": EventKind("Normal", "A pilot of a closed template is in the pool, or the template has changed."),
    "TemplateInvalid": EventKind(
        "Warning",
        "An annotation of the template or a setting of its pilots is invalid, or its pilots would join another pool.",
        "Correct what the message names.",
    ),
}
"""Events on the CronJob objects of pod templates."""
_MOST: Final = 1000
"""Length of a message (core/v1 Event: 1024)."""


class TemplateEvents:
    """Creates Events when something has changed. A failure to do so is in the log."""

    def __init__(self, cluster: NamespaceClient, instance: str) -> None:
        self._cluster = cluster
        self._instance = instance
        self._closed: dict[str, float] = {}
        self._invalid: dict[str, str] = {}

    async def record(self, turn: Turn, objects: dict[str, Json]) -> None:
        """Create the Events of a turn."""
        for name, words in turn.invalid.items():
            if self._invalid.get(name) != words and name in objects:
                await self._create(objects[name], "TemplateInvalid", f"No pilots are made from it: {words}.")
        self._invalid = dict(turn.invalid)
        for name, one in (turn.plan.templates if turn.plan is not None else {}).items():
            closure, before = one.closure, self._closed.get(name, 0.0)
            if closure.failures and closure.until != before and name in objects:
                pause = max(closure.until - turn.time, 0)
                words = f"No pilots are made for {pause:.0f} s: {closure.reason}."
                await self._create(objects[name], "TemplateClosed", words)
            elif before and not closure.failures and name in objects:
                await self._create(objects[name], "TemplateOpened", "Pilots are made again.")
            self._closed[name] = closure.until if closure.failures else 0.0

    async def _create(self, template: Json, reason: str, words: str) -> None:
        metadata, now = template["metadata"], datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{metadata['name'][:200]}.", "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": "batch/v1",
                "kind": "CronJob",
                **{key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion")},
            },
            "type": EVENTS[reason].type,
            "reason": reason,
            "message": words[:_MOST],
            "source": {"component": "k8spilot", "host": self._instance},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._cluster.request("POST", self._cluster.path("events"), body=event)
        except ClusterError as error:
            logger.warning("The Event %s of template %s cannot be created: %s.", reason, metadata["name"], error)
