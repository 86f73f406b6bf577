"""Events on the pilot's pod, for people: `kubectl describe pod` and `kubectl get events` show them."""

import logging
import uuid
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from k8spilot.common.errors import ClusterError
from k8spilot.kube.client import Api, ApiRefusal
from k8spilot.model.event_reasons import EVENTS, EventReason

logger = logging.getLogger(__name__)

_MESSAGE_SIZE: Final = 1024
"""Maximum length of an Event's note (events.k8s.io/v1)."""
_COMPONENT: Final = "k8spilot"


class Events:
    """Events on one pod. No failure here ends a pilot: an Event that cannot be created is in the log."""

    def __init__(self, api: Api, namespace: str, name: str, uid: str = "") -> None:
        self._api = api
        self._namespace = namespace
        self._pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": namespace,
            "name": name,
            # kubectl describe selects by the uid, too.
            **({"uid": uid} if uid else {}),
        }
        self._forbidden = False

    async def tell(self, reason: EventReason, message: str) -> str:
        """Create an Event.

        Args:
            reason: one of the table of Events, which has its type.
            message: a sentence for people.

        Returns:
            Its name; empty if it could not be created.
        """
        event = self._event(reason, message)
        return str(event["metadata"]["name"]) if await self._ask("create", self._path, reason, event) else ""

    async def tell_again(self, name: str, reason: EventReason, count: int) -> bool:
        """Update the Event `name` to `count` occurrences, and return whether it exists."""
        return await self._ask("patch", f"{self._path}/{name}", reason, {"count": count, "lastTimestamp": _now()})

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self._namespace}/events"

    async def _ask(self, verb: str, path: str, reason: str, body: dict[str, Any]) -> bool:
        if self._forbidden:
            return False
        try:
            await self._api.read(verb, path, body=body, patch="merge-patch")
        except ApiRefusal as error:
            if verb == "patch" and error.status == HTTPStatus.NOT_FOUND:
                return False  # it has expired, and the caller creates another one
            self._forbidden = error.status == HTTPStatus.FORBIDDEN
            logger.warning("The Event %s cannot be created: %s", reason, error)
        except (ClusterError, OSError) as error:
            logger.warning("The Event %s could not be created: %s", reason, error)
        else:
            return True
        return False

    def _event(self, reason: EventReason, message: str) -> dict[str, Any]:
        now = _now()
        text = message if len(message) <= _MESSAGE_SIZE else message[: _MESSAGE_SIZE - 3] + "..."
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": self._namespace, "name": f"{self._pod['name'][:200]}.{uuid.uuid4().hex[:16]}"},
            "involvedObject": self._pod,
            "reason": reason,
            "message": text,
            "type": EVENTS[reason].type,
            "source": {"component": _COMPONENT},
            "reportingComponent": _COMPONENT,
            "reportingInstance": self._pod["name"],
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
