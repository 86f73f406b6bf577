"""Parts of the engine. Each is created from the settings and from earlier parts, so that none is incomplete."""

import asyncio
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import psutil

from k8spilot.common.aio import restarting
from k8spilot.condor.ad_publisher import AdPublisher
from k8spilot.condor.agent_link import RemoteStartdAd
from k8spilot.condor.config import pod_of
from k8spilot.condor.folders import Folders
from k8spilot.condor.node_images import NodeImages
from k8spilot.condor.startd_ad import LocalStartdAd, StartdAd
from k8spilot.docker.create.specification import SlotLimits
from k8spilot.docker.store import ContainerStore
from k8spilot.engine.startup import deaths, find_gpus, hear_payload, open_folders, see_pod
from k8spilot.gpu.discovery.record import GpuRecord
from k8spilot.kube.client import Api
from k8spilot.kube.disk_eviction import evicted_for_disk
from k8spilot.kube.own_pod import OwnPod
from k8spilot.kube.pod import addresses, container, groups_of, same_volumes
from k8spilot.model.disk import MIB, LastRun
from k8spilot.model.image_policy import ImagePolicy
from k8spilot.payload.bind import Timeouts
from k8spilot.payload.binder import Binder
from k8spilot.payload.container import PayloadContainer
from k8spilot.payload.disk_meter import DiskMeter, InsideDiskMeter
from k8spilot.payload.idle_image import IdleImage
from k8spilot.payload.image_lookup import ImageLookup
from k8spilot.payload.listeners import Fanout, tell_of_outages
from k8spilot.payload.scrub.from_payload import PayloadScrubber
from k8spilot.payload.scrub.from_pilot import PILOT_TEMPORARY, Leftovers, PilotScrubber
from k8spilot.payload.scrub.scrubber import SHARED, Scrubber
from k8spilot.payload_init.install import TIDY
from k8spilot.payload_init.server import SOCKET, PayloadInitServer
from k8spilot.payload_init.terminals import Terminals
from k8spilot.registry.skopeo import Registry
from k8spilot.settings import Settings
from k8spilot.telemetry.service import Recorders, Telemetry
from k8spilot.telemetry.status import Observed

_HOLD_SECONDS: Final = 20.0
"""Seconds for the startd to hold a job: an update of its ad, its polling interval, and the starter's answer."""


@dataclass(frozen=True, slots=True)
class EngineContext:
    """Environment of an engine at its start."""

    settings: Settings
    pod: OwnPod
    """The own pod, which is followed already."""
    cgroup: str | None
    """Cgroup of the pilot container, in which no process of the jobs' account may stay; None outside of a container."""
    tidy: Path
    """Program that removes jobs' leftovers as root."""
    agent: RemoteStartdAd | None
    """Connection to HTCondor, if it has a container of its own."""


@dataclass(frozen=True, slots=True)
class Components:
    """Parts of one pilot's engine."""

    startd_ad: StartdAd
    images: NodeImages
    gpus: GpuRecord
    payload: PayloadContainer
    store: ContainerStore
    telemetry: Telemetry


async def build(context: EngineContext, tasks: asyncio.TaskGroup, ends: AsyncExitStack) -> Components:
    """Create the parts in their order. On the way payload-init connects, and the pod and its GPUs are found.

    Args:
        context: environment of the engine.
        tasks: task group of the parts.
        ends: gets the callbacks for the engine's end.

    Raises:
        PreflightError: the pod cannot be read.
    """
    settings, pod = context.settings, context.pod
    open_folders(settings)
    init_server = await ends.enter_async_context(
        PayloadInitServer(settings.exchange / SOCKET, settings.payload_uid, context.cgroup)
    )
    scrubber = build_scrubber(settings, pod, init_server, context.cgroup, context.tidy, ends)
    is_doubtful = await hear_payload(settings, init_server, context.cgroup)
    startd_ad = context.agent or LocalStartdAd(Folders.of(settings), settings)
    images = NodeImages(startd_ad, pod.api, settings.node_name)
    recorders = Recorders(settings, pod.api)
    publisher = AdPublisher(startd_ad, images)
    listener = Fanout([recorders.slot, publisher])
    reporting = restarting(partial(tell_of_outages, pod, listener), "the report of API outages")
    ends.callback(tasks.create_task(reporting, name="report of API outages").cancel)
    withdrawal = restarting(publisher.withdraw_avoided, "the withdrawal of avoided images")
    ends.callback(tasks.create_task(withdrawal, name="withdrawal of avoided images").cancel)
    await see_pod(settings, pod)  # after the parts that must not wait for an unavailable API server
    gpus = await find_gpus(settings, pod, init_server, recorders.slot)  # before any job can arrive
    idle_image = IdleImage(lambda: pod.pod)
    registry = Registry(settings.pull_secret if settings.pull_secret.exists() else None)
    payload = PayloadContainer(
        pod,
        build_image_lookup(settings, pod, registry),
        build_binder(settings, pod, init_server, registry, idle_image, gpus),
        scrubber,
        tasks,
        pace=Timeouts(settings.bind_timeout_seconds, settings.idle_after_seconds, settings.patience_seconds),
        listener=listener,
    )
    ends.callback(payload.close)
    if is_doubtful:
        payload.abandoned_pull.doubt()
    elif not idle_image.is_bound_to(payload.name):
        payload.return_to_idle()
    meter = build_disk_meter(settings, pod, context.tidy, is_root=isinstance(scrubber, PilotScrubber))
    store = ContainerStore(
        [payload],
        partial(slot_limits, settings, pod, gpus, meter, startd_ad),
        tasks,
        listener,
        holds_refused=settings.refused_images == "hold",
        vacate=startd_ad.vacate,
    )
    observed = Observed(pod, init_server, startd_ad, payload, gpus, deaths())
    return Components(startd_ad, images, gpus, payload, store, Telemetry(settings, observed, recorders, idle_image))


