"""Deliberate faults of the node, of a pod's network and of its disks. All are undone.

A fault that lasts is a context manager: the fault exists inside it and is gone after it, also after an error.
Faults of the whole node (`kubelet_...`, `containerd_...`, `image_...`) hit every pod of the lab, so tests with them
carry the marker `disruptive`; the others hit one pod. While a fault of the node lasts, `lab up` waits and does not
repair the node.

All raise LabError. Faults of the node do so, too, if the cluster is not the lab's own.
"""

import contextlib
import errno
import fcntl
import itertools
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from lab import cgroups, node, testbed
from lab.api import Lab
from lab.errors import LabError, NothingToHitError
from lab.pod_processes import check_own, container_id, network, payload_init, still, uid_of
from lab.processes import Daemon, Daemons
from lab.settings import CENTRAL_MANAGER, POOL_NAMESPACE
from lab.shell import run

PATIENCE_S = 30.0
PAYLOAD_UID = 65534
_LATE_S = 100
"""A kubelet may look for its pods so late after an outage of the API server, and takes some seconds for one."""
_FEW_INODES = 16
"""So many are left for what a pod makes at the same moment, and then used up."""
_CHUNK = 1 << 20
"""Bytes that are written at once to fill a volume."""


# --- the node's daemons ---


@contextmanager
def kubelet_stopped(lab: Lab) -> Iterator[None]:
    """End the kubelet; start it again afterwards, and return when the node is Ready."""
    with _stopped(lab, "kubelet"):
        yield
    node.wait_ready(lab.settings, Daemons(lab.settings))


@contextmanager
def kubelet_frozen(lab: Lab) -> Iterator[None]:
    """Stop the kubelet (SIGSTOP), as if the node were overloaded."""
    with _alone(lab), still(_daemon(lab, "kubelet").pid):
        yield


@contextmanager
def containerd_stopped(lab: Lab, *, kill: bool = False) -> Iterator[None]:
    """End the container runtime, by SIGKILL if it is to, while containers run on.

    Afterwards it runs, and the node is Ready.
    """
    with _stopped(lab, "containerd", kill=kill):
        yield
    _until(lambda: _containerd_answers(lab), "containerd answers")
    _until(lambda: _can_be_entered(lab), "containers can be entered")
    node.wait_ready(lab.settings, Daemons(lab.settings))


@contextmanager
def api_server_stopped(lab: Lab) -> Iterator[None]:
    """End the API server, as when it is replaced by a new one; start it again afterwards, and return when it is ready.

    kubectl, and with it most of what tests do, fails meanwhile; jobs can be submitted and looked at. The scheduler is
    replaced with it: one that finds pods elsewhere than it remembers ends itself (pkg/scheduler/backend/cache), and
    nothing here starts it again, as a real control plane's kubelet does. So is the controller manager: a new API server
    refuses what it is asked for in its first moments, and whoever meets that asks again after up to a minute
    (client-go, tools/cache/reflector.go). The kubelet, which is every node's own, does so: see `until_pods_start`.
    """
    with _alone(lab), _ended(lab, "kube-scheduler"), _ended(lab, "kube-controller-manager"):
        try:
            with _ended(lab, "kube-apiserver"):
                yield
        finally:  # those that are to come end themselves where there is none
            _until(lambda: node.api_answers(lab.settings), "the API server answers")
    node.wait_ready(lab.settings, Daemons(lab.settings))


def until_pods_start(lab: Lab) -> None:
    """Return when the whole control plane and the kubelet do their work again: a Job of one pod comes to its end."""
    name = f"lab-canary-{secrets.token_hex(3)}"
    try:
        lab.kubectl("create", "job", name, "-n", lab.namespace, f"--image={lab.registry}/busybox", "--", "true")
        lab.kubectl("wait", f"job/{name}", "-n", lab.namespace, "--for=condition=Complete", f"--timeout={_LATE_S}s")
    finally:
        lab.kubectl("delete", "job", name, "-n", lab.namespace, "--ignore-not-found", "--wait=false")


@contextmanager
def registry_stopped(lab: Lab) -> Iterator[None]:
    """End the lab's registry."""
    with _stopped(lab, "registry"):
        yield


# --- the node's images and their disk ---


def remove_image(lab: Lab, reference: str) -> None:
    """Take an image from the node, with all its names, though containers may run it: as `crictl rmi` does.

    Args:
        lab: whose node.
        reference: any of its names.
    """
    check_own(lab)
    listed = _ctr(lab, "images", "list").splitlines()[1:]
    names = {words[0]: words[2] for line in listed if len(words := line.split()) > 2}
    if (digest := names.get(reference)) is None:
        raise LabError(f"the node has no image {reference}")
    _ctr(lab, "images", "remove", *(name for name, found in names.items() if found == digest))


