"""Checks of what the pilot promises: the slot's size against the pod's limits, and values that nobody has edited."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final

from k8spilot.common.errors import SettingsError
from k8spilot.model import quantity as quantities
from k8spilot.settings import ENGINE, PILOT, Settings

Json = dict[str, Any]

_MIB: Final = 2**20
_MINIMUM_MIB: Final = {PILOT: 256, ENGINE: 128}
"""Memory in MiB that the pilot's own containers need. An engine that serves many requests at once has the most."""

_RESERVED: Final = re.compile(r"(?:^|[^A-Za-z0-9-])example\.(?:org|com|net)\b", re.IGNORECASE)
"""Names that nobody has (RFC 2606), as in overlays/example."""
_EXAMPLES: Final = frozenset({"Example-Site", "Example-Resource"})


def quantity(value: object) -> float:
    """Return the number of a Kubernetes quantity in a manifest.

    Raises:
        SettingsError: it is no quantity.
    """
    try:
        return quantities.quantity(value)
    except ValueError:
        raise SettingsError(f"the manifest has the invalid quantity {str(value)!r}") from None


def size_faults(payload: Json, settings: Settings) -> Iterator[str]:
    """Check that the payload container has limits, and that the slot promises no more than these.

    Args:
        payload: the payload container in the pod's specification.
        settings: settings of the pilot.
    """
    limits, name = _limits(payload), payload["name"]
    if settings.overcommit:
        return
    if missing := [resource for resource in ("cpu", "memory") if resource not in limits]:
        lacking = " and ".join(missing)
        yield (
            f"set resources.limits.cpu and .memory of the container {name} (it has no limit of {lacking}); "
            "otherwise the slot promises what other pods use"
        )
    cpus, memory = limits.get("cpu"), limits.get("memory")
    if any(slot.container == name and slot.is_dynamic for slot in settings.slots):  # the size of its present job
        known = settings.payload_memory_mb  # the engine's own container does not know it, nor what is promised
        cpus, memory = settings.payload_cpus, None if known is None else f"{known}Mi"
    if cpus is not None and (settings.num_cpus or 0) > math.ceil(quantity(cpus)):
        yield _beyond("NUM_CPUS", f"{settings.num_cpus} CPUs", f"cpu: {cpus}", name)
    if memory is not None and (settings.memory or 0) > math.ceil(quantity(memory) / _MIB):
        yield _beyond("MEMORY", f"{settings.memory} MiB", f"memory: {memory}", name)


def size_warnings(payload: Json, others: list[Json]) -> Iterator[str]:
    """Yield what a pilot can run with, but not well.

    Args:
        payload: the payload container in the pod's specification.
        others: the other containers.
    """
    if "ephemeral-storage" not in _limits(payload):
        yield (
            f"set resources.limits.ephemeral-storage of the container {payload['name']}; otherwise a job can fill the "
            "node's disk, and the slot promises all free space of the volume"
        )
    for container in others:
        limit, least = _limits(container).get("memory"), _MINIMUM_MIB.get(container["name"])
        if limit is not None and least is not None and quantity(limit) < least * _MIB:
            yield (
                f"set resources.limits.memory of the container {container['name']} to {least}Mi or more (it is "
                f"{limit}); otherwise the kernel can end the pilot under its job"
            )


def placeholder_faults(settings: Settings) -> Iterator[str]:
    """Yield the settings that still have a value of overlays/example."""
    values = {
        "GLIDEIN_Site": settings.glidein_site,
        "GLIDEIN_ResourceName": settings.glidein_resource_name,
        "CONDOR_HOST": settings.condor_host,
        "POOL": settings.pool,
        "K8SPILOT_DEFAULT_IMAGE": settings.default_image,
        "K8SPILOT_IMAGE_MAP": " ".join(rule.replacement for rule in settings.image_map),
        "K8SPILOT_ALLOWED_IMAGES": " ".join(settings.allowed_images),
    }
    for name, value in values.items():
        if is_placeholder(value or ""):
            yield f"{name} is a placeholder ({json.dumps(value)}); set it to your own value, or remove it"


def is_placeholder(value: str) -> bool:
    """Return whether a value is one of overlays/example, which nobody has."""
    return value in _EXAMPLES or _RESERVED.search(value) is not None


def _limits(container: Json) -> Json:
    return (container.get("resources") or {}).get("limits") or {}


def _beyond(variable: str, promised: str, limit: str, name: str) -> str:
    return (
        f"{variable} promises {promised}, but the container {name} has the limit {limit}; lower {variable} or remove "
        "it, raise the limit, or set K8SPILOT_OVERCOMMIT=true if jobs are to share less than they are promised"
    )
