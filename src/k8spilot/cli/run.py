"""`k8spilot run`: the start of a pilot, before this process becomes the supervisor (supervisor/supervisor.c).

exec releases the memory of code that only the start needs, such as HTCondor's libraries. What this module imports is
loaded once more by the engine, and costs each pilot processor time; so it imports no module that serves requests.
"""

import asyncio
import fcntl
import grp
import json
import logging
import os
import resource
import sys
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, NoReturn

from k8spilot.common import logs
from k8spilot.common.errors import PilotError, PreflightError
from k8spilot.condor.environment import environment
from k8spilot.condor.folders import Folders
from k8spilot.condor.install import prepare
from k8spilot.docker.command_lines.create import check_extra
from k8spilot.docker.listening import listen
from k8spilot.engine.memory import MEMORY
from k8spilot.kube.pod import start_of_life
from k8spilot.preflight import checks
from k8spilot.preflight.cluster import Cluster
from k8spilot.preflight.resizing import equal_slots
from k8spilot.preflight.writable_volumes import make_fresh, shut_termination_log
from k8spilot.settings import SLOT_SIZES, Settings
from k8spilot.supervisor.plan import EQUAL_SLOTS, FACTS, PLAN, PROGRAM, SOCKETS, Child, Plan
from k8spilot.supervisor.predecessor import end_predecessor

logger = logging.getLogger(__name__)

_SIZES: Final = "K8SSlotSizes"
"""Attribute of the slots, `requested` or `equal`. By it HTCondor's own container learns what the engine has found."""


def start() -> NoReturn:
    """Check the pod, prepare everything, and become the supervisor of the engine and of HTCondor.

    Raises:
        PilotError: the pilot cannot run here; the pod's Events have the reason, too.
    """
    try:
        settings = Settings.from_environment()
        logs.set_up(settings.log_level, settings.log_format)
        # The namespace is the pod's and not the node's if the parent is outside of it, or if the checks say so.
        is_of_pod = os.getppid() == 0
        if is_of_pod:
            _end_predecessor(settings)
        make_fresh()
        shut_termination_log()
        cluster = asyncio.run(checks.check_and_wait(settings))
        if not is_of_pod and _end_predecessor(settings):
            make_fresh()
        settings, equal = _with_possible_sizes(settings, cluster)
        plan = _prepared(settings, cluster, equal)
    except PilotError as error:
        asyncio.run(checks.report_verdict(error))
        raise
    asyncio.run(checks.report_verdict(None, cluster.beyond, equal))
    _become_supervisor(settings, plan)


def _with_possible_sizes(settings: Settings, cluster: Cluster) -> tuple[Settings, str]:
    """Return the settings, with equal slots if the cluster allows no partitionable one, and a sentence about that."""
    if not cluster.why_equal:
        return settings, ""
    return replace(settings, slot_sizes="equal"), equal_slots(settings, cluster.why_equal)


def _prepared(settings: Settings, cluster: Cluster, equal: str) -> Plan:
    """Prepare everything in the supervisor's plan, and return the plan."""
    reason = ""
    if "engine" in settings.services:
        attributes = {**cluster.attributes(), _SIZES: settings.slot_sizes if len(settings.slots) > 1 else ""}
        facts: dict[str, Any] = {"started": start_of_life(cluster.pod), "attributes": attributes}
        name, module, sockets = "engine", "k8spilot.engine", len(settings.sockets)
    else:
        from k8spilot.condor import agent  # noqa: PLC0415 -- 40 ms of each pilot's start, which most pilots do not need

        facts = asyncio.run(agent.facts(settings.socket))
        settings = replace(settings, slot_sizes=facts["attributes"].get(_SIZES) or settings.slot_sizes)
        name, module, sockets = "agent", "k8spilot.condor.agent", 0
    sizes = {SLOT_SIZES: settings.slot_sizes, EQUAL_SLOTS: equal}
    variables = {**MEMORY, **_without_secrets(), FACTS: json.dumps(facts["attributes"]), **sizes}
    children = [Child(name, [sys.executable, "-P", "-m", module], variables, sockets)]
    if "condor" in settings.services:
        folders = Folders.of(settings)
        started = datetime.fromisoformat(facts["started"])
        prepare(
            settings,
            folders,
            started=int(started.timestamp()),
            facts=facts["attributes"],
            check_extra=check_extra,
        )
        reason = str(folders.end_reason)
        children.append(Child("condor", ["condor_master", "-f"], environment(settings, folders, os.environ)))
    return Plan(children, sockets, reason)


def _end_predecessor(settings: Settings) -> bool:
    """End what an earlier container has left; return whether there was something.

    Raises:
        PreflightError: some processes do not end.
    """
    try:
        killed = end_predecessor(settings.services)
    except OSError as error:
        raise PreflightError(f"{error}; delete the pod") from error
    if killed:
        logger.warning("The container before has left processes, which its runtime did not end; killed %d.", killed)
    return killed > 0


def _become_supervisor(settings: Settings, plan: Plan) -> NoReturn:
    group = _group("condor")
    paths = settings.sockets if "engine" in settings.services else ()
    listening = [listen(path, group).detach() for path in paths]
    text = os.memfd_create("plan", 0)
    os.write(text, plan.encode())
    os.lseek(text, 0, os.SEEK_SET)
    # Duplicate the descriptors above their final numbers first, so that dup2 does not overwrite one of them. Only the
    # descriptors at their final numbers are inherited.
    beyond = SOCKETS + len(paths)
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD, beyond) for end in (text, *listening)]
    for end, number in zip(ends, range(PLAN, beyond), strict=True):
        os.dup2(end, number, inheritable=True)
    os.closerange(beyond, 1024)
    # A core dump of any later process, including HTCondor's, would contain tokens.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.execve(PROGRAM, [str(PROGRAM)], _without_secrets())  # noqa: S606


def _without_secrets() -> dict[str, str]:
    """Return the environment without the token, which is already in its file."""
    return {name: value for name, value in os.environ.items() if name.upper() != "TOKEN"}


def _group(name: str) -> int | None:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None
