"""The status of a pilot: its slot, HTCondor, the API server and the last faults.

`k8spilot status` shows it (k8spilot/cli/status.py).
"""

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import k8spilot
from k8spilot.condor.startd_ad import StartdAd
from k8spilot.gpu.discovery.record import GpuRecord
from k8spilot.kube.own_pod import OwnPod
from k8spilot.model.payload_state import PayloadState
from k8spilot.payload.container import PayloadContainer
from k8spilot.payload_init.server import PayloadInitServer
from k8spilot.telemetry import health
from k8spilot.telemetry.metrics import wall_time
from k8spilot.telemetry.slot_recorder import SlotRecorder

_MOMENTS: Final = {"EnteredCurrentState": "since", "GLIDEIN_ToRetire": "to_retire", "GLIDEIN_ToDie": "to_die"}
_WORDS: Final = {"PayloadState": "state", "Activity": "activity", "JobId": "job", "RemoteUser": "user"}

Json = dict[str, Any]


class Status:
    """Parts of a pilot that the status reports on."""

    def __init__(
        self,
        pod: OwnPod,
        init_server: PayloadInitServer,
        recorder: SlotRecorder,
        slot: StartdAd,
        socket: Path,
        restarts: int,
    ) -> None:
        self._pod = pod
        self._init_server = init_server
        self._recorder = recorder
        self._slot = slot
        self._socket = socket
        self._restarts = restarts
        self._began = datetime.now(UTC)

    async def json(self, payload: PayloadContainer, gpus: GpuRecord) -> Json:
        """Return the status as JSON. The startd provides the slot's part."""
        condor, dead = await asyncio.gather(self._condor(), health.dead(self._socket))
        problems = [
            fault for fault in (dead, health.unready(self._pod, self._init_server, payload.abandoned_pull)) if fault
        ]
        if condor is not None and not condor["up"]:
            problems.append("HTCondor's startd does not answer; read its messages in the pilot's log")
        if self._pod.connectivity.words:
            problems.append(f"no image can be bound: {self._pod.connectivity.words}")
        if gpus.verdict.problem:
            problems.append(f"GPUs: {gpus.verdict.problem}")
        unreachable_since = self._pod.connectivity.since
        faults = [fault.json() for fault in self._recorder.faults]
        return {
            "fit": not problems,
            "problems": problems,
            "pod": f"{self._pod.namespace}/{self._pod.name}",
            "version": k8spilot.__version__,
            "engine": {"since": _text(self._began), "restarts": self._restarts},
            "slot": _slot(payload),
            "htcondor": condor,
            "gpus": {key: value for key, value in gpus.json().items() if key != "evidence"},
            "api": {
                "reachable": unreachable_since is None,
                "away_since": None if unreachable_since is None else _of_loop(unreachable_since),
                "last_contact": None if self._pod.api.heard is None else _of_loop(self._pod.api.heard),
                "requests": self._pod.api.requests.total(),
            },
            "payload_init": (channel := self._init_server.current) is not None and channel.still_open(),
            "payload_scoped": None if channel is None else channel.scoped,
            "last_fault": faults[-1] if faults else None,
            "faults": faults,
        }

    async def _condor(self) -> Json | None:
        if not self._slot.there:
            return None
        ad = await self._slot.look(("Name", *_WORDS, *_MOMENTS))
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
