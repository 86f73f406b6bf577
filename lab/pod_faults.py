"""Deliberate faults of one pod: its network, its payload container, its disks. All are undone.

A fault that lasts is a context manager: the fault exists inside it and is gone after it, also after an error.
All raise LabError.
"""

import contextlib
import errno
import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from lab import cgroups
from lab.api import Lab
from lab.errors import LabError, NothingToHitError
from lab.patience import scaled
from lab.pod_processes import check_own, container_id, network, payload_init, still, uid_of
from lab.settings import ACCESS_POINT, POOL_NAMESPACE
from lab.shell import run

PATIENCE_S = scaled(30.0)
PAYLOAD_UID = 65534
_KILLER = Path(__file__).with_name("runc_init_killer.py")
_FEW_INODES = 16
"""Number of inodes that are left at first, for files that a pod makes at the same moment, and then used up."""
_CHUNK = 1 << 20
"""Bytes of one write when a volume is filled."""


@contextmanager
def network_cut(lab: Lab, pod: str) -> Iterator[None]:
    """Drop all packets between the pilot pod `pod` and the pool, in both directions, without an answer.

    The pod's other connections (API server, registry) work.
    """
    with _cut_from(lab, pod, _pool_addresses(lab)):
        yield


@contextmanager
def access_point_cut(lab: Lab, pod: str) -> Iterator[None]:
    """Drop all packets between the pod `pod` and the pool's access point, without an answer."""
    query = ("get", "pod", ACCESS_POINT, "-n", POOL_NAMESPACE, "-o", "jsonpath={.status.podIP}")
    with _cut_from(lab, pod, [lab.kubectl(*query)]):
        yield


@contextmanager
def api_server_cut(lab: Lab, pod: str) -> Iterator[None]:
    """Drop all packets of the pod `pod` to the API server, without an answer."""
    service = lab.kubectl("get", "service", "kubernetes", "-n", "default", "-o", "jsonpath={.spec.clusterIP}")
    query = ("get", "endpoints", "kubernetes", "-n", "default", "-o")
    address, port = lab.kubectl(*query, "jsonpath={.subsets[0].addresses[0].ip} {.subsets[0].ports[0].port}").split()
    ends = ((service, "443"), (address, port))
    with _dropped(
        lab, pod, [("OUTPUT", "--destination", host, "--protocol", "tcp", "--dport", number) for host, number in ends]
    ):
        yield


def _cut_from(lab: Lab, pod: str, addresses: Iterable[str]) -> AbstractContextManager[None]:
    ends = (("INPUT", "--source"), ("OUTPUT", "--destination"))
    return _dropped(lab, pod, [(chain, option, one) for one in addresses for chain, option in ends])


@contextmanager
def _dropped(lab: Lab, pod: str, packets: Iterable[Sequence[str]]) -> Iterator[None]:
    """Drop the packets of a pod's network that these rules of iptables (chain and matches) select."""
    with ExitStack() as undo:
        # The pod may end meanwhile: the network is there as long as somebody has it open.
        handle = network(lab, pod)
        undo.callback(os.close, handle)
        inside = ["nsenter", f"--net=/proc/{os.getpid()}/fd/{handle}", "iptables", "-w"]
        for one in packets:
            rule = (*one, "--jump", "DROP")
            run([*inside, "--insert", *rule], what=f"cut the network of pod {pod}")
            undo.callback(run, [*inside, "--delete", *rule], what=f"mend the network of pod {pod}")
        yield


