"""Output of the startd's GPU monitor, in HTCondor's format (as condor_gpu_utilization)."""

from collections.abc import Collection, Sequence
from typing import Final

from k8spilot.gpu.discovery.names import short
from k8spilot.gpu.monitoring.meter import MIB, GpuUsage

MOST: Final = 16
"""Limit of devices with their own figures beside the sum. HTCondor has to know their names beforehand."""

METRICS: Final = ", ".join(
    [
        "SUM:GPUs",
        "PEAK:GPUsMemory",
        *(f"SUM:GPU{number}, PEAK:GPU{number}Memory" for number in range(MOST)),
    ]
)
"""Metrics for `use feature : Monitor`: a job gets <name>AverageUsage of a SUM, and <name>Usage of a PEAK."""


def blocks(usages: Sequence[GpuUsage], groups: Sequence[Sequence[str]], due: Collection[int] = ()) -> str:
    """Return one ad for each device. The ad applies to the slot with that device.

    Args:
        usages: utilization of the devices.
        groups: devices of each payload container that has some, in the order in which its jobs see them: GPU0 is the
            first of each. A device that several containers share has its place in the first.
        due: places of the groups whose job's usage the startd is to write at once. Otherwise it does so with its
            updates of the collector. A job that ends gets the last written usage.
    """
    lines = []
    # Only the last ad of a slot has update:true, because the figures are complete then.
    asking = {
        max((place for place, one in enumerate(usages) if one.uuid in groups[number]), default=-1) for number in due
    }
    # A job with several devices gets the peak of the ad that the startd processes last (Aggregate in
    # startd_named_classad.cpp also copies <name>Usage). The slot has all devices of its container, so each ad contains
    # the highest peak of these.
    every = list(dict.fromkeys(uuid for group in groups for uuid in group))
    for position, usage in enumerate(usages):
        group = next(group for group in groups if usage.uuid in group)
        highest = max((one.peak for one in usages if one.peak is not None and one.uuid in group), default=None)
        number = group.index(usage.uuid)
        names = sorted({usage.uuid, short(usage.uuid)})
        lines.append(
            "SlotMergeConstraint = " + " || ".join(f'StringListMember("{usage}", AssignedGPUs)' for usage in names)
        )
        for name, peak in ((("GPUs", highest), (f"GPU{number}", usage.peak)))[: 2 if number < MOST else 1]:
            if usage.busy is not None:
                lines.append(f"Uptime{name}Seconds = {usage.busy:.6f}")
            if peak is not None:
                lines.append(f"Uptime{name}MemoryPeakUsage = {-(-peak // MIB)}")
        if usage.busy is not None:
            lines.append("GPUsUsage = GPUsAverageUsage")  # the name in HTCondor's manual
        name = f"GPUsSlot{every.index(usage.uuid)}"
        lines.append(f"- {name}" + (" update:true" if position in asking else ""))
    return "".join(f"{line}\n" for line in lines)


def start(groups: Sequence[Sequence[str]]) -> str:
    """Return the ads that come before the first interval: no busy time yet.

    The startd computes a job's average from the last ad before the job's start (reset_monitor in
    startd_named_classad.cpp). Without an earlier ad, a pilot's first job would have no average. No average results from
    these ads alone, because the startd needs an ad after the job's start.
    """
    usages = [GpuUsage(uuid, 0.0, None) for uuid in dict.fromkeys(uuid for group in groups for uuid in group)]
    return blocks(usages, groups)


class BlockInterval:
    """Decides when the startd should write its job's usage at once.

    The startd writes by itself with every update of the collector, every two minutes, and a job that ends gets the last
    written usage. Without further writes a job's last moments would be missing, and a short job would have no usage.
    Writing in proportion to the job's age, and when its peak grows, keeps the missing part small.
    """

    def __init__(self) -> None:
        self._written_at = 0.0
        self._peak = 0

    def due(self, usages: Sequence[GpuUsage], age: float | None, now: float) -> bool:
        """Return whether the startd should write now.

        Args:
            usages: utilization in this report.
            age: age of the job in seconds; None without a job.
            now: current time of a clock, in seconds.
        """
        if age is None:
            self._peak = 0
            return False
        peak = max((usage.peak or 0 for usage in usages), default=0)
        grown = peak > self._peak * _GROWN
        if not (grown or now - self._written_at >= min(age * _PART, _LONGEST_SECONDS)):
            return False
        self._written_at, self._peak = now, max(peak, self._peak)
        return True


_GROWN: Final = 1.03
_PART: Final = 0.05
_LONGEST_SECONDS: Final = 120.0