@contextmanager
def image_disk_full(lab: Lab, *, inodes: bool = False) -> Iterator[None]:
    """Let the node have no room for layers that it pulls: none for bytes, or no inodes.

    A small file system of its own lies where containerd writes what it downloads.
    """
    folder = lab.settings.cache / "containerd/io.containerd.content.v1.content/ingest"
    options = "size=1m,nr_inodes=3" if inodes else "size=4k,nr_inodes=1000"
    with _alone(lab):
        run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], what="fill the image disk")
        try:
            yield
        finally:
            run(["umount", "--lazy", folder], what="make room on the image disk")


# --- one pod ---


@contextmanager
def network_cut(lab: Lab, pod: str) -> Iterator[None]:
    """Let no packet pass between the pilot pod `pod` and the pool, in neither direction, and tell nobody of it.

    What the pod has with others (API server, registry) goes on.
    """
    ends = (("INPUT", "--source"), ("OUTPUT", "--destination"))
    with _dropped(lab, pod, [(chain, option, one) for one in _pool_addresses(lab) for chain, option in ends]):
        yield


@contextmanager
def api_server_cut(lab: Lab, pod: str) -> Iterator[None]:
    """Let no packet of the pod `pod` pass to the API server, and tell nobody of it."""
    service = lab.kubectl("get", "service", "kubernetes", "-n", "default", "-o", "jsonpath={.spec.clusterIP}")
    query = ("get", "endpoints", "kubernetes", "-n", "default", "-o")
    address, port = lab.kubectl(*query, "jsonpath={.subsets[0].addresses[0].ip} {.subsets[0].ports[0].port}").split()
    ends = ((service, "443"), (address, port))
    with _dropped(
        lab, pod, [("OUTPUT", "--destination", host, "--protocol", "tcp", "--dport", number) for host, number in ends]
    ):
        yield


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
    command = ["chrt", "--rr", "1", sys.executable, "-u", "-c", _KILLER, str(folder), str(PAYLOAD_UID)]
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


_KILLER = """
import os, sys, time
folder, uid = sys.argv[1:]
def looks_like_it(pid):
    try:
        with open(f'/proc/{pid}/status') as file: status = file.read()
    except OSError: return False
    return status.startswith('Name:\\trunc:[2:INIT]') and f'\\nUid:\\t{uid}\\t{uid}\\t' in status
def containers():
    return {one.name for one in os.scandir(folder) if one.is_dir()}
before = containers()
print('looks')
while True:
    for name in containers() - before:
        try:
            with open(f'{folder}/{name}/cgroup.procs') as file: processes = file.read().split()
        except OSError: continue
        for pid in processes:
            if looks_like_it(pid):
                os.kill(int(pid), 9)
                sys.exit(0)
    time.sleep(0.0005)
"""


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
    """The files that stop and start a container; none if it has ended."""
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


# --- how ---


def _fill(folder: Path, *, with_files: bool) -> None:
    """Write until there is no room: what was free a moment ago may be less by now, since others write there too."""
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


@contextmanager
def _alone(lab: Lab) -> Iterator[None]:
    """Let no `lab up` look at the node: it would take one whose containerd is away for broken and make another."""
    check_own(lab)
    with testbed.LOCK.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _daemon(lab: Lab, name: str) -> psutil.Process:
    process = Daemons(lab.settings).find(name)
    if process is None:
        raise LabError(f"{name} does not run: bring the lab up first")
    return process


@contextmanager
def _stopped(lab: Lab, name: str, *, kill: bool = False) -> Iterator[None]:
    with _alone(lab), _ended(lab, name, kill=kill):
        yield


@contextmanager
def _ended(lab: Lab, name: str, *, kill: bool = False) -> Iterator[None]:
    process = _daemon(lab, name)
    daemons, again = Daemons(lab.settings), Daemon(name, process.cmdline())
    if kill:
        process.kill()
    daemons.stop(name)
    try:
        yield
    finally:
        daemons.start(again)


def _containerd_answers(lab: Lab) -> bool:
    try:
        _ctr(lab, "version")
    except LabError:
        return False
    return True


def _can_be_entered(lab: Lab) -> bool:
    """Whether the runtime does what the kubelet asks for: it says that it is there before that."""
    try:
        lab.kubectl("exec", "-n", POOL_NAMESPACE, CENTRAL_MANAGER, "--", "true")
    except LabError:
        return False
    return True


def _ctr(lab: Lab, *arguments: str) -> str:
    where = ["--address", str(lab.settings.containerd_socket), "--namespace", "k8s.io"]
    return run([lab.settings.bin / "ctr", *where, *arguments], what=f"ask containerd (ctr {arguments[0]})", timeout=30)


def _pool_addresses(lab: Lab) -> list[str]:
    query = ("get", "pods", "-n", POOL_NAMESPACE, "-o", "jsonpath={.items[*].status.podIP}")
    return sorted({lab.pool_host, *lab.kubectl(*query).split()})


def _until(look: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not look():
        if time.monotonic() > deadline:
            raise LabError(f"not within {PATIENCE_S:.0f} s: {what}")
        time.sleep(0.05)
