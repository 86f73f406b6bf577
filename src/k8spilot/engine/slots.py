"""Parts of one slot: its payload container, and the state behind its Docker sockets."""

import asyncio
import os
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import psutil

from k8spilot.condor.ads.agent_link import RemoteStartdAd
from k8spilot.condor.ads.publisher import AdPublisher, PublishedAds
from k8spilot.condor.ads.startd_ad import StartdAd
from k8spilot.condor.configuration.values import pod_of
from k8spilot.docker.create_request.specification import SlotLimits
from k8spilot.docker.job_ends import JobEnds
from k8spilot.docker.store import ContainerStore, Endpoint
from k8spilot.gpu.discovery.record import GpuRecord
from k8spilot.kube.client import Api
from k8spilot.kube.disk_eviction import evicted_for_disk
from k8spilot.kube.own_pod import OwnPod, Sidecar
from k8spilot.kube.pod import addresses, container, groups_of, same_volumes
from k8spilot.kube.resize import room
from k8spilot.model.disk import MIB, LastRun
from k8spilot.model.image_policy import ImagePolicy
from k8spilot.model.killed_containers import KilledContainers
from k8spilot.payload.binding.bind import Timeouts
from k8spilot.payload.binding.binder import Binder
from k8spilot.payload.binding.idle_image import IdleImage
from k8spilot.payload.binding.image_lookup import ImageLookup
from k8spilot.payload.container import JobDifferences, PayloadContainer
from k8spilot.payload.container_sizes import ContainerSizes
from k8spilot.payload.disk_meter import DiskMeter, InsideDiskMeter
from k8spilot.payload.listeners import Fanout
from k8spilot.payload.scrub.from_payload import PayloadScrubber
from k8spilot.payload.scrub.from_pilot import PILOT_TEMPORARY, Leftovers, PilotScrubber
from k8spilot.payload.scrub.scrubber import SHARED, Scrubber
from k8spilot.payload_init.install import SOCKET, TIDY
from k8spilot.payload_init.server import PayloadInitServer
from k8spilot.payload_init.terminals import Terminals
from k8spilot.registry.skopeo import Registry
from k8spilot.settings import Settings, SlotSettings
from k8spilot.telemetry.service import Recorders
from k8spilot.telemetry.status import ObservedSlot

_HOLD_SECONDS: Final = 20.0
"""Seconds for the startd to hold a job: an update of its ad, its polling interval, and the starter's answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
    """Connection to the HTCondor agent, if HTCondor has a container of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedParts:
    """Parts that all slots of a pilot share."""

    startd_ad: StartdAd
    recorders: Recorders
    ads: PublishedAds
    registry: Registry
    idle_image: IdleImage
    killed: KilledContainers
    sizes: ContainerSizes | None
    """Sizes of the payload containers; None if all have one size."""
    tasks: asyncio.TaskGroup


@dataclass(frozen=True, slots=True)
class ListeningSlot:
    """A slot whose payload-init can connect."""

    settings: SlotSettings
    init_server: PayloadInitServer
    scrubber: Scrubber


@dataclass(frozen=True, slots=True)
class EngineSlot:
    """Parts of one slot."""

    settings: SlotSettings
    store: ContainerStore
    observed: ObservedSlot

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """Its Docker sockets, by their paths."""
        return {
            str(self.settings.socket): Endpoint(self.store),
            str(self.settings.htcondor_socket): Endpoint(self.store, of_htcondor=True),
        }


async def listen_for_payload_init(context: EngineContext, slot: SlotSettings, ends: AsyncExitStack) -> ListeningSlot:
    """Listen for a slot's payload-init."""
    init_server = await ends.enter_async_context(PayloadInitServer(slot.exchange / SOCKET, slot.uid, context.cgroup))
    return ListeningSlot(slot, init_server, build_scrubber(context, slot, init_server, ends))


def build_slot(
    context: EngineContext,
    listening: ListeningSlot,
    gpus: GpuRecord,
    shared: SharedParts,
    ends: AsyncExitStack,
    *,
    is_doubtful: bool,
) -> EngineSlot:
    """Return the parts of a slot.

    Args:
        context: environment of the engine.
        listening: slot whose payload-init can connect.
        gpus: GPUs of its payload container.
        shared: parts of all slots.
        ends: gets the callbacks for the engine's end.
        is_doubtful: whether the node may still pull for a bind of an earlier engine.
    """
    settings, pod, slot = context.settings, context.pod, listening.settings
    listener = Fanout([shared.recorders.slot, AdPublisher(shared.ads, slot.number)])
    payload = PayloadContainer(
        build_image_lookup(settings, pod, shared.registry),
        build_binder(context, listening, shared, gpus),
        listening.scrubber,
        shared.tasks,
        timeouts=Timeouts(settings.bind_timeout_seconds, settings.idle_after_seconds, settings.patience_seconds),
        listener=listener,
        differences=JobDifferences(
            sizes=shared.sizes if slot.is_dynamic else None,
            whose=partial(shared.startd_ad.tenant, slot.name) if settings.reuse else None,
        ),
    )
    ends.callback(payload.close)
    if is_doubtful:
        payload.abandoned_pull.assume_unfinished()
    elif not shared.idle_image.is_bound_to(payload.name):
        payload.return_to_idle()
    meter = build_disk_meter(context, slot, is_root=isinstance(listening.scrubber, PilotScrubber))
    store = ContainerStore(
        payload=payload,
        slot_limits=partial(slot_limits, settings, pod, slot=slot, gpus=gpus, meter=meter, startd_ad=shared.startd_ad),
        tasks=shared.tasks,
        listener=listener,
        job_ends=JobEnds(listener, shared.killed),
        holds_refused=settings.refused_images == "hold",
        vacate=shared.startd_ad.vacate,
    )
    return EngineSlot(slot, store, ObservedSlot(slot, listening.init_server, payload, gpus))


