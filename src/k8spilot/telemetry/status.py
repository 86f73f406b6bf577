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
from k8spilot.condor.ads.startd_ad import StartdAd
from k8spilot.gpu.discovery.record import GpuRecord
from k8spilot.gpu.pod_gpus import PodGpus
from k8spilot.kube.own_pod import OwnPod
from k8spilot.model.payload_state import PayloadState
from k8spilot.payload.container import PayloadContainer
from k8spilot.payload_init.server import PayloadInitServer
from k8spilot.settings import SlotSettings
from k8spilot.settings.unknown_variables import ineffective
from k8spilot.telemetry import health
from k8spilot.telemetry.metrics import wall_time
from k8spilot.telemetry.pool_recorder import PoolRecorder
from k8spilot.telemetry.slot_recorder import SlotRecorder

_ENDS: Final = {"GLIDEIN_ToRetire": "to_retire", "GLIDEIN_ToDie": "to_die"}
_WORDS: Final = {"Name": "name", "State": "state", "Activity": "activity", "JobId": "job", "RemoteUser": "user"}
_SINCE: Final = "EnteredCurrentState"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ObservedSlot:
    """The parts of a slot that are looked at."""

    settings: SlotSettings
    init_server: PayloadInitServer
    payload: PayloadContainer
    gpus: GpuRecord


@dataclass(frozen=True)
class Observed:
    """The parts of a pilot that are looked at."""

    pod: OwnPod
    startd_ad: StartdAd
    slots: tuple[ObservedSlot, ...]
    restarts: int
    """Engines that died in this container before this one."""
    equal_slots: str = ""
    """Sentence about slots of equal size instead of a partitionable slot."""

    @cached_property
    def gpus(self) -> PodGpus:
        """The GPUs of all payload containers."""
        return PodGpus({slot.settings.number: slot.gpus for slot in self.slots})


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
        pod, slots, gpus = self._observed.pod, self._observed.slots, self._observed.gpus
        ads, dead = await asyncio.gather(self._ads(), health.dead(self._socket))
        condor = None if ads is None else _condor(ads)
        unready = [health.unready(pod, one.init_server, one.payload.abandoned_pull) for one in slots]
        problems = [fault for fault in dict.fromkeys((dead, *unready)) if fault]
        if condor is not None and not condor["up"]:
            problems.append("HTCondor's startd does not answer; read its messages in the pilot's log")
        if self._observed.startd_ad.expected and self._pool.problem:
            problems.append(self._pool.problem)
        if pod.connectivity.fault:
            problems.append(f"no image can be bound: {pod.connectivity.fault}")
        if (closure := self._recorder.closure) is not None and closure.lasts:
            problems.append(f"{closure.words}, until {_text(closure.until)}")
        if gpus.problem:
            problems.append(f"GPUs: {gpus.problem}")
        unreachable_since = pod.connectivity.since
        faults = [fault.json() for fault in self._recorder.faults]
        return {
            "fit": not problems,
            "problems": problems,
            "ignored_settings": self._ignored,
            "pod": f"{pod.namespace}/{pod.name}",
            "version": k8spilot.__version__,
            "engine": {"since": _text(self._began), "restarts": self._observed.restarts},
            "equal_slots": self._observed.equal_slots or None,
            "slots": [_slot(one, ads or []) for one in slots],
            "htcondor": condor,
            "pool": self._pool.json(),
            "gpus": gpus.json(evidence=False),
            "api": {
                "reachable": unreachable_since is None,
                "away_since": None if unreachable_since is None else _of_loop(unreachable_since),
                "last_contact": None if pod.api.heard is None else _of_loop(pod.api.heard),
                "requests": pod.api.requests.total(),
            },
            "last_fault": faults[-1] if faults else None,
            "faults": faults,
        }

    async def _ads(self) -> list[Json] | None:
        """Return the slots' ads; None without HTCondor, and an empty list if the startd does not answer."""
        if not self._observed.startd_ad.is_connected:
            return None
        return await self._observed.startd_ad.query((*_WORDS, _SINCE, *_ENDS)) or []


def _condor(ads: list[Json]) -> Json:
    """Return what the ads have in common."""
    if not ads:
        return {"up": False}
    ends = {name: _moment(ads[0][key]) for key, name in _ENDS.items() if key in ads[0]}
    return {"up": True, **ends, "retiring": bool(ads[0].get("GLIDEIN_ToRetire", time.time() + 1) <= time.time())}


def _slot(slot: ObservedSlot, ads: list[Json]) -> Json:
    """Return the state of a slot: of its payload container, and of HTCondor."""
    payload, channel = slot.payload, slot.init_server.current
    running = payload.running_since
    busy = payload.state is not PayloadState.IDLE
    ad = next((ad for ad in ads if str(ad.get("Name")).partition("@")[0] == slot.settings.name), None)
    return {
        "name": slot.settings.name,
        "container": payload.name,
        "state": payload.state.value,
        "since": _text(payload.since),
        "image": str(payload.reference) if payload.reference is not None else None,
        "attempt": payload.subject.attempt or None if busy else None,
        "job": payload.subject.job or None if busy else None,
        "job_since": None if running is None else _text(running),
        "payload_init": channel is not None and channel.still_open(),
        "payload_scoped": None if channel is None else channel.scoped,
        "htcondor": None if ad is None else _of_htcondor(ad),
    }


def _of_htcondor(ad: Json) -> Json:
    texts = {name: ad[key] for key, name in _WORDS.items() if key in ad}
    return {**texts, **({"since": _moment(ad[_SINCE])} if _SINCE in ad else {})}


def _moment(seconds: float) -> str:
    return _text(datetime.fromtimestamp(seconds, UTC))


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


def _of_loop(moment: float) -> str:
    return _text(datetime.fromtimestamp(wall_time(moment, asyncio.get_running_loop().time()), UTC))
