"""Attempts to be more than the job's user: users, namespaces, keys, set-uid programs, the kernel's settings."""

import ctypes
import os
import re
import socket
import stat
import time
from contextlib import suppress
from pathlib import Path

from .tools import attack, called, opened, strangers, system_call, text, tries, written


@attack
def namespaces() -> list[str]:
    """Into others' namespaces, and into new ones in which one is root."""
    gained = []
    for pid in strangers():
        for kind in ("mnt", "net", "pid", "user"):
            gained += tries((f"{kind} of {pid}", opened, f"/proc/{pid}/ns/{kind}", 0))
    if (child := os.fork()) == 0:
        flags = (0x10000000, 0x10000000 | 0x00020000, 0x00020000, 0x40000000, 0x20000000)
        os._exit(any(system_call(272, one) >= 0 for one in flags))
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        gained.append("a namespace of one's own")
    return gained


@attack
def privileges() -> list[str]:
    """Other users and groups, capabilities, and everything that wants root."""
    one = ctypes.create_string_buffer(64)
    where = ctypes.addressof(one)
    return tries(
        ("setuid", os.setuid, 0),
        ("setresuid to the sampler's", os.setresuid, 65533, 65533, 65533),
        ("setgid", os.setgid, 0),
        ("setgroups", os.setgroups, [0]),
        ("chroot", os.chroot, "/"),
        ("sethostname", socket.sethostname, "evil"),
        ("settimeofday", time.clock_settime, time.CLOCK_REALTIME, time.time()),
        ("nice", os.nice, -5),
        ("real time", os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1)),
        ("a lower score", written, "/proc/self/oom_score_adj", "-1000"),
        ("mknod", os.mknod, "/tmp/device", 0o666 | stat.S_IFBLK, os.makedev(8, 0)),
        ("mount", called, 165, where, where, where, 0, 0),
        ("bpf", called, 321, 0, where, 64),
        ("perf_event_open", called, 298, where, -1, 0, -1, 0),
        ("init_module", called, 175, where, 1, where),
        ("kexec_load", called, 246, 0, 0, 0, 0),
        ("open_by_handle_at", called, 304, -100, where, 0),
        ("reboot", called, 169, 0xFEE1DEAD, 672274793, 0x01234567, 0),
        ("swapoff", called, 168, where),
        ("acct", called, 163, 0),
        ("syslog", called, 103, 3, where, 64),
        ("quotactl", called, 179, 0x80000101 << 8, where, 0, where),
        ("iopl", called, 172, 3),
        ("a packet socket", socket.socket, socket.AF_PACKET, socket.SOCK_RAW),
        ("a raw socket", socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
    )


@attack
def keyrings() -> list[str]:
    """The kernel's keys outlive processes, and are found by uid: the next job's."""
    gained = []
    for ring in (-1, -2, -3, -4, -5):
        key = system_call(248, *(ctypes.cast(ctypes.c_char_p(one), ctypes.c_void_p).value or 0 for one in KEY), 5, ring)
        if key >= 0:
            gained.append(f"a key in ring {ring}")
    if system_call(250, 0, -4, 1) >= 0:
        gained.append("the uid's ring")
    for table in ("/proc/keys", "/proc/key-users"):
        with suppress(OSError):
            gained += [line for line in Path(table).read_text().splitlines() if "leftover-of-alice" in line]
    return gained


KEY = (b"user", b"leftover-of-alice", b"value")


@attack
def set_uid_files() -> list[str]:
    """Programs of the image and of one's own that change their user: nobody gains by them."""
    gained = []
    places = ("/tmp/shell", "/var/tmp/shell", "/dev/shm/shell", f"{os.environ['_CONDOR_SCRATCH_DIR']}/shell")
    for place in places:
        Path(place).write_bytes(Path("/usr/bin/id").read_bytes())
        with suppress(OSError):
            os.chmod(place, 0o6755)
            os.chown(place, 0, 0)
            gained.append(f"{place} is root's")
    found = [path for folder in ("/usr/bin", "/usr/sbin", "/usr/libexec") for path in Path(folder).glob("*")]
    is_set = [path for path in found if path.is_file() and path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID)]
    status = Path("/proc/self/status").read_text()
    if not re.search(r"NoNewPrivs:\s*1", status) or not re.search(r"CapBnd:\s*0+\n", status):
        gained.append("new privileges, or a bound set")
    for path in is_set:
        if (child := os.fork()) == 0:
            for end in range(3):
                os.dup2(os.open("/dev/null", os.O_RDWR), end)
            os.execv(path, [str(path)])
        time.sleep(0.02)
        if re.search(r"Uid:\s*\d+\s+0\s", text(child, "status")):
            gained.append(str(path))
        os.kill(child, 9)
        os.waitpid(child, 0)
    return gained


@attack
def control_groups() -> list[str]:
    """Limits and membership are the kernel's figures, which nobody in the pod can change."""
    gained = []
    for folder, _, files in os.walk("/sys/fs/cgroup"):
        for name in files:
            if name in LIMITS:
                path = f"{folder}/{name}"
                gained += tries((path, opened, path))
        gained += tries((f"a group in {folder}", os.mkdir, f"{folder}/evil"))
    return gained


LIMITS = (
    "cgroup.procs", "tasks", "cpu.max", "memory.max", "memory.limit_in_bytes", "cpu.cfs_quota_us", "memory.oom_control",
    "release_agent", "notify_on_release", "pids.max", "devices.allow", "cgroup.kill", "cgroup.freeze",
    "cgroup.subtree_control", "cgroup.threads", "memory.high", "memory.low", "memory.min", "memory.oom.group",
    "memory.reclaim", "memory.swap.max", "cpu.weight", "cpuset.cpus", "io.max",
)  # fmt: skip


@attack
def kernel_settings() -> list[str]:
    """Open the files of /proc and /sys that are for the node's administrator alone."""
    return tries(*((path, opened, path) for path in ADMINISTRATORS if not _is_masked(path)))


def _is_masked(path: str) -> bool:
    """Whether the runtime has mounted /dev/null there (OCI runtime specification, Masked Paths)."""
    return os.path.exists(path) and os.stat(path).st_rdev == os.stat("/dev/null").st_rdev


ADMINISTRATORS = (
    "/proc/sysrq-trigger", "/proc/kcore", "/proc/kmsg", "/proc/irq/0", "/proc/1/oom_score_adj", "/dev/kmsg", "/dev/mem",
    "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/shmmax", "/proc/sys/kernel/hostname",
    "/proc/sys/net/ipv4/ip_forward", "/sys/kernel/uevent_helper", "/sys/fs/cgroup/release_agent",
)  # fmt: skip
