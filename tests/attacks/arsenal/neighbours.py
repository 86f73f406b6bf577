"""Attacks of a job on a job of another user that runs in the same pod at the same time."""

import ctypes
import os
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from .tools import Attack, called, checked, opened, processes, system_call, text, tries, written

AGAINST_NEIGHBOURS: dict[str, Attack] = {}
"""Attacks by name."""
BOBS = "of-bob"
"""In the name of whatever the neighbour has."""
_FIRST, _LAST = 64301, 64364
"""Accounts of the jobs in a pod with several payload containers (Dockerfile)."""

# Numbers of system calls on x86-64 (asm/unistd_64.h).
PTRACE, MSGGET, MSGRCV, MSGCTL, SHMAT, SHMCTL, SEMOP, SEMCTL = 101, 68, 70, 71, 30, 31, 65, 66
SETPRIORITY, SETSCHEDULER, TGSIGQUEUE, TGKILL = 141, 144, 297, 234
MIGRATE, MOVE, UNSHARE, MQ_OPEN, MQ_UNLINK = 256, 279, 272, 240, 241
KEYCTL, IOPRIO, PERF, PRLIMIT, SETNS, VM_READ, VM_WRITE, KCMP = 250, 251, 298, 302, 308, 310, 311, 312
PIDFD_SIGNAL, PIDFD_OPEN, PIDFD_GETFD, MADVISE = 424, 434, 438, 440


def against(made: Attack) -> Attack:
    """Put an attack into the list."""
    AGAINST_NEIGHBOURS[made.__name__] = made
    return made


def neighbours() -> list[int]:
    """Processes of other slots' jobs; payload-init of the idle ones among them."""
    found = []
    for pid in processes():
        status = dict(line.split(":\t", 1) for line in text(pid, "status").splitlines() if ":\t" in line)
        uid = int(status["Uid"].split()[0]) if status else 0
        if _FIRST <= uid <= _LAST and uid != os.getuid():
            found.append(pid)
    assert any(BOBS in text(pid, "cmdline") for pid in found), "the neighbour is not seen, so that this shows nothing"
    return found


def each(*wanted: tuple[str, Callable[[int], object]]) -> list[str]:
    """Make attempts on each of the neighbours' processes; return those that succeed."""
    return [gain for pid in neighbours() for name, act in wanted for gain in tries((f"{name} of {pid}", act, pid))]


def read(name: str) -> tuple[str, Callable[[int], object]]:
    """Reading a file of a process."""

    def act(pid: int) -> None:
        if not Path(f"/proc/{pid}/{name}").read_bytes():
            raise OSError  # the file of a process that may not be looked into can be opened, and is empty

    return name, act


def through(name: str) -> tuple[str, Callable[[int], object]]:
    """Following a link of a process, or listing a folder."""
    return name, lambda pid: os.listdir(f"/proc/{pid}/{name}")


@against
def his_folders() -> list[str]:
    return each(through("root"), through("cwd"), ("root's link", lambda pid: os.readlink(f"/proc/{pid}/root")))


@against
def his_program() -> list[str]:
    return each(("exe", lambda pid: os.readlink(f"/proc/{pid}/exe")), through("map_files"))


@against
def his_descriptors() -> list[str]:
    return each(through("fd"), through("fdinfo"), ("stdout", lambda pid: opened(f"/proc/{pid}/fd/1")))


@against
def his_environment() -> list[str]:
    return each(read("environ"), read("auxv"))


@against
def his_memory() -> list[str]:
    return each(
        read("maps"), read("smaps"), read("pagemap"), ("mem", lambda pid: opened(f"/proc/{pid}/mem", os.O_RDWR))
    )


@against
def his_calls() -> list[str]:
    return each(read("stack"), read("syscall"), read("io"), read("personality"))


@against
def his_settings() -> list[str]:
    names = ("comm", "oom_score_adj", "coredump_filter", "clear_refs", "timerslack_ns", "autogroup", "loginuid")
    return each(*((name, lambda pid, name=name: written(f"/proc/{pid}/{name}", "1")) for name in names))


@against
def his_namespaces() -> list[str]:
    def enter(pid: int) -> None:
        for name in os.listdir(f"/proc/{pid}/ns"):
            end = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY)
            called(SETNS, end, 0)

    def by_pidfd(pid: int) -> None:
        called(SETNS, checked(system_call(PIDFD_OPEN, pid, 0)), 0x20000)  # CLONE_NEWNS

    return each(("namespaces", enter), ("mounts", by_pidfd))


@against
def signals_to_him() -> list[str]:
    numbers = (signal.SIGCONT, signal.SIGSTOP, signal.SIGTERM, signal.SIGKILL)
    return each(*((one.name, lambda pid, one=one: os.kill(pid, one)) for one in numbers))


