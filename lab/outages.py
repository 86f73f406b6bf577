"""Deliberate faults of the node. All are undone. Those of one pod are in pod_faults.py.

A fault that lasts is a context manager: the fault exists inside it and is gone after it, also after an error.
They hit every pod of the lab, so tests with them carry the marker `disruptive`. While such a fault lasts, `lab up`
waits and does not repair the node.

All raise LabError, also if the cluster is not the lab's own.
"""

import fcntl
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

from lab import node, testbed
from lab.api import Lab
from lab.errors import LabError
from lab.pod_processes import check_own, still
from lab.processes import Daemon, Daemons
from lab.settings import CENTRAL_MANAGER, POOL_NAMESPACE
from lab.shell import run

_LATE_S = 100
"""Time limit, in seconds, for a kubelet to find and start a new pod after an outage of the API server."""


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
def runtime_stopped(lab: Lab, *, kill: bool = False) -> Iterator[None]:
    """End the container runtime, by SIGKILL if `kill`, while containers run on.

    Afterwards it runs, and the node is Ready.
    """
    with _stopped(lab, lab.settings.runtime_daemon, kill=kill):
        yield
    _until(lambda: node.runtime_answers(lab.settings), "the runtime answers")
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
    """Return when the control plane and the kubelet work again: a Job of one pod has completed."""
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
        lab: whose node, with containerd.
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

    A small file system of its own lies where the runtime writes what it downloads.
    """
    folder = lab.settings.downloads
    options = "size=1m,nr_inodes=3" if inodes else "size=4k,nr_inodes=1000"
    with _alone(lab):
        run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], what="fill the image disk")
        try:
            yield
        finally:
            run(["umount", "--lazy", folder], what="make room on the image disk")


# --- how ---


@contextmanager
def _alone(lab: Lab) -> Iterator[None]:
    """Keep `lab up` away from the node: it would take a node without its runtime for broken and make another."""
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
    try:
        if kill:
            process.kill()
        daemons.stop(name)
        yield
    finally:
        daemons.stop(name)  # an interruption may have come while it was ending
        daemons.start(again)


def _can_be_entered(lab: Lab) -> bool:
    """Return whether the runtime executes the kubelet's requests: it reports that it is ready before that."""
    try:
        lab.kubectl("exec", "-n", POOL_NAMESPACE, CENTRAL_MANAGER, "--", "true")
    except LabError:
        return False
    return True


def _ctr(lab: Lab, *arguments: str) -> str:
    where = ["--address", str(lab.settings.runtime_socket), "--namespace", "k8s.io"]
    return run([lab.settings.bin / "ctr", *where, *arguments], what=f"ask containerd (ctr {arguments[0]})", timeout=30)


def _until(look: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + node.PATIENCE_S
    while not look():
        if time.monotonic() > deadline:
            raise LabError(f"not within {node.PATIENCE_S:.0f} s: {what}")
        time.sleep(0.05)
