"""The engine's parts that take more than a line to make, each of the settings and of what it works with.

The composition root (engine/app.py) says when each is made, and in which order they end.
"""

import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import psutil

from k8spilot.condor.folders import Folders
from k8spilot.docker.create.specification import SlotLimits
from k8spilot.gpu.discovery.record import GpuRecord
from k8spilot.kube.own_pod import OwnPod
from k8spilot.kube.pod import addresses, container, groups_of, same_volumes
from k8spilot.model.image_policy import ImagePolicy
from k8spilot.payload.binder import Binder
from k8spilot.payload.image_lookup import ImageLookup
from k8spilot.payload.scrub.from_payload import PayloadScrubber
from k8spilot.payload.scrub.from_pilot import PILOT_TEMPORARY, Leftovers, PilotScrubber
from k8spilot.payload.scrub.scrubber import SHARED, Scrubber
from k8spilot.payload_init.install import TIDY
from k8spilot.payload_init.server import PayloadInitServer
from k8spilot.payload_init.terminals import Terminals
from k8spilot.registry.skopeo import Registry
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


def build_scrubber(
    settings: Settings,
    pod: OwnPod,
    init_server: PayloadInitServer,
    cgroup: str | None,
    tidy: Path,
    ends: AsyncExitStack,
) -> Scrubber:
    """The scrubber, which removes what jobs leave: from outside where the engine is root, else from inside.

    Args:
        settings: the pilot's.
        pod: the own pod.
        init_server: where payload-init connects to.
        cgroup: of the pilot container; None where that is not a container.
        tidy: the program that removes as root what jobs leave.
        ends: gets to know what is to be closed at the engine's end.
    """
    if os.geteuid() != 0 and cgroup is not None:
        terminals = Terminals()
        ends.callback(terminals.close)
        terminals.open()  # before any job can come, and take all
        return PayloadScrubber(
            settings.exchange / TIDY,
            init_server,
            lambda: same_volumes(pod.pod, settings.payload_container, map(str, settings.scratch_folders)),
            Folders.of(settings).execute,
            settings.payload_uid,
            terminals,
            fences=not settings.confine_starter,
        )
    return PilotScrubber(
        Leftovers(
            settings.scratch_folders,
            settings.payload_uid,
            (*SHARED, *PILOT_TEMPORARY),
            tidy=tidy,
            cgroup=cgroup,
            sandboxes=Folders.of(settings).execute if "condor" in settings.services else None,
        ),
        init_server,
    )


def build_binder(
    settings: Settings,
    pod: OwnPod,
    init_server: PayloadInitServer,
    registry: Registry,
    idle: Callable[[], str],
    gpus: GpuRecord,
) -> Binder:
    """The binder, which changes the payload container's image; `idle` gives a fresh name of the idle image."""

    def groups() -> frozenset[int]:
        """The groups that a job may be in: those of the pod, and those that came with its devices before any job."""
        return groups_of(pod.pod, settings.payload_container) | frozenset(gpus.evidence.groups)

    idle()  # remembers the digest, which the pod tells for as long as the node has the image
    return Binder(settings.payload_container, pod, init_server, registry, idle, groups, settings.patience_seconds)


def build_image_lookup(settings: Settings, pod: OwnPod, registry: Registry) -> ImageLookup:
    """The lookup, which knows the images that jobs may have, and asks registries what they are."""
    policy = ImagePolicy(
        settings.allowed_images,
        settings.require_digest,
        settings.allow_image_volumes,
        reserved=(settings.exchange, settings.execute),
        api=(pod.api.host,),
        pod=addresses(pod.pod),
    )
    return ImageLookup(registry, policy, settings.patience_seconds)


def slot_limits(settings: Settings, pod: OwnPod, gpus: GpuRecord) -> SlotLimits:
    """The place, which bounds the requests of a job. Containers of a pod share /dev/shm (of its sandbox)."""
    view = container(pod.pod, settings.payload_container)
    memory = os.statvfs("/dev/shm")  # noqa: S108
    return SlotLimits(
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
