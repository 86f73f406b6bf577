"""Attacks on other processes: the pilot's, HTCondor's, payload-init."""

import ctypes
import errno
import os
import signal
import struct
import time
from contextlib import suppress
from pathlib import Path

from .tools import LIBC, attack, content, opened, processes, strangers, system_call, text, tries, written

DEADLY = (signal.SIGCONT, signal.SIGSTOP, signal.SIGTERM, signal.SIGKILL)


@attack
def descriptors() -> list[str]:
    """Nothing of the pilot's is inherited."""
    own = {os.readlink(f"/proc/self/fd/{number}"): number for number in map(int, os.listdir("/proc/self/fd"))
           if os.path.lexists(f"/proc/self/fd/{number}")}  # fmt: skip
    return [
        f"{number}: {what}" for what, number in own.items() if number > 2 and not what.startswith(("/proc/", "/usr/"))
    ]


@attack
def signals() -> list[str]:
    """To everybody who is not ours; payload-init, which has our uid, only what it must live with."""
    gained = []
    ancestors = _ancestors()
    for pid in strangers():
        is_init = text(pid, "comm").strip() == "payload-init"
        if is_init:
            numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGSEGV]
            # Where nobody is root, a hang-up is how the engine ends it, and worth as much as SIGKILL.
            if os.environ.get("ATTACK_LEVEL") != "restricted":
                numbers.append(signal.SIGHUP)
            try:
                for number in numbers:
                    os.kill(pid, number)
                time.sleep(0.1)
                os.kill(pid, 0)
            except ProcessLookupError:
                # Beside a job, as in a plugin, its container may be replaced meanwhile.
                if pid in ancestors:
                    raise
        else:
            gained += tries(*((f"{one.name} to {pid}", os.kill, pid, one) for one in DEADLY))
            gained += tries((f"pidfd of {pid}", _kill_by_descriptor, pid))
    return gained


def _ancestors() -> set[int]:
    found, pid = set(), os.getpid()
    while pid and (fields := text(pid, "stat").rpartition(")")[2].split()):
        found.add(pid)
        pid = int(fields[1])
    return found


def _kill_by_descriptor(pid: int) -> None:
    descriptor = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    finally:
        os.close(descriptor)


@attack
def process_groups_and_sessions() -> list[str]:
    """Signals by group, which are checked one by one all the same, and moving into another's group."""
    gained = []
    own = os.getpgid(0)
    for pid in strangers():
        with suppress(OSError):
            group = os.getpgid(pid)
            if group in (own, 0, 1):  # minus one would be everybody: that is for a job that ends badly
                continue
            gained += tries((f"setpgid to {group}", os.setpgid, 0, group))
            if text(pid, "comm").strip() != "payload-init":
                gained += tries((f"killpg of {group}", os.killpg, group, 9))
    return gained


@attack
def ptrace() -> list[str]:
    """Attach to and seize whatever there is."""
    attach, seize, detach = 16, 0x4206, 17
    gained = []
    for pid in strangers():
        for name, request in (("attach", attach), ("seize", seize)):
            if LIBC.ptrace(request, pid, None, None) == 0:
                gained.append(f"{name} {pid} ({text(pid, 'comm').strip()})")
                LIBC.ptrace(detach, pid, None, None)
    return gained


@attack
def memory_of_others() -> list[str]:
    """process_vm_readv, process_vm_writev, /proc/PID/mem, pidfd_getfd, kcmp, process_madvise."""
    gained = []
    for pid in strangers():
        for name, number in (("process_vm_readv", 310), ("process_vm_writev", 311)):
            buffer = ctypes.create_string_buffer(8)
            local = (ctypes.c_ulong * 2)(ctypes.addressof(buffer), 8)
            answer = system_call(number, pid, ctypes.addressof(local), 1, ctypes.addressof(local), 1, 0)
            if -answer not in (errno.EPERM, errno.ESRCH, errno.ENOSYS):
                gained.append(f"{name} of {pid}: {answer}")
        with suppress(OSError):
            os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))
            gained.append(f"/proc/{pid}/mem")
        with suppress(OSError):
            descriptor = os.pidfd_open(pid)
            gained += [f"descriptor {n} of {pid}" for n in range(12) if system_call(438, descriptor, n, 0) >= 0]
            os.close(descriptor)
        if system_call(312, os.getpid(), pid, 0, 0, 0) >= 0:
            gained.append(f"kcmp of {pid}")
    return gained


