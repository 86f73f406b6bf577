"""Parts of the engine. Each is created from the settings and from earlier parts, so that none is incomplete."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from k8spilot.common.aio import guarded_task
from k8spilot.condor.ads.node_images import NodeImages
from k8spilot.condor.ads.publisher import AdPublisher, PublishedAds
from k8spilot.condor.ads.startd_ad import LocalStartdAd, StartdAd
from k8spilot.condor.folders import Folders
from k8spilot.engine.slots import (
    EngineContext,
    EngineSlot,
    SharedParts,
    build_sizes,
    build_slot,
    listen_for_payload_init,
)
from k8spilot.engine.startup import (
    await_payload_init,
    await_pod,
    deaths,
    find_claims,
    find_gpus,
    open_folders,
)
from k8spilot.gpu.pod_gpus import PodGpus
from k8spilot.model.killed_containers import KilledContainers
from k8spilot.payload.binding.idle_image import IdleImage
from k8spilot.payload.listeners import Fanout, report_outages
from k8spilot.registry.skopeo import Registry
from k8spilot.supervisor.plan import EQUAL_SLOTS
from k8spilot.telemetry.service import Recorders, Telemetry
from k8spilot.telemetry.status import Observed


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """Parts of one pilot's engine."""

    startd_ad: StartdAd
    images: NodeImages
    slots: tuple[EngineSlot, ...]
    gpus: PodGpus
    telemetry: Telemetry


async def build(context: EngineContext, tasks: asyncio.TaskGroup, ends: AsyncExitStack) -> Components:
    """Create the parts in their order. Also wait for each payload-init, read the pod, and find its GPUs.

    Args:
        context: environment of the engine.
        tasks: task group of the parts.
        ends: gets the callbacks for the engine's end.

    Raises:
        PreflightError: the pod cannot be read.
    """
    settings, pod = context.settings, context.pod
    open_folders(settings)
    listening = [await listen_for_payload_init(context, slot, ends) for slot in settings.slots]
    doubtful = await asyncio.gather(
        *(await_payload_init(one.settings, one.init_server, context.cgroup) for one in listening)
    )
    startd_ad = context.agent or LocalStartdAd(Folders.of(settings), settings)
    images = NodeImages(startd_ad, pod.api, settings.node_name)
    recorders = Recorders(settings, pod.api)
    ads = PublishedAds(startd_ad, images)
    listener = Fanout([recorders.slot, AdPublisher(ads)])
    ends.enter_context(guarded_task(tasks, partial(report_outages, pod, listener), "the report of API outages"))
    ends.enter_context(guarded_task(tasks, ads.withdraw_avoided, "the withdrawal of avoided images"))
    await await_pod(settings, pod)  # after the parts that must not wait for an unavailable API server
    claims = await find_claims(settings, pod)
    # Before any job.
    gpus = [
        await find_gpus(pod, claims, slot=one.settings, init_server=one.init_server, recorder=recorders.slot)
        for one in listening
    ]
    shared = SharedParts(
        startd_ad=startd_ad,
        recorders=recorders,
        ads=ads,
        registry=Registry(settings.pull_secret if settings.pull_secret.exists() else None),
        idle_image=IdleImage(lambda: pod.pod),
        killed=KilledContainers(),
        sizes=build_sizes(settings, pod),
        tasks=tasks,
    )
    slots = tuple(
        build_slot(context, one, gpus=gpu_record, shared=shared, ends=ends, is_doubtful=is_doubtful)
        for one, gpu_record, is_doubtful in zip(listening, gpus, doubtful, strict=True)
    )
    if shared.sizes is not None:
        ends.enter_context(guarded_task(tasks, shared.sizes.shrink_all, "the sizes of idle containers", may_end=True))
    observed = _observed(context, startd_ad, slots)
    telemetry = Telemetry(settings, observed, recorders, shared.idle_image)
    return Components(startd_ad=startd_ad, images=images, slots=slots, gpus=observed.gpus, telemetry=telemetry)


def _observed(context: EngineContext, startd_ad: StartdAd, slots: Sequence[EngineSlot]) -> Observed:
    """Return the parts whose state the status shows."""
    return Observed(
        pod=context.pod,
        startd_ad=startd_ad,
        slots=tuple(slot.observed for slot in slots),
        restarts=deaths(),
        equal_slots=os.environ.get(EQUAL_SLOTS, ""),
    )
