"""Checks of the network beyond the API server: the registry of the pilot's image, and the pool.

A pilot can start without both: jobs with images of an unreachable registry return to the queue, and HTCondor keeps
trying to reach its pool. An unreachable service is therefore a warning. A registry's final refusal is a warning, too,
because images of other registries may still be available.
"""

import asyncio
import re
from typing import Any, Final

from k8spilot.common.errors import BindError, RegistryUnreachable
from k8spilot.condor.pools import resolve
from k8spilot.kube.pod import container
from k8spilot.model.reference import Reference
from k8spilot.preflight.finding import Finding, good, warning
from k8spilot.registry.skopeo import Registry
from k8spilot.settings import PILOT, Settings

_LIMIT_SECONDS: Final = 10.0
_PORT: Final = 9618
"""Default port of the collector (condor_collector, COLLECTOR_PORT)."""
_HOST: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:]+\]|[^:?\[\]]+)(?::(?P<port>\d+))?(?:\?.*)?")


async def registry_finding(settings: Settings, pod: dict[str, Any]) -> Finding | None:
    """Query the registry of the pilot's own image, as for jobs' images; None where the pod is unknown."""
    view = container(pod, PILOT)
    if view is None or "engine" not in settings.services:
        return None
    registry = Registry(settings.pull_secret if settings.pull_secret.exists() else None)
    try:
        async with asyncio.timeout(_LIMIT_SECONDS):
            reference = Reference.parse(view.wanted)
            await registry.digest(reference)
    except TimeoutError:
        message = f"the registry of image {view.wanted} did not answer within {_LIMIT_SECONDS:.0f} s"
    except (BindError, RegistryUnreachable) as error:
        message = str(error)
    except OSError:
        return None  # skopeo is missing: the check of the programs reports it
    else:
        return good("registry", f"{reference.repository.partition('/')[0]} answers requests for images")
    return warning(
        "registry",
        f"{message}; give the pod network access to its images' registries, and the node's credentials (Secret "
        "pull-secret) and mirrors (ConfigMap registries); jobs whose registry is unreachable return to the queue",
    )


async def pool_finding(settings: Settings) -> Finding:
    """Connect to the central managers, one after the other."""
    hosts = resolve(settings).condor_host.split(",")
    failures = []
    for host in hosts:
        match = _HOST.fullmatch(host.strip())
        if match is None:
            failures.append(f"{host!r} is not a valid host")
            continue
        try:
            async with asyncio.timeout(_LIMIT_SECONDS):
                _, writer = await asyncio.open_connection(match["host"].strip("[]"), int(match["port"] or _PORT))
            writer.close()
        except OSError as error:
            failures.append(f"{host}: {error.strerror or str(error) or 'no answer'}")
        else:
            return good("pool", f"the collector at {host} is reachable")
    return warning(
        "pool",
        f"no collector of the pool is reachable ({'; '.join(failures)}); check CONDOR_HOST or POOL, and let the "
        "network policies allow TCP to it",
    )
