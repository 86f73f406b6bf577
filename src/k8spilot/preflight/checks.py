"""What a pilot needs around it, checked before it takes its first job, and by `k8spilot check`.

All checks that do not depend on one another are made, and all that is wrong is told: each fault is one sentence for the
operator. What a pilot can do without is a warning.
"""

import asyncio
import logging
import os
from collections.abc import Sequence
from typing import Final

from k8spilot.common.errors import PilotError, PreflightError, SettingsError
from k8spilot.condor import credentials
from k8spilot.condor.folders import Folders
from k8spilot.kube.client import Access, Api
from k8spilot.kube.events import Events
from k8spilot.preflight.cluster import Cluster, cluster_findings
from k8spilot.preflight.container import container_findings, htcondor_finding
from k8spilot.preflight.finding import Finding, Verdict, fault, faults_of, good
from k8spilot.preflight.gpus import found_finding
from k8spilot.preflight.network import pool_finding, registry_finding
from k8spilot.preflight.settings import expression_finding, policy_findings, unknown_findings
from k8spilot.settings import Settings

logger = logging.getLogger(__name__)

_MOST_EVENTS: Final = 8


class NotFit(PreflightError):
    """This cannot be a pilot; `faults` are all that is wrong, a sentence each."""

    def __init__(self, faults: Sequence[str]) -> None:
        numbered = "; ".join(f"({number}) {words}" for number, words in enumerate(faults, 1))
        super().__init__(faults[0] if len(faults) == 1 else f"{len(faults)} faults: {numbered}")
        self.faults = list(faults)


async def check(settings: Settings) -> Cluster:
    """See whether this can be a pilot.

    Returns:
        What was seen of the cluster, the own pod in it.

    Raises:
        NotFit: it cannot.
    """
    cluster = Cluster()
    findings = [*unknown_findings(os.environ), *await examine(settings, cluster)]
    for one in findings:
        if one.verdict is Verdict.WARNING:
            logger.warning("%s: %s.", one.check, one.words)
    if faults := faults_of(findings):
        raise NotFit(faults)
    return cluster


async def look_around() -> list[Finding]:
    """Make all checks with the settings of the environment, which may be at fault themselves."""
    unknown = list(unknown_findings(os.environ))
    try:
        settings = Settings.from_environment()
    except SettingsError as error:
        return [fault("settings", str(error)), *unknown]
    return [*unknown, *await examine(settings, Cluster())]


async def examine(settings: Settings, cluster: Cluster) -> list[Finding]:
    """Make all checks; `cluster` gets what is seen of it."""
    findings = [*container_findings(settings), *policy_findings(settings)]
    if "engine" in settings.services:
        try:
            async with Api(Access.in_cluster()) as api:
                findings += await cluster_findings(settings, api, cluster)
        except PreflightError as error:
            findings.append(fault("API", str(error)))
        if (gpus := found_finding(settings.exchange)) is not None:
            findings.append(gpus)
    asked = [registry_finding(settings, cluster.pod)]
    if "condor" in settings.services:
        findings.append(_pool_credentials(settings))
        findings.append(expression_finding(settings))
        asked += [htcondor_finding(), pool_finding(settings)]
    return findings + [one for one in await asyncio.gather(*asked) if one is not None]


def _pool_credentials(settings: Settings) -> Finding:
    try:
        there, passwords = credentials.read(settings, Folders.of(settings))
    except PilotError as error:
        return fault("credentials", str(error))
    return good("credentials", f"for the pool: tokens: {len(there)}, passwords: {len(passwords)}")


async def tell_verdict(error: PilotError | None, beyond: str = "") -> None:
    """Make Events on the own pod: one for each fault, or one that says that there is none; and what is not needed.

    Nothing but the downward API's variables is needed, since the settings may be at fault.
    """
    namespace, name = os.environ.get("POD_NAMESPACE", ""), os.environ.get("POD_NAME", "")
    try:
        access = Access.in_cluster()
    except PreflightError:
        return
    async with Api(access) as api:
        events = Events(api, namespace, name, os.environ.get("POD_UID", ""))
        if error is None:
            await events.tell("Fit", "All preflight checks have passed.")
        if beyond:
            await events.tell("MoreRights", f"{beyond[:1].upper()}{beyond[1:]}.")
        for words in (error.faults if isinstance(error, NotFit) else [str(error)] if error else [])[:_MOST_EVENTS]:
            await events.tell("NotFit", words)