@against
def signals_to_him_in_other_ways() -> list[str]:
    def by_pidfd(pid: int) -> None:
        called(PIDFD_SIGNAL, checked(system_call(PIDFD_OPEN, pid, 0)), signal.SIGTERM, 0, 0)

    def with_value(pid: int) -> None:
        info = ctypes.create_string_buffer(struct.pack("iii", signal.SIGTERM, 0, -1), 128)
        called(TGSIGQUEUE, pid, pid, signal.SIGTERM, ctypes.addressof(info))

    return each(
        ("a pidfd", by_pidfd),
        ("a value", with_value),
        ("a thread", lambda pid: called(TGKILL, pid, pid, signal.SIGTERM)),
        ("a group", lambda pid: os.killpg(os.getpgid(pid), signal.SIGTERM)),
    )


@against
def tracing_him() -> list[str]:
    attach, seize = 16, 0x4206
    return each(
        ("attach", lambda pid: called(PTRACE, attach, pid, 0, 0)),
        ("seize", lambda pid: called(PTRACE, seize, pid, 0, 0)),
    )


@against
def memory_by_calls() -> list[str]:
    place = ctypes.create_string_buffer(8)
    vector = ctypes.create_string_buffer(struct.pack("QQ", ctypes.addressof(place), 8), 16)

    def call(number: int) -> Callable[[int], object]:
        def act(pid: int) -> None:
            if system_call(number, pid, ctypes.addressof(vector), 1, ctypes.addressof(vector), 1, 0) <= 0:
                raise OSError

        return act

    def advise(pid: int) -> None:
        called(MADVISE, checked(system_call(PIDFD_OPEN, pid, 0)), ctypes.addressof(vector), 1, 21, 0)

    return each(("reading", call(VM_READ)), ("writing", call(VM_WRITE)), ("advice", advise))


@against
def descriptors_by_pidfd() -> list[str]:
    def take(pid: int) -> None:
        one = checked(system_call(PIDFD_OPEN, pid, 0))
        if all(system_call(PIDFD_GETFD, one, number, 0) < 0 for number in range(8)):
            raise OSError

    return each(("a descriptor", take))


@against
def comparing_with_him() -> list[str]:
    return each(("kcmp", lambda pid: called(KCMP, os.getpid(), pid, 0, 1, 1)))


@against
def his_priorities() -> list[str]:
    zero = ctypes.create_string_buffer(128)
    return each(
        ("nice", lambda pid: called(SETPRIORITY, 0, pid, 19)),
        ("class", lambda pid: called(SETSCHEDULER, pid, 5, ctypes.addressof(zero))),
        ("processors", lambda pid: os.sched_setaffinity(pid, {0})),
        ("input and output", lambda pid: called(IOPRIO, 1, pid, 3 << 13)),
    )


@against
def his_limits() -> list[str]:
    none = ctypes.create_string_buffer(struct.pack("QQ", 0, 0), 16)
    return each(
        ("asking", lambda pid: called(PRLIMIT, pid, 7, 0, ctypes.addressof(none))),
        ("setting", lambda pid: called(PRLIMIT, pid, 7, ctypes.addressof(none), 0)),
    )


@against
def his_pages() -> list[str]:
    mask = ctypes.create_string_buffer(struct.pack("Q", 1), 8)
    place = ctypes.addressof(mask)
    return each(
        ("migration", lambda pid: called(MIGRATE, pid, 1, place, place)),
        ("moves", lambda pid: called(MOVE, pid, 0, 0, 0, 0, 0)),
    )


@against
def counters_of_him() -> list[str]:
    wanted = ctypes.create_string_buffer(struct.pack("II", 1, 128), 128)  # PERF_TYPE_SOFTWARE
    return each(("events", lambda pid: called(PERF, ctypes.addressof(wanted), pid, -1, -1, 0)))


@against
def files_by_name() -> list[str]:
    """The neighbour's files below the folders that both jobs can write to."""
    neighbours()
    tops = ("/var/lib/condor", "/tmp", "/var/tmp", "/k8spilot", "/dev/shm", "/home", "/run")
    names = [f"{where}/{name}" for top in tops for where, folders, files in os.walk(top) for name in (*folders, *files)]
    return [name for name in names if BOBS in name]


@against
def other_sandboxes() -> list[str]:
    neighbours()
    top = "/var/lib/condor/execute"
    own = Path(os.environ["_CONDOR_SCRATCH_DIR"]).relative_to(top).parts[0]
    ways = [f"{top}/{name}" for name in ("slot", *(f"payload-{number}" for number in range(1, 9))) if name != own]
    return [way for way in ways if Path(way).exists()] + tries(("a folder beside the own", os.mkdir, f"{top}/evil"))


def _in_table(kind: str) -> Iterator[int]:
    """Ids of System V objects (proc(5), /proc/sysvipc), of others than this user."""
    lines = Path(f"/proc/sysvipc/{kind}").read_text().splitlines()
    names = lines[0].split()
    for line in lines[1:]:
        row = dict(zip(names, line.split(), strict=False))
        if int(row["uid"]) != os.getuid():
            yield int(row[{"shm": "shmid", "sem": "semid", "msg": "msqid"}[kind]])


