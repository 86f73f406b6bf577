"""Checks of the network beyond the API server: the registry of the pilot's image, and the pool.

A pilot can start without both: jobs with images of an unreachable registry return to the queue, and HTCondor keeps
trying to reach its pool. An unreachable service is therefore a warning at the start. A registry's final refusal is a
warning, too, because images of other registries may still be available.
"""

import asyncio
from typing import Any, Final

from k8spilot.common.errors import BindError, RegistryUnreachable
from k8spilot.condor.configuration.pools import resolve
from k8spilot.condor.daemons.collectors import Collectors, unreachable
from k8spilot.condor.folders import Folders
from k8spilot.kube.pod import container
from k8spilot.model.reference import Reference
from k8spilot.preflight.finding import Finding, fault, good, warning
from k8spilot.registry.skopeo import Registry
from k8spilot.settings import PILOT, Settings

_LIMIT_SECONDS: Final = 10.0


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


async def pool_finding(settings: Settings, *, runs: bool = False) -> Finding:
    """Check the way to the pool.

    Before HTCondor has a configuration, this is a TCP connection to a central manager: the pilot starts in any case,
    and its watch of the pool authenticates (condor/daemons/pool_watch.py).

    Args:
        settings: settings of the pilot.
        runs: whether a pilot may run here. Then its collectors are asked whether it may advertise its slot.
    """
    folders = Folders.of(settings)
    is_configured = runs and folders.config.exists()
    problems = []
    for host in resolve(settings).condor_host.split(","):
        if not (problem := await unreachable(host.strip())):
            break
        problems.append(problem)
    else:
        words = f"no collector of the pool is reachable: {'; '.join(problems)}"
        return fault("pool", words) if is_configured else warning("pool", words)
    if not is_configured:
        return good("pool", f"the collector at {host} is reachable")
    answer = await Collectors(settings, folders).ping()
    if answer.problem:
        return fault("pool", answer.problem)
    return good("pool", f"the collector at {answer.collector} takes this pilot's slot, as {answer.identity}")