@contextmanager
def next_container_killed(lab: Lab, pod: str) -> Iterator[Callable[[float], bool]]:
    """Kill the first process of the next container of the pod's payload that is made, before it is started.

    runc has made that process by then, as the payload's user; it waits, for some milliseconds at the least, to become
    the container's program (runc(8), create and start). A program of this machine looks, with a real-time priority: a
    process of the pod would be slowed down by the load of the node and by the container's own limit.

    Yields:
        A function that waits for so many seconds, and says whether that process was met and killed.
    """
    check_own(lab)
    folder = next(iter(cgroups.of_pod(uid_of(lab, pod), "cgroup.procs")), None)
    if folder is None:
        raise NothingToHitError(f"pod {pod} has no cgroup")
    command = ["chrt", "--rr", "1", sys.executable, "-Iu", str(_KILLER), str(folder), str(PAYLOAD_UID)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as killer:
        assert killer.stdout is not None
        try:
            if killer.stdout.readline() != "looks\n":
                raise LabError("the program that is to kill a container does not run")

            def has_killed(seconds: float) -> bool:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return killer.wait(seconds) == 0
                return False

            yield has_killed
        finally:
            killer.kill()


@contextmanager
def payload_init_frozen(lab: Lab, pod: str, container: str = "payload") -> Iterator[None]:
    """Stop payload-init (SIGSTOP), as a job can. SIGKILL still ends it."""
    with still(payload_init(lab, pod, container)):
        yield


@contextmanager
def payload_frozen(lab: Lab, pod: str) -> Iterator[None]:
    """Freeze the payload container (its cgroup's freezer): nothing can end it, not even SIGKILL."""
    deadline = time.monotonic() + PATIENCE_S
    while not (states := _freezers(container_id(lab, pod, "payload"))):  # a container may just be exchanged for another
        if time.monotonic() > deadline:
            raise LabError(f"the payload container of pod {pod} has no cgroup that can be frozen")
        time.sleep(0.1)
    frozen, thawed = ("FROZEN", "THAWED") if states[0].name == "freezer.state" else ("1", "0")
    states[0].write_text(frozen)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # the container has ended
            states[0].write_text(thawed)


def _freezers(container: str) -> list[Path]:
    """Return the files that freeze and thaw a container; none if it has ended."""
    names = ("freezer.state", "cgroup.freeze")
    return [folder / name for name in names for folder in cgroups.of_container(container, name)]


@contextmanager
def volume_full(lab: Lab, pod: str, volume: str, *, inodes: bool = False) -> Iterator[None]:
    """Fill an emptyDir of the pod, which must be one with `medium: Memory`: no disk of this machine is filled.

    Args:
        lab: whose node.
        pod: name of a pilot pod.
        volume: the volume's name.
        inodes: leave room for bytes, but none for one more file.
    """
    folder = lab.settings.state / f"kubelet/pods/{uid_of(lab, pod)}/volumes/kubernetes.io~empty-dir" / volume
    if not folder.is_mount():
        raise LabError(f"volume {volume} of pod {pod} is no emptyDir with `medium: Memory`")
    facts = os.statvfs(folder)
    had = f"size={facts.f_blocks * facts.f_frsize},nr_inodes={facts.f_files}"
    fillers = folder / ".full"
    fillers.mkdir()
    try:
        if inodes:
            few = facts.f_files - facts.f_ffree + _FEW_INODES
            run(["mount", "-o", f"remount,nr_inodes={few}", folder], what=f"use up the inodes of {volume}")
        _fill(fillers, with_files=inodes)
        yield
    finally:
        with contextlib.suppress(FileNotFoundError):  # a pilot empties its jobs' /tmp
            shutil.rmtree(fillers)
        if inodes:
            run(["mount", "-o", f"remount,{had}", folder], what=f"give {volume} its inodes back")


def _fill(folder: Path, *, with_files: bool) -> None:
    """Write until there is no room. Others write there too, so the space that was free before may be less by now."""
    try:
        if with_files:
            for number in itertools.count():
                (folder / f"{number}").touch()
        with (folder / "bytes").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(_CHUNK))
    except OSError as problem:
        if problem.errno != errno.ENOSPC:
            raise


def _pool_addresses(lab: Lab) -> list[str]:
    query = ("get", "pods", "-n", POOL_NAMESPACE, "-o", "jsonpath={.items[*].status.podIP}")
    return sorted({lab.pool_host, *lab.kubectl(*query).split()})
