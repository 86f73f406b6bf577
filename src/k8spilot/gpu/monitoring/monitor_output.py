"""What the startd's GPU monitor is told, in HTCondor's form (condor_gpu_utilization has the same)."""

from collections.abc import Sequence
from typing import Final

from k8spilot.gpu.htcondor.inventory import short
from k8spilot.gpu.monitoring.meter import MIB, GpuUsage

MOST: Final = 16
"""Devices of a pod that have figures of their own beside the sum; HTCondor has to know their names beforehand."""

METRICS: Final = ", ".join(
    [
        "SUM:GPUs",
        "PEAK:GPUsMemory",
        *(f"SUM:GPU{number}, PEAK:GPU{number}Memory" for number in range(MOST)),
    ]
)
"""For `use feature : Monitor`: a job gets <name>AverageUsage of a SUM, and <name>Usage of a PEAK."""


def blocks(usages: Sequence[GpuUsage], order: Sequence[str], *, update: bool) -> str:
    """Tell of each device in an ad of its own, which is for the slot that has the device.

    Args:
        usages: of the devices.
        order: all devices of the pod, in the order in which jobs see them: GPU0 is the first.
        update: have the startd write down at once what its jobs have used; otherwise it does so when it tells the
            collector. A job that ends gets what was written down last.
    """
    lines = []
    last = len(usages) - 1
    # A job that has several devices gets the peak of the one whose ad the startd happens to come to last (Aggregate in
    # startd_named_classad.cpp takes <name>Usage for an attribute that is to be copied, too). The slot has all of the
    # pod's devices, so each of them tells of the highest.
    highest = max((one.peak for one in usages if one.peak is not None), default=None)
    for position, usage in enumerate(usages):
        number = order.index(usage.uuid)
        names = sorted({usage.uuid, short(usage.uuid)})
        lines.append(
            "SlotMergeConstraint = " + " || ".join(f'StringListMember("{one}", AssignedGPUs)' for one in names)
        )
        for name, peak in ((("GPUs", highest), (f"GPU{number}", usage.peak)))[: 2 if number < MOST else 1]:
            if usage.busy is not None:
                lines.append(f"Uptime{name}Seconds = {usage.busy:.6f}")
            if peak is not None:
                lines.append(f"Uptime{name}MemoryPeakUsage = {-(-peak // MIB)}")
        if usage.busy is not None:
            lines.append("GPUsUsage = GPUsAverageUsage")  # what HTCondor's manual calls it
        lines.append(f"- GPUsSlot{number}" + (" update:true" if update and position == last else ""))
    return "".join(f"{line}\n" for line in lines)


class Pace:
    """When the startd is to write down at once what its job has used.

    It does so by itself with every update of the collector, every two minutes, and a job that ends gets what was
    written last. So a job's last moments would be missing, and short jobs had nothing. Told in proportion to the job's
    age, and when its peak grows, what is missing is a small part.
    """

    def __init__(self) -> None:
        self._told = 0.0
        self._peak = 0

    def due(self, usages: Sequence[GpuUsage], age: float | None, now: float) -> bool:
        """Whether to ask for it.

        Args:
            usages: that are told now.
            age: of the job in seconds, None where none runs.
            now: a clock, in seconds.
        """
        if age is None:
            self._peak = 0
            return False
        peak = max((one.peak or 0 for one in usages), default=0)
        grown = peak > self._peak * _GROWN
        if not (grown or now - self._told >= min(age * _PART, _LONGEST_SECONDS)):
            return False
        self._told, self._peak = now, max(peak, self._peak)
        return True


_GROWN: Final = 1.03
_PART: Final = 0.05
_LONGEST_SECONDS: Final = 120.0
