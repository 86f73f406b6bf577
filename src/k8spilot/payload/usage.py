"""Resource usage of a job, from its container's own cgroup.

payload-init opens the cgroup's files inside the container and passes their descriptors. Reading them here gives the
kernel's figures, whatever the job does. They count from the container's start, and `Usage.since` from the job's.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import psutil

_SIZE: Final = 64 * 1024
_VMSTAT: Final = Path("/proc/vmstat")


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage since the container began, or since the job did; None where the kernel has no figure."""

    user_ns: int | None = None
    """CPU time in user mode, nanoseconds."""
    system_ns: int | None = None
    resident: int | None = None
    """Anonymous and shared memory in bytes, at present. Without the page cache, which HTCondor does not count
    either."""
    limit: int | None = None
    """Memory limit of the container in bytes."""
    oom_kills: int | None = None
    """Number of processes in this container that the kernel killed for lack of memory."""

    def since(self, before: "Usage") -> "Usage":
        """Return the usage without what had been used `before`. Present memory is what it is."""
        return replace(
            self,
            user_ns=_without(self.user_ns, before.user_ns),
            system_ns=_without(self.system_ns, before.system_ns),
            oom_kills=_without(self.oom_kills, before.oom_kills),
        )


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes over the pod's network, of all its containers, since the pod began."""

    received: int = 0
    sent: int = 0


def read_usage(cgroup: Mapping[str, int]) -> Usage:
    """Read the usage from open files of a cgroup by name (Linux: admin-guide/cgroup-v2.rst, admin-guide/cgroup-v1/)."""
    memory = _table(cgroup, "memory.stat")
    if "cpu.stat" in cgroup:
        cpu = _table(cgroup, "cpu.stat")
        return Usage(
            user_ns=_times(cpu.get("user_usec"), 1000),
            system_ns=_times(cpu.get("system_usec"), 1000),
            resident=_sum(memory, "anon", "shmem"),
            limit=_number(cgroup, "memory.max"),
            oom_kills=_table(cgroup, "memory.events").get("oom_kill"),
        )
    return Usage(
        user_ns=_number(cgroup, "cpuacct.usage_user"),
        system_ns=_number(cgroup, "cpuacct.usage_sys"),
        resident=_sum(memory, "total_rss", "total_shmem"),
        limit=_number(cgroup, "memory.limit_in_bytes"),
        oom_kills=_table(cgroup, "memory.oom_control").get("oom_kill"),
    )


def read_traffic() -> Traffic:
    """Read the pod's traffic without its loopback; the pilot shares the pod's network."""
    cards = [card for name, card in psutil.net_io_counters(pernic=True).items() if name != "lo"]
    return Traffic(sum(card.bytes_recv for card in cards), sum(card.bytes_sent for card in cards))


def read_node_oom_kills() -> int | None:
    """Return how many processes of the node the kernel has killed for lack of memory; None if it does not say."""
    try:
        rows = (line.split() for line in _VMSTAT.read_text().splitlines())
        return next((int(row[1]) for row in rows if row[0] == "oom_kill"), None)
    except (OSError, ValueError, IndexError):
        return None


def _read(cgroup: Mapping[str, int], name: str) -> str:
    if name not in cgroup:
        return ""
    try:
        return os.pread(cgroup[name], _SIZE, 0).decode("ascii", "replace")
    except OSError:  # ENODEV: the cgroup is gone with its container
        return ""


def _table(cgroup: Mapping[str, int], name: str) -> dict[str, int]:
    rows = (line.split() for line in _read(cgroup, name).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdecimal()}


def _number(cgroup: Mapping[str, int], name: str) -> int | None:
    text = _read(cgroup, name).strip()
    return int(text) if text.isdecimal() else None


def _without(value: int | None, before: int | None) -> int | None:
    return None if value is None else max(0, value - (before or 0))


def _times(value: int | None, factor: int) -> int | None:
    return None if value is None else value * factor


def _sum(table: Mapping[str, int], *names: str) -> int | None:
    values = [table[name] for name in names if name in table]
    return sum(values) if values else None