@attack
def helpers_of_htcondor() -> list[str]:
    """Read the memory, files and descriptors of HTCondor's processes of the jobs' user: sshd, transfer plugins.

    They run in the pilot container, and hold no secret.
    """
    if os.environ.get("ATTACK_LEVEL") == "restricted":
        return []  # there it runs nothing so
    helpers: list[int] = []
    end = time.monotonic() + 30
    while not helpers and time.monotonic() < end:
        helpers = [pid for pid in processes() if "k8spilot-attacked" in text(pid, "cmdline") and _has_own_uid(pid)]
        time.sleep(0.1)
    assert helpers, "there is no such process, so that this shows nothing"
    gained = []
    for pid in helpers:
        files = ("environ", "maps", "mem", "auxv", "fd/0", "root", "cwd", "ns/mnt")
        gained += tries(*((f"{file} of {pid}", opened, f"/proc/{pid}/{file}", os.O_RDONLY) for file in files))
        if LIBC.ptrace(0x4206, pid, None, None) == 0:
            gained.append(f"ptrace of {pid}")
            LIBC.ptrace(17, pid, None, None)
        with suppress(OSError):
            descriptor = os.pidfd_open(pid)
            gained += [f"descriptor {n} of {pid}" for n in range(12) if system_call(438, descriptor, n, 0) >= 0]
            os.close(descriptor)
    return gained


def _has_own_uid(pid: int) -> bool:
    with suppress(OSError):
        return os.stat(f"/proc/{pid}").st_uid == os.getuid()
    return False


@attack
def proc_of_others() -> list[str]:
    """Read the files of other processes in /proc that are not for all users."""
    gained = []
    for pid in strangers():
        for file in ("environ", "maps", "smaps", "auxv", "io", "stack", "syscall", "personality", "timers", "pagemap"):
            try:
                if Path(f"/proc/{pid}/{file}").read_bytes():
                    gained.append(f"{file} of {pid}")
            except OSError:
                continue
        for link in ("cwd", "root", "exe", "ns/mnt", "ns/net"):
            with suppress(OSError):
                os.readlink(f"/proc/{pid}/{link}")
                gained.append(f"{link} of {pid}")
        for folder in ("fd", "fdinfo", "map_files", "root", "cwd"):
            with suppress(OSError):
                if os.listdir(f"/proc/{pid}/{folder}"):
                    gained.append(f"{folder} of {pid}")
    return gained


@attack
def settings_of_others() -> list[str]:
    """Limits, priorities, schedulers, out-of-memory scores and cgroups of others."""
    gained = []
    for pid in strangers():
        if text(pid, "comm").strip() == "payload-init":
            continue
        limit = struct.pack("2Q", 1, 1)
        buffer = ctypes.create_string_buffer(limit)
        if system_call(302, pid, 7, ctypes.addressof(buffer), 0) >= 0:  # prlimit64, RLIMIT_NOFILE
            gained.append(f"prlimit of {pid}")
        gained += tries(
            (f"priority of {pid}", os.setpriority, os.PRIO_PROCESS, pid, 19),
            (f"cores of {pid}", os.sched_setaffinity, pid, {0}),
            (f"score of {pid}", written, f"/proc/{pid}/oom_score_adj", "1000"),
            (f"autogroup of {pid}", written, f"/proc/{pid}/autogroup", "19"),
            (f"coredump filter of {pid}", written, f"/proc/{pid}/coredump_filter", "ff"),
        )
    return gained


@attack
def environments_by_other_ways() -> list[str]:
    """Dumps of others: by a core, by a debugger's file, by the time that they take."""
    gained = []
    for pid in strangers():
        for file in ("mem", "clear_refs", "setgroups", "uid_map"):
            gained += tries((f"{file} of {pid}", opened, f"/proc/{pid}/{file}"))
        for task in ("environ", "mem", "maps"):
            gained += tries((f"task {task} of {pid}", content, f"/proc/{pid}/task/{pid}/{task}"))
    return gained
