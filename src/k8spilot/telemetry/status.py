"""The status of a pilot: its slot, HTCondor, the API server and the last faults.

`k8spilot status` shows it (k8spilot/cli/status.py).
"""

import asyncio
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import k8spilot
from k8spilot.condor.startd_ad import StartdAd
from k8spilot.gpu.discovery.record import GpuRecord
from k8spilot.kube.own_pod import OwnPod
from k8spilot.model.payload_state import PayloadState
from k8spilot.payload.container import PayloadContainer
from k8spilot.payload_init.server import PayloadInitServer
from k8spilot.settings.unknown_variables import ineffective
from k8spilot.telemetry import health
from k8spilot.telemetry.metrics import wall_time
from k8spilot.telemetry.pool_recorder import PoolRecorder
from k8spilot.telemetry.slot_recorder import SlotRecorder

_MOMENTS: Final = {"EnteredCurrentState": "since", "GLIDEIN_ToRetire": "to_retire", "GLIDEIN_ToDie": "to_die"}
_WORDS: Final = {"State": "state", "Activity": "activity", "JobId": "job", "RemoteUser": "user"}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Observed:
    """The parts of a pilot that are looked at."""

    pod: OwnPod
    init_server: PayloadInitServer
    startd_ad: StartdAd
    payload: PayloadContainer
    gpus: GpuRecord
    restarts: int
    """Engines that died in this container before this one."""


class Status:
    """Parts of a pilot that the status reports on."""

    def __init__(self, observed: Observed, recorder: SlotRecorder, pool: PoolRecorder, socket: Path) -> None:
        self._observed = observed
        self._recorder = recorder
        self._pool = pool
        self._socket = socket
        self._began = datetime.now(UTC)

    @cached_property
    def _ignored(self) -> list[str]:
        """Sentences about the variables that have no effect. Nothing changes the engine's environment."""
        return [one.words for one in ineffective(os.environ)]

    async def json(self) -> Json:
        """Return the status as JSON. The startd provides the slot's part."""
        pod, payload, gpus = self._observed.pod, self._observed.payload, self._observed.gpus
        init_server = self._observed.init_server
        condor, dead = await asyncio.gather(self._condor(), health.dead(self._socket))
        problems = [fault for fault in (dead, health.unready(pod, init_server, payload.abandoned_pull)) if fault]
        if condor is not None and not condor["up"]:
            problems.append("HTCondor's startd does not answer; read its messages in the pilot's log")
        if self._observed.startd_ad.expected and self._pool.problem:
            problems.append(self._pool.problem)
        if pod.connectivity.words:
            problems.append(f"no image can be bound: {pod.connectivity.words}")
        if (closure := self._recorder.closure) is not None and closure.lasts:
            problems.append(f"{closure.words}, until {_text(closure.until)}")
        if gpus.verdict.problem:
            problems.append(f"GPUs: {gpus.verdict.problem}")
        unreachable_since = pod.connectivity.since
        faults = [fault.json() for fault in self._recorder.faults]
        return {
            "fit": not problems,
            "problems": problems,
            "ignored_settings": self._ignored,
            "pod": f"{pod.namespace}/{pod.name}",
            "version": k8spilot.__version__,
            "engine": {"since": _text(self._began), "restarts": self._observed.restarts},
            "slot": _slot(payload),
            "htcondor": condor,
            "pool": self._pool.json(),
            "gpus": {key: value for key, value in gpus.json().items() if key != "evidence"},
            "api": {
                "reachable": unreachable_since is None,
                "away_since": None if unreachable_since is None else _of_loop(unreachable_since),
                "last_contact": None if pod.api.heard is None else _of_loop(pod.api.heard),
                "requests": pod.api.requests.total(),
            },
            "payload_init": (channel := init_server.current) is not None and channel.still_open(),
            "payload_scoped": None if channel is None else channel.scoped,
            "last_fault": faults[-1] if faults else None,
            "faults": faults,
        }

    async def _condor(self) -> Json | None:
        if not self._observed.startd_ad.there:
            return None
        ad = await self._observed.startd_ad.look(("Name", *_WORDS, *_MOMENTS))
        if ad is None:
            return {"up": False}
        texts = {name: ad[key] for key, name in _WORDS.items() if key in ad}
        moments = {name: _text(datetime.fromtimestamp(ad[key], UTC)) for key, name in _MOMENTS.items() if key in ad}
        retiring = bool(ad.get("GLIDEIN_ToRetire", time.time() + 1) <= time.time())
        return {"up": True, "name": ad.get("Name"), **texts, **moments, "retiring": retiring}


def _slot(payload: PayloadContainer) -> Json:
    """Return the state of the payload container."""
    running = payload.running_since
    busy = payload.state is not PayloadState.IDLE
    return {
        "container": payload.name,
        "state": payload.state.value,
        "since": _text(payload.since),
        "image": str(payload.reference) if payload.reference is not None else None,
        "attempt": payload.subject.attempt or None if busy else None,
        "job": payload.subject.job or None if busy else None,
        "job_since": None if running is None else _text(running),
    }


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


def _of_loop(moment: float) -> str:
    return _text(datetime.fromtimestamp(wall_time(moment, asyncio.get_running_loop().time()), UTC))
