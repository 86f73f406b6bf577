"""Events on the pilot's pod, for people: `kubectl describe pod` and `kubectl get events` show them."""

import hashlib
import logging
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
        self._exists = False
        """Whether the last request failed because there is such an Event."""

    async def publish(self, reason: EventReason, message: str, *, key: str = "", count: int = 1) -> int:
        """Create an Event, or count in the one that an earlier process of this pod has created.

        Args:
            reason: one of the table of Events, which has its type.
            message: a sentence for people.
            key: identifies identical Events of a pod; by default the message.
            count: new occurrences.

        Returns:
            Occurrences that the API server has now; 0 if the Event could not be created.
        """
        event = self._event(reason, message, key or message) | {"count": count}
        if await self._request("create", self._path, reason, event) is not None:
            return count
        if not self._exists:
            return 0
        # A role that cannot read Events can still patch them, and the answer to a patch is the whole Event.
        path = f"{self._path}/{event['metadata']['name']}"
        found = await self._request("patch", path, reason, {"lastTimestamp": _now()})
        before = found.get("count") if found is not None else 0
        total = count + (before if isinstance(before, int) else 0)
        return total if await self.publish_again(reason, message, total, key=key) else 0

    async def publish_again(self, reason: EventReason, message: str, count: int, *, key: str = "") -> bool:
        """Update an Event to `count` occurrences, and return whether it exists."""
        path = f"{self._path}/{self._name(reason, key or message)}"
        return await self._request("patch", path, reason, {"count": count, "lastTimestamp": _now()}) is not None

    def _name(self, reason: str, key: str) -> str:
        """Return the name of an Event, which is the same for identical Events of one pod."""
        content = "\0".join((self._pod.get("uid", ""), reason, key))
        return f"{self._pod['name'][:200]}.{hashlib.sha256(content.encode()).hexdigest()[:16]}"

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self._namespace}/events"

    async def _request(self, verb: str, path: str, reason: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Return the API server's answer, or None after a failure."""
        self._exists = False
        if self._forbidden:
            return None
        try:
            return await self._api.read(verb, path, body=body, patch="merge-patch")
        except ApiRefusal as error:
            if verb == "patch" and error.status == HTTPStatus.NOT_FOUND:
                return None  # it has expired, and the caller creates another one
            if verb == "create" and error.status == HTTPStatus.CONFLICT:
                self._exists = True
                return None
            self._forbidden = error.status == HTTPStatus.FORBIDDEN
            logger.warning("The Event %s cannot be created: %s", reason, error)
        except (ClusterError, OSError) as error:
            logger.warning("The Event %s could not be created: %s", reason, error)
        return None

    def _event(self, reason: EventReason, message: str, key: str) -> dict[str, Any]:
        now = _now()
        text = message if len(message) <= _MESSAGE_SIZE else message[: _MESSAGE_SIZE - 3] + "..."
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": self._namespace, "name": self._name(reason, key)},
            "involvedObject": self._pod,
            "reason": reason,
            "message": text,
            "type": EVENTS[reason].type,
            "source": {"component": _COMPONENT},
            "reportingComponent": _COMPONENT,
            "reportingInstance": self._pod["name"],
            "firstTimestamp": now,
            "lastTimestamp": now,
        }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
