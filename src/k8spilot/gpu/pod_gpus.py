"""The GPUs of all payload containers of a pod, from the record of each."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from k8spilot.gpu.discovery.evidence import Device
from k8spilot.gpu.discovery.record import GpuRecord
from k8spilot.gpu.htcondor.inventory import inventory

Json = dict[str, Any]


@dataclass(frozen=True)
class PodGpus:
    """The GPUs of a pod."""

    records: Mapping[int, GpuRecord]
    """Records by the numbers of the payload containers."""

    @property
    def _with_gpus(self) -> list[GpuRecord]:
        """Records of containers with GPUs, or those with problems, or all."""
        every = list(self.records.values())
        return [one for one in every if one.usable] or [one for one in every if one.verdict.problem] or every

    @property
    def strategy(self) -> str:
        """Strategy by which the containers got their GPUs. One device plugin serves all containers of a pod."""
        return self._with_gpus[0].verdict.strategy

    @property
    def expected(self) -> tuple[str, ...]:
        """Ids of the GPUs in the containers' variables or mounts."""
        return _once(name for one in self._with_gpus for name in one.verdict.expected)

    @property
    def problem(self) -> str:
        """Problems of the containers; empty without one."""
        return "; ".join(_once(one.verdict.problem for one in self.records.values() if one.verdict.problem))

    @cached_property
    def usable(self) -> tuple[Device, ...]:
        """Devices that jobs may use, each once."""
        devices = [device for one in self.records.values() for device in one.usable]
        return tuple({device.uuid: device for device in devices}.values())

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Names of the devices in the driver, for each container that has some, in the order in which jobs see them."""
        return tuple(tuple(device.uuid for device in one.usable) for one in self.records.values() if one.usable)

    @property
    def inventory(self) -> str:
        """Inventory of the usable devices for HTCondor."""
        driver = self._with_gpus[0].evidence.driver
        if len(self.records) == 1:
            return inventory(self.usable, driver)
        containers: dict[str, list[int]] = {}
        for number, one in self.records.items():
            for device in one.usable:
                containers.setdefault(device.uuid, []).append(number)
        return inventory(self.usable, driver, containers)

    @property
    def summary(self) -> str:
        """The verdict in one line, without a full stop."""
        return "; ".join(_once(one.summary for one in self._with_gpus))

    def json(self, *, evidence: bool) -> Json:
        """Return the verdict as JSON, with its evidence or without; of several containers, by their numbers."""
        every = {str(number): one.json() for number, one in self.records.items()}
        if not evidence:
            every = {name: {key: one[key] for key in one if key != "evidence"} for name, one in every.items()}
        if len(every) == 1:
            return next(iter(every.values()))
        return {
            "usable": [device.uuid for device in self.usable],
            "problem": self.problem or None,
            "words": self.summary,
            "containers": every,
        }


def _once(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))