def build_scrubber(
    settings: Settings,
    pod: OwnPod,
    init_server: PayloadInitServer,
    cgroup: str | None,
    tidy: Path,
    ends: AsyncExitStack,
) -> Scrubber:
    """Return the scrubber, which removes jobs' leftovers: from outside if the engine is root, else from inside.

    Args:
        settings: settings of the pilot.
        pod: the own pod.
        init_server: server of payload-init.
        cgroup: cgroup of the pilot container; None outside of a container.
        tidy: program that removes jobs' leftovers as root.
        ends: gets the callbacks for the engine's end.
    """
    if os.geteuid() != 0 and cgroup is not None:
        terminals = Terminals()
        ends.callback(terminals.close)
        terminals.open()  # before any job can arrive and take all
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


def build_disk_meter(settings: Settings, pod: OwnPod, tidy: Path, *, is_root: bool) -> DiskMeter:
    """Return the meter of the disk that jobs use. `tidy` is the program that measures as root."""
    if not is_root:
        sandboxes = str(Folders.of(settings).execute)
        return InsideDiskMeter(
            settings.exchange / TIDY,
            settings.scratch_folders,
            lambda: [
                sandboxes,
                *same_volumes(pod.pod, settings.payload_container, map(str, settings.scratch_folders)),
            ],
        )
    return DiskMeter(tidy, [*([settings.execute] if "condor" in settings.services else []), *settings.scratch_folders])


async def evicted_at(settings: Settings, api: Api, run: LastRun) -> str:
    """Return why the pod of a job's last run was evicted for the disk that it used; see `evicted_for_disk`."""
    name = pod_of(settings, run.host)
    if name in ("", settings.pod_name):
        return ""
    return await evicted_for_disk(api, settings.pod_namespace, name, settings.payload_container, run)


def build_binder(
    settings: Settings,
    pod: OwnPod,
    init_server: PayloadInitServer,
    registry: Registry,
    idle: Callable[[], str],
    gpus: GpuRecord,
) -> Binder:
    """Return the binder, which changes the payload container's image; `idle` returns a fresh name of the idle image."""

    def groups() -> frozenset[int]:
        """Return the groups that a job may have: those of the pod, and those of its devices before any job."""
        return groups_of(pod.pod, settings.payload_container) | frozenset(gpus.evidence.groups)

    idle()  # stores the digest, which the pod's status has for as long as the node has the image
    return Binder(settings.payload_container, pod, init_server, registry, idle, groups, settings.patience_seconds)


def build_image_lookup(settings: Settings, pod: OwnPod, registry: Registry) -> ImageLookup:
    """Return the lookup, which knows the policy for jobs' images and queries registries."""
    policy = ImagePolicy(
        settings.allowed_images,
        settings.require_digest,
        settings.allow_image_volumes,
        reserved=(settings.exchange, settings.execute),
        api=(pod.api.host,),
        pod=addresses(pod.pod),
    )
    return ImageLookup(registry, policy, settings.patience_seconds)


def slot_limits(settings: Settings, pod: OwnPod, gpus: GpuRecord, meter: DiskMeter, startd_ad: StartdAd) -> SlotLimits:
    """Return the limits of a job's requests. Containers of a pod share /dev/shm (of its sandbox)."""
    view = container(pod.pod, settings.payload_container)
    memory = os.statvfs("/dev/shm")  # noqa: S108
    return SlotLimits(
        execute=str(settings.execute),
        volumes=view.volumes if view is not None else frozenset(),
        shared_memory=memory.f_blocks * memory.f_frsize,
        used_ports=_listening,
        gpus=gpus,
        disk=settings.slot_disk_mb * MIB or None,
        disk_meter=meter,
        pod_disk=settings.payload_disk_mb * MIB or None,
        evicted=partial(evicted_at, settings, pod.api),
        hold_seconds=_HOLD_SECONDS if startd_ad.there else 0.0,
    )


def _listening() -> set[int]:
    """Return the TCP ports in use in the pod's network."""
    connections = psutil.net_connections("tcp")
    return {item.laddr.port for item in connections if item.status == psutil.CONN_LISTEN and item.laddr}
