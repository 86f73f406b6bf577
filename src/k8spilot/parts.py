"""The engine's parts that take more than a line to make, each of the settings and of what it works with.

The composition root (pilot.py) says when each is made, and in which order they end.
"""

import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import psutil

from k8spilot.condor.folders import Folders
from k8spilot.docker.translate import Place
from k8spilot.gpu.found import Gpus
from k8spilot.kube.pod import addresses, container, groups_of, same_volumes
from k8spilot.kube.watch import OwnPod
from k8spilot.model.policy import ImagePolicy
from k8spilot.payload.binding import Binder
from k8spilot.payload.cleaners import Cleaner, FromInside, FromOutside
from k8spilot.payload.lookup import Lookup
from k8spilot.payload_init.install import TIDY
from k8spilot.payload_init.listener import Listener
from k8spilot.payload_init.terminals import Terminals
from k8spilot.registry import Registry
from k8spilot.sandbox import PILOT_TEMPORARY, SHARED, Scratch
from k8spilot.settings import Settings


def open_folders(settings: Settings) -> None:
    """Give the volumes the rights that they should have, where the engine is root.

    The kubelet makes them writable for all. HTCondor runs things as the jobs' account in the pilot container, too
    (sshd, transfer plugins), and none of them may put a socket of its own in the place of ours, or leave anything
    there.
    """
    if os.geteuid() != 0:
        return
    for folder in (settings.exchange, settings.gpu_metrics):
        if folder.is_dir():
            folder.chmod(0o755)
    # As any /tmp: of one that is not sticky, a job could change the attributes (xattr(7)).
    for folder in settings.scratch_folders:
        folder.chmod(0o1777)


def cleaner_of(
    settings: Settings, pod: OwnPod, listener: Listener, cgroup: str | None, tidy: Path, ends: AsyncExitStack
) -> Cleaner:
    """The cleaner, which removes what jobs leave: from outside where the engine is root, else from inside.

    Args:
        settings: the pilot's.
        pod: the own pod.
        listener: of payload-init.
        cgroup: of the pilot container; None where that is not a container.
        tidy: the program that removes as root what jobs leave.
        ends: gets to know what is to be closed at the engine's end.
    """
    if os.geteuid() != 0 and cgroup is not None:
        terminals = Terminals()
        ends.callback(terminals.close)
        terminals.open()  # before any job can come, and take all
        return FromInside(
            settings.exchange / TIDY,
            listener,
            lambda: same_volumes(pod.pod, settings.payload_container, map(str, settings.scratch_folders)),
            Folders.of(settings).execute,
            settings.payload_uid,
            terminals,
            fences=not settings.confine_starter,
        )
    return FromOutside(
        Scratch(
            settings.scratch_folders,
            settings.payload_uid,
            (*SHARED, *PILOT_TEMPORARY),
            tidy=tidy,
            cgroup=cgroup,
            sandboxes=Folders.of(settings).execute if "condor" in settings.services else None,
        ),
        listener,
    )


def binder_of(
    settings: Settings, pod: OwnPod, listener: Listener, registry: Registry, idle: Callable[[], str], gpus: Gpus
) -> Binder:
    """The binder, which changes the payload container's image; `idle` gives a fresh name of the idle image."""

    def groups() -> frozenset[int]:
        """The groups that a job may be in: those of the pod, and those that came with its devices before any job."""
        return groups_of(pod.pod, settings.payload_container) | frozenset(gpus.evidence.groups)

    idle()  # remembers the digest, which the pod tells for as long as the node has the image
    return Binder(settings.payload_container, pod, listener, registry, idle, groups, settings.patience_seconds)


def lookup_of(settings: Settings, pod: OwnPod, registry: Registry) -> Lookup:
    """The lookup, which knows the images that jobs may have, and asks registries what they are."""
    policy = ImagePolicy(
        settings.allowed_images,
        settings.require_digest,
        settings.allow_image_volumes,
        reserved=(settings.exchange, settings.execute),
        api=(pod.api.host,),
        pod=addresses(pod.pod),
    )
    return Lookup(registry, policy, settings.patience_seconds)


def place_of(settings: Settings, pod: OwnPod, gpus: Gpus) -> Place:
    """The place, which bounds the requests of a job. Containers of a pod share /dev/shm (of its sandbox)."""
    view = container(pod.pod, settings.payload_container)
    memory = os.statvfs("/dev/shm")  # noqa: S108
    return Place(
        execute=str(settings.execute),
        volumes=view.volumes if view is not None else frozenset(),
        shared_memory=memory.f_blocks * memory.f_frsize,
        used_ports=_listening,
        gpus=gpus,
    )


def _listening() -> set[int]:
    """TCP ports on which anything in the pod's network listens."""
    found = psutil.net_connections("tcp")
    return {one.laddr.port for one in found if one.status == psutil.CONN_LISTEN and one.laddr}
