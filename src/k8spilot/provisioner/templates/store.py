"""The pod templates of the namespace, ready for matching, kept up to date."""

import hashlib
import json
import logging
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from k8spilot.common.errors import ClusterError
from k8spilot.kube.client import ApiRefusal
from k8spilot.provisioner.cluster import NamespaceClient, Reflector
from k8spilot.provisioner.limits import TemplateError
from k8spilot.provisioner.planning.model import Template
from k8spilot.provisioner.templates.pod_template import CLAIM_TEMPLATE, SELECTOR, source_names, template_of

logger = logging.getLogger(__name__)

Json = dict[str, Any]

_LOOK_SECONDS: Final = 60.0
"""Seconds between two looks at a template's ConfigMaps and claims, which are not watched: that takes wider rights."""
_RESOURCES: Final = {"ConfigMap": "configmaps", CLAIM_TEMPLATE: "resourceclaimtemplates"}
_OLD_SECONDS: Final = 3600.0
"""Age of a template from which it is made anew: the ad of its slots has times in it."""


@dataclass(slots=True)
class _Entry:
    """One template."""

    version: str
    """resourceVersion of the object."""
    looked: float
    """Time at which its sources were read last, by the monotonic clock."""
    made: float
    """Time for which its slot ad was made, in seconds since the epoch."""
    sources: str
    """Digest of the object and of the objects that it names."""
    template: Template | None
    """The template; None if it is invalid."""


class TemplateStore:
    """Templates by name."""

    def __init__(self, cluster: NamespaceClient, condor_host: str) -> None:
        self._cluster = cluster
        self._condor_host = condor_host
        self.reflector: Reflector[Json] = Reflector(cluster, "cronjobs", SELECTOR, lambda found: found)
        self._entries: dict[str, _Entry] = {}
        self.invalid: dict[str, str] = {}
        """Templates that cannot be used, with the reasons."""

    @property
    def objects(self) -> dict[str, Json]:
        """The CronJob objects."""
        return self.reflector.objects

    @property
    def current(self) -> dict[str, Json]:
        """The CronJob objects that have not changed since their templates were made."""
        return {
            name: found
            for name, found in self.objects.items()
            if name in self._entries and self._entries[name].version == found["metadata"]["resourceVersion"]
        }

    @property
    def fault(self) -> str:
        """Why the templates may be old; empty while they are watched."""
        return self.reflector.fault

    @property
    def usable(self) -> tuple[Template, ...]:
        """Templates that pilots can be made from, by name."""
        found = (self._entries[name].template for name in sorted(self._entries))
        return tuple(one for one in found if one is not None)

    async def refresh(self, now: float) -> None:
        """Read templates that are new, changed or old, and forget those that are gone."""
        objects = dict(self.objects)
        for name in self._entries.keys() - objects.keys():
            del self._entries[name]
            self.invalid.pop(name, None)
        for name, found in objects.items():
            entry = self._entries.get(name)
            version = found["metadata"]["resourceVersion"]
            if entry is not None and entry.version == version and time.monotonic() - entry.looked < _LOOK_SECONDS:
                continue
            try:
                wanted = [await self._source(*one) for one in source_names(found)]
            except ClusterError as error:
                logger.warning("The settings of template %s cannot be read: %s.", name, error)
                continue
            sources = [one for one in wanted if one is not None]
            digest = _digest([found, *sources])
            if entry is not None and entry.sources == digest and abs(now - entry.made) < _OLD_SECONDS:
                entry.version, entry.looked = version, time.monotonic()
                continue
            template = await self._make(name, found, sources, now)
            self._entries[name] = _Entry(
                version=version, looked=time.monotonic(), made=now, sources=digest, template=template
            )

    async def _make(self, name: str, found: Json, sources: list[Json], now: float) -> Template | None:
        try:
            template = await template_of(found, sources, self._condor_host, now)
        except TemplateError as error:
            self.invalid[name] = str(error)
            return None
        self.invalid.pop(name, None)
        return template

    async def _source(self, kind: str, name: str) -> Json | None:
        """Return an object of the namespace; None if there is none, and for a claim's template without the right."""
        try:
            found = await self._cluster.request("GET", self._cluster.path(_RESOURCES[kind], name))
        except ApiRefusal as error:
            if error.status == HTTPStatus.NOT_FOUND or (
                error.status == HTTPStatus.FORBIDDEN and kind == CLAIM_TEMPLATE
            ):
                return None
            raise
        return {**found, "kind": kind}


def _digest(objects: list[Json]) -> str:
    parts = [(one.get("spec"), one.get("data"), one["metadata"].get("annotations")) for one in objects]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