@against
def shared_memory_of_system_v() -> list[str]:
    neighbours()
    found = list(_in_table("shm"))
    assert found, "his segment is not seen, so that this shows nothing"
    ways = [(f"attaching {one}", called, SHMAT, one, 0, 0o10000) for one in found]
    return tries(*ways, *((f"removing {one}", called, SHMCTL, one, 0, 0) for one in found))


@against
def semaphores_of_system_v() -> list[str]:
    neighbours()
    found = list(_in_table("sem"))
    assert found, "his semaphore is not seen, so that this shows nothing"
    up = ctypes.create_string_buffer(struct.pack("Hhh", 0, 1, 0), 6)
    ways = [(f"raising {one}", called, SEMOP, one, ctypes.addressof(up), 1) for one in found]
    return tries(*ways, *((f"removing {one}", called, SEMCTL, one, 0, 0, 0) for one in found))


@against
def messages_of_system_v() -> list[str]:
    neighbours()
    found = list(_in_table("msg"))
    assert found, "his queue is not seen, so that this shows nothing"
    place = ctypes.create_string_buffer(4096)
    ways = [(f"receiving from {one}", called, MSGRCV, one, ctypes.addressof(place), 4000, 0, 0o4000) for one in found]
    return tries(*ways, *((f"removing {one}", called, MSGCTL, one, 0, 0) for one in found))


@against
def message_queues() -> list[str]:
    neighbours()
    name = ctypes.create_string_buffer(BOBS.encode())
    return tries(
        ("opening", lambda: called(MQ_OPEN, ctypes.addressof(name), os.O_RDWR | os.O_NONBLOCK, 0, 0)),
        ("removing", lambda: called(MQ_UNLINK, ctypes.addressof(name))),
    )


@against
def his_abstract_sockets() -> list[str]:
    """From Linux 6.12 on payload-init's Landlock domain keeps them apart; older kernels do not (the status says so)."""
    neighbours()
    gained = []
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with suppress(OSError), socket.socket(socket.AF_UNIX, kind) as one:
            one.connect(f"\0{BOBS}-{kind.name}")
            gained.append(kind.name)
    return gained


@against
def raw_sockets() -> list[str]:
    """The network is the pod's: what both send must not be readable for the other."""
    neighbours()
    return tries(
        ("packets", socket.socket, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)),
        ("raw", socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP),
    )


@against
def his_connections() -> list[str]:
    """Destroying a neighbour's TCP sockets (sock_diag(7), SOCK_DESTROY) is for administrators."""
    neighbours()
    gained = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as link:
        link.settimeout(5)
        body = struct.pack("BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + bytes(48)
        link.send(struct.pack("IHHII", 16 + len(body), 21, 1 | 4, 1, 0) + body)
        answer = link.recv(4096)
        kind, error = struct.unpack_from("H", answer, 4)[0], struct.unpack_from("i", answer, 16)[0]
        if kind != 2 or error >= 0:
            gained.append(f"SOCK_DESTROY was answered with {kind}, {error}")
    return gained


@against
def his_keys() -> list[str]:
    """Reading or clearing keys of the kernel that are another user's."""
    neighbours()
    lines = Path("/proc/keys").read_text().splitlines()
    serials = [int(line.split()[0], 16) for line in lines if int(line.split()[5]) not in (os.getuid(), -1)]
    place = ctypes.create_string_buffer(1024)
    name = ctypes.create_string_buffer(BOBS.encode())
    user = ctypes.create_string_buffer(b"user")
    rings = [
        (f"finding in {ring}", called, KEYCTL, 10, ring, ctypes.addressof(user), ctypes.addressof(name), 0)
        for ring in (-3, -4, -5)
    ]
    return tries(
        *rings, *((f"reading {one}", called, KEYCTL, 11, one, ctypes.addressof(place), 1024) for one in serials)
    )


@against
def groups_of_processes() -> list[str]:
    """Joining a cgroup, or changing one: the own limits and the neighbour's are there."""
    neighbours()
    gained = []
    for where, _, files in os.walk("/sys/fs/cgroup"):
        for name in files:
            if name in ("cgroup.procs", "tasks", "memory.max", "memory.limit_in_bytes", "cpu.max", "cpu.cfs_quota_us"):
                gained += tries((f"{where}/{name}", opened, f"{where}/{name}"))
    return gained


@against
def namespaces_of_its_own() -> list[str]:
    """In a user namespace of its own a process is root: whatever it then may, it may not to its neighbours."""
    neighbours()
    return tries(
        ("users", called, UNSHARE, 0x10000000),
        ("mounts", called, UNSHARE, 0x20000),
        ("network", called, UNSHARE, 0x40000000),
    )


@against
def his_payload_init() -> list[str]:
    """The exchange of another slot, by each way that could lead there."""
    ways = [f"/k8spilot/{name}" for name in os.listdir("/k8spilot") if name not in ("bin", "payload.sock")]
    ways += [f"/proc/{pid}/root/k8spilot/payload.sock" for pid in neighbours()]
    gained = []
    for way in ways:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
            one.connect(way)
            gained.append(way)
    return gained
