"""Verdicts on the ends of HTCondor's jobs: whether the job is held, and whether the slot still runs jobs."""

import asyncio
import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from k8spilot.common import logs
from k8spilot.common.errors import (
    BindError,
    ImageNotAllowed,
    JobKillsContainer,
    PayloadKilled,
    PilotError,
)
from k8spilot.docker.container import Container
from k8spilot.model.black_hole import QUICK_SECONDS, USERS, BlackHole
from k8spilot.model.killed_containers import IN_A_ROW, DeathCause, KilledContainers
from k8spilot.model.outcome import Outcome
from k8spilot.payload.listeners import CLOSED_SECONDS, SlotListener

logger = logging.getLogger(__name__)

_LOSSES: Final = 3
_HOST_NAME: Final = re.compile(r"(?P<owner>[^/\s]+?)-(?P<job>\d+\.\d+)-")


def owner_of(job: str, body: Mapping[str, Any]) -> str:
    """Return the owner of a job; empty if unknown.

    HTCondor gives each container a host name of owner, job and machine (docker-api.cpp, makeHostname). The owner is the
    access point's, so that no user can choose another one.

    Args:
        job: HTCondor's cluster.proc.
        body: the request for its container.
    """
    name = body.get("Hostname")
    match = _HOST_NAME.match(name) if isinstance(name, str) else None
    return match["owner"] if match is not None and match["job"] == job else ""


def _result(container: Container) -> Outcome | None:
    """Return the result of a settled container's own command; None if it has none, and HTCondor's kill ended it."""
    return None if container.loss is not None else container.outcome


class JobEnds:
    """Classifies how the jobs of one slot end, and reports it to the listener."""

    def __init__(self, listener: SlotListener, killed: KilledContainers) -> None:
        """Initialize; `killed` counts the jobs of all slots."""
        self._listener = listener
        self._black_hole = BlackHole()
        self._killed = killed
        self._losses = 0
        """Jobs that were lost since the last one with a result."""

    def judge(self, container: Container) -> None:
        """Hold the job of `container` if it kills its container again and again."""
        job = container.subject.job
        owner = owner_of(job, container.specification.body)

        def verdict(error: PayloadKilled) -> PilotError | None:
            match self._killed.add(job, owner):
                case DeathCause.NONE:
                    return None
                case DeathCause.JOB:
                    words = f"the job has again ended its own container's first process by signal {error.number}"
                case DeathCause.USER:
                    words = (
                        f"the job has ended its own container's first process by signal {error.number}, as the last "
                        f"{IN_A_ROW} jobs of its user in this pilot have"
                    )
            reason = JobKillsContainer(
                f"{words}; does it signal all processes of its user? Let it signal its own process group only"
            )
            self._listener.held(reason, "end")
            return reason

        container.verdict = verdict

    async def watch(self, container: Container) -> None:
        """Wait for the end of a job's container, and count it."""
        await container.settled.wait()
        owner = owner_of(container.subject.job, container.specification.body)
        if container.run is None and container.error:
            await self._count(owner)
        if container.signalled:
            return
        if container.run is None:
            # Before the release of its command. The handler of `create` has counted a job without a bind.
            if container.loss is not None and container.bind is not None:
                await self.lost()
            return
        outcome = _result(container)
        if outcome is not None:
            self._losses = 0
            self._killed.passed(owner)
        elif container.loss is not None and not isinstance(container.loss, PayloadKilled):
            await self.lost()
        if container.error or (outcome is not None and outcome.out_of_memory):  # held for what it did itself
            return
        seconds = (datetime.now(UTC) - container.run.began).total_seconds()
        if seconds > QUICK_SECONDS or (outcome is not None and outcome.code == 0):
            self._black_hole.passed()
        else:
            await self._count(owner)

    async def lost(self) -> None:
        """Count a job that the pod has lost. Jobs may be lost again and again, so that several close the slot."""
        self._losses += 1
        if self._losses >= _LOSSES:
            logger.warning(
                "%d jobs were lost one after another; the slot takes no job for %.0f s.", self._losses, CLOSED_SECONDS
            )
            await self._listener.away("lost", CLOSED_SECONDS)

    async def refused(self, error: PilotError, body: Mapping[str, Any]) -> None:
        """Count a job that HTCondor holds because its image does not exist or does not run here."""
        if isinstance(error, BindError) and not isinstance(error, ImageNotAllowed):
            await self._count(owner_of(logs.subject().job, body))

    async def _count(self, owner: str) -> None:
        seconds = self._black_hole.failed(owner, asyncio.get_running_loop().time())
        if seconds:
            await self._listener.black_hole(
                seconds,
                f"the last jobs of {USERS} users failed within {QUICK_SECONDS:.0f} s each, one after another; the slot "
                f"takes no job for {seconds / 60:.0f} min",
            )
