"""All preflight checks, in their order.

Checks that do not depend on each other all run, and all faults are reported: each fault is one sentence for the
operator. A pilot can run despite a warning.
"""

import asyncio
import logging
import os
from collections.abc import Sequence
from typing import Final

from k8spilot.common.errors import ClusterError, PilotError, PreflightError, SettingsError
from k8spilot.common.logs import capitalized
from k8spilot.condor import credentials
from k8spilot.condor.folders import Folders
from k8spilot.kube.client import Access, Api
from k8spilot.kube.events import Events
from k8spilot.preflight import late_credentials
from k8spilot.preflight.cluster import Cluster, cluster_findings
from k8spilot.preflight.finding import Finding, Verdict, fault, faults_of, good
from k8spilot.preflight.gpus import discovery_finding
from k8spilot.preflight.network import pool_finding, registry_finding
from k8spilot.preflight.pilot_container import container_findings, htcondor_finding
from k8spilot.preflight.resizing import sizes_finding, why_equal
from k8spilot.preflight.settings import policy_findings, settings_findings, unknown_findings
from k8spilot.settings import Settings
from k8spilot.settings.unknown_variables import ineffective

logger = logging.getLogger(__name__)

_MOST_EVENTS: Final = 8
_CREDENTIALS: Final = "credentials"
"""Subject of the check of the pool's credentials."""


class NotFit(PreflightError):
    """Raised when the pod cannot run a pilot; `faults` has one sentence for each fault."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        faults = faults_of(findings)
        numbered = "; ".join(f"({number}) {message}" for number, message in enumerate(faults, 1))
        super().__init__(faults[0] if len(faults) == 1 else f"{len(faults)} faults: {numbered}")
        self.faults = faults
        self.lacks_credentials_only = {one.check for one in findings if one.verdict is Verdict.FAULT} == {_CREDENTIALS}
        """Whether nothing is wrong but the pool's credentials, which may come later."""


async def check(settings: Settings) -> Cluster:
    """Check whether the pod can run a pilot.

    Returns:
        Facts of the cluster, with the own pod.

    Raises:
        NotFit: it cannot.
    """
    cluster = Cluster()
    findings = [*unknown_findings(os.environ), *await examine(settings, cluster)]
    for finding in findings:
        if finding.verdict is Verdict.WARNING:
            logger.warning("%s: %s.", finding.check, finding.words)
    if faults_of(findings):
        raise NotFit(findings)
    return cluster


async def check_and_wait(settings: Settings) -> Cluster:
    """Check as `check` does, and wait for a Secret with the pool's credentials if nothing else is wrong.

    Raises:
        NotFit: the pod cannot run a pilot, or there are no credentials in time.
    """
    try:
        return await check(settings)
    except NotFit as error:
        # HTCondor's own container (components/restricted) cannot create the Event, so it exits: the end of a
        # container is visible.
        if not error.lacks_credentials_only or "engine" not in settings.services:
            raise
        seconds = late_credentials.LIMIT_SECONDS
        logger.warning("Waiting up to %.0f min for the Secret: %s.", seconds / 60, error)
        await report_verdict(error)
        if not await late_credentials.come(settings, Folders.of(settings), seconds):
            raise
    return await check(settings)


async def check_all() -> list[Finding]:
    """Make all checks with the settings of the environment, which may be invalid."""
    unknown = list(unknown_findings(os.environ))
    try:
        settings = Settings.from_environment()
    except SettingsError as error:
        return [fault("settings", str(error)), *unknown]
    return [*unknown, *await examine(settings, Cluster(), runs=True)]


async def examine(settings: Settings, cluster: Cluster, *, runs: bool = False) -> list[Finding]:
    """Make all checks.

    Args:
        settings: settings of the pilot.
        cluster: receives the facts of the cluster.
        runs: whether a pilot may run here already.
    """
    findings = [*container_findings(settings), *policy_findings(settings), *settings_findings(settings)]
    if "engine" in settings.services:
        try:
            async with Api(Access.in_cluster()) as api:
                findings += await cluster_findings(settings, api, cluster)
                if settings.is_partitionable and not faults_of(findings):
                    cluster.why_equal = await why_equal(settings, api, runs=runs)
                    findings.append(sizes_finding(settings, cluster.why_equal))
        except (PreflightError, ClusterError) as error:
            findings.append(fault("API", str(error)))
        gpus = [discovery_finding(slot.exchange) for slot in settings.slots]
        findings += [finding for finding in gpus if finding is not None]
    checks = [registry_finding(settings, cluster.pod)]
    if "condor" in settings.services:
        findings.append(_pool_credentials(settings))
        checks += [htcondor_finding(), pool_finding(settings, runs=runs)]
    return findings + [finding for finding in await asyncio.gather(*checks) if finding is not None]


def _pool_credentials(settings: Settings) -> Finding:
    try:
        tokens, passwords = credentials.read(settings, Folders.of(settings))
    except PilotError as error:
        return fault(_CREDENTIALS, str(error))
    return good(_CREDENTIALS, f"for the pool: tokens: {len(tokens)}, passwords: {len(passwords)}")


async def report_verdict(error: PilotError | None, beyond: str = "", equal: str = "") -> None:
    """Create Events of the own pod: for each fault, excess right and variable without effect.

    Success is the engine's Event Fit.

    The function needs the downward API's variables only, because the settings may be invalid.

    Args:
        error: the fault, or None.
        beyond: a sentence about excess rights, or an empty string.
        equal: a sentence about slots of equal size, or an empty string.
    """
    namespace, name = os.environ.get("POD_NAMESPACE", ""), os.environ.get("POD_NAME", "")
    try:
        access = Access.in_cluster()
    except PreflightError:
        return
    async with Api(access) as api:
        events = Events(api, namespace, name, os.environ.get("POD_UID", ""))
        if beyond:
            await events.publish("MoreRights", f"{capitalized(beyond)}.")
        if equal:
            await events.publish("EqualSlots", f"{capitalized(equal)}.")
        for ignored in [one for one in ineffective(os.environ) if not one.refused and error is None][:_MOST_EVENTS]:
            await events.publish("SettingIgnored", f"{ignored.words}.")
        for message in (error.faults if isinstance(error, NotFit) else [str(error)] if error else [])[:_MOST_EVENTS]:
            await events.publish("NotFit", message)
