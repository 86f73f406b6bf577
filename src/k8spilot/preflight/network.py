"""What the pilot asks over the network beside the API: the image's registry, and the pool.

Neither is needed at the very start: jobs whose image's registry is away go back to the queue, and HTCondor goes on
trying to reach its pool. So what is away is a warning. What a registry says for good is one, too: images of other
registries may be had all the same.
"""

import asyncio
import re
from typing import Any, Final

from k8spilot.common.errors import ImageError, RegistryUnreachable
from k8spilot.condor.pools import resolve
from k8spilot.kube.pod import container
from k8spilot.model.reference import Reference
from k8spilot.preflight.finding import Finding, good, warning
from k8spilot.registry.skopeo import Registry
from k8spilot.settings import PILOT, Settings

_SECONDS: Final = 10.0
_PORT: Final = 9618
"""The collector's (condor_collector, COLLECTOR_PORT)."""
_HOST: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:]+\]|[^:?\[\]]+)(?::(?P<port>\d+))?(?:\?.*)?")


async def registry_finding(settings: Settings, pod: dict[str, Any]) -> Finding | None:
    """Ask the registry of the pilot's own image for it, as for jobs' images; None where the pod has not been seen."""
    view = container(pod, PILOT)
    if view is None or "engine" not in settings.services:
        return None
    registry = Registry(settings.pull_secret if settings.pull_secret.exists() else None)
    try:
        async with asyncio.timeout(_SECONDS):
            reference = Reference.parse(view.wanted)
            await registry.digest(reference)
    except TimeoutError:
        words = f"the registry of image {view.wanted} did not answer within {_SECONDS:.0f} s"
    except (ImageError, RegistryUnreachable) as error:
        words = str(error)
    except OSError:
        return None  # skopeo is missing, which is told
    else:
        return good("registry", f"{reference.repository.partition('/')[0]} can be asked about images")
    return warning(
        "registry",
        f"{words}; the pod needs the network to its images' registries, credentials (Secret pull-secret) and "
        "mirrors (ConfigMap registries) as the node has them; jobs whose registry cannot be asked go back to the queue",
    )


async def pool_finding(settings: Settings) -> Finding:
    """Connect to the central managers, one after the other."""
    hosts = resolve(settings).condor_host.split(",")
    words = []
    for host in hosts:
        match = _HOST.fullmatch(host.strip())
        if match is None:
            words.append(f"{host} is no host")
            continue
        try:
            async with asyncio.timeout(_SECONDS):
                _, writer = await asyncio.open_connection(match["host"].strip("[]"), int(match["port"] or _PORT))
            writer.close()
        except OSError as error:
            words.append(f"{host}: {error.strerror or str(error) or 'no answer'}")
        else:
            return good("pool", f"the collector at {host} can be reached")
    return warning(
        "pool",
        f"no collector of the pool can be reached ({'; '.join(words)}); look at CONDOR_HOST or POOL, and let the "
        "network policies allow TCP to it",
    )