def build_sizes(settings: Settings, pod: OwnPod) -> ContainerSizes | None:
    """Return the sizes of a partitionable slot's payload containers, and None without one."""
    names = [slot.container for slot in settings.dynamic_slots]
    if not names or (shared := room(pod.pod, names)) is None:
        return None
    return ContainerSizes(pod, names, shared)


def build_scrubber(
    context: EngineContext, slot: SlotSettings, init_server: PayloadInitServer, ends: AsyncExitStack
) -> Scrubber:
    """Return the scrubber, which removes jobs' leftovers: from outside if the engine is root, else from inside.

    Args:
        context: environment of the engine.
        slot: the slot.
        init_server: server of its payload-init.
        ends: gets the callbacks for the engine's end.
    """
    settings, pod = context.settings, context.pod
    if os.geteuid() != 0 and context.cgroup is not None:
        terminals = Terminals()
        ends.callback(terminals.close)
        terminals.open()  # before any job can arrive and take all
        return PayloadScrubber(
            program=settings.exchange / TIDY,
            init_server=init_server,
            folders=lambda: same_volumes(pod.pod, slot.container, map(str, settings.scratch_folders)),
            sandboxes=slot.execute,
            uid=slot.uid,
            terminals=terminals,
            fences=not settings.confine_starter,
        )
    return PilotScrubber(
        Leftovers(
            slot.emptied_folders,
            slot.uid,
            (*SHARED, *PILOT_TEMPORARY),
            tidy=context.tidy,
            cgroup=context.cgroup,
            sandboxes=slot.execute if "condor" in settings.services else None,
        ),
        init_server,
    )


def build_disk_meter(context: EngineContext, slot: SlotSettings, *, is_root: bool) -> DiskMeter:
    """Return the meter of the disk that a slot's jobs use."""
    settings, pod = context.settings, context.pod
    if not is_root:
        return InsideDiskMeter(
            settings.exchange / TIDY,
            slot.scratch_folders,
            lambda: [
                str(slot.execute),
                *same_volumes(pod.pod, slot.container, map(str, settings.scratch_folders)),
            ],
        )
    sandboxes = [settings.execute if slot.is_only else slot.execute] if "condor" in settings.services else []
    return DiskMeter(context.tidy, [*sandboxes, *slot.scratch_folders])


async def evicted_at(settings: Settings, api: Api, run: LastRun) -> str:
    """Return why the pod of a job's last run was evicted for the disk that it used; see `evicted_for_disk`."""
    name = pod_of(settings, run.host)
    if name in ("", settings.pod_name):
        return ""
    return await evicted_for_disk(
        api, namespace=settings.pod_namespace, name=name, payload=settings.payload_container, run=run
    )


def build_binder(context: EngineContext, listening: ListeningSlot, shared: SharedParts, gpus: GpuRecord) -> Binder:
    """Return the binder, which changes the payload container's image."""
    settings, pod, slot = context.settings, context.pod, listening.settings

    def groups() -> frozenset[int]:
        """Return the groups that a job may have: those of the pod, and those of its devices before any job."""
        return groups_of(pod.pod, slot.container) | frozenset(gpus.evidence.groups)

    shared.idle_image()  # stores the digest, which the pod's status has for as long as the node has the image
    # A container of a partitionable slot gets the size of its job by a resize in any case.
    sidecar = Sidecar(slot.container, slot.bind_annotation, relists=settings.relist and not slot.is_dynamic)
    return Binder(
        sidecar=sidecar,
        pod=pod,
        init_server=listening.init_server,
        registry=shared.registry,
        idle=shared.idle_image,
        groups=groups,
        patience=settings.patience_seconds,
    )


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


def slot_limits(
    settings: Settings, pod: OwnPod, slot: SlotSettings, gpus: GpuRecord, meter: DiskMeter, startd_ad: StartdAd
) -> SlotLimits:
    """Return the limits of a job's requests. Containers share the pod's /dev/shm, unless they have a volume there."""
    view = container(pod.pod, slot.container)
    # Jobs of a partitionable slot share its disk. HTCondor gives each what it requests.
    parts = len(settings.dynamic_slots) if slot.is_dynamic else 1
    memory = os.statvfs(slot.shared_memory or "/dev/shm")  # noqa: S108
    return SlotLimits(
        execute=str(settings.execute if slot.is_only else slot.execute),
        volumes=view.volumes if view is not None else frozenset(),
        shared_memory=memory.f_blocks * memory.f_frsize,
        used_ports=_listening,
        gpus=gpus,
        disk=parts * settings.slot_disk_mb * MIB or None,
        disk_meter=meter,
        pod_disk=parts * settings.payload_disk_mb * MIB or None,
        evicted=partial(evicted_at, settings, pod.api),
        hold_seconds=_HOLD_SECONDS if startd_ad.is_connected else 0.0,
    )


def _listening() -> set[int]:
    """Return the TCP ports in use in the pod's network."""
    connections = psutil.net_connections("tcp")
    return {item.laddr.port for item in connections if item.status == psutil.CONN_LISTEN and item.laddr}
