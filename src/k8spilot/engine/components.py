"""Parts of the engine. Each is created from the settings and from earlier parts, so that none is incomplete."""

import asyncio
import os
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from k8spilot.common.aio import restarting
from k8spilot.condor.ad_publisher import AdPublisher, PublishedAds
from k8spilot.condor.folders import Folders
from k8spilot.condor.node_images import NodeImages
from k8spilot.condor.startd_ad import LocalStartdAd, StartdAd
from k8spilot.engine.slots import EngineContext, EngineSlot, SharedParts, build_sizes, build_slot, hear_slot
from k8spilot.engine.startup import EQUAL_SLOTS, deaths, find_gpus, hear_payload, open_folders, see_claims, see_pod
from k8spilot.gpu.pod_gpus import PodGpus
from k8spilot.model.killed_containers import KilledContainers
from k8spilot.payload.idle_image import IdleImage
from k8spilot.payload.listeners import Fanout, report_outages
from k8spilot.registry.skopeo import Registry
from k8spilot.telemetry.service import Recorders, Telemetry
from k8spilot.telemetry.status import Observed


@dataclass(frozen=True, slots=True)
class Components:
    """Parts of one pilot's engine."""

    startd_ad: StartdAd
    images: NodeImages
    slots: tuple[EngineSlot, ...]
    gpus: PodGpus
    telemetry: Telemetry


async def build(context: EngineContext, tasks: asyncio.TaskGroup, ends: AsyncExitStack) -> Components:
    """Create the parts in their order. On the way payload-inits connect, and the pod and its GPUs are found.

    Args:
        context: environment of the engine.
        tasks: task group of the parts.
        ends: gets the callbacks for the engine's end.

    Raises:
        PreflightError: the pod cannot be read.
    """
    settings, pod = context.settings, context.pod
    open_folders(settings)
    heard = [await hear_slot(context, slot, ends) for slot in settings.slots]
    doubtful = await asyncio.gather(*(hear_payload(one.settings, one.init_server, context.cgroup) for one in heard))
    startd_ad = context.agent or LocalStartdAd(Folders.of(settings), settings)
    images = NodeImages(startd_ad, pod.api, settings.node_name)
    recorders = Recorders(settings, pod.api)
    ads = PublishedAds(startd_ad, images)
    listener = Fanout([recorders.slot, AdPublisher(ads)])
    reporting = restarting(partial(report_outages, pod, listener), "the report of API outages")
    ends.callback(tasks.create_task(reporting, name="report of API outages").cancel)
    withdrawal = restarting(ads.withdraw_avoided, "the withdrawal of avoided images")
    ends.callback(tasks.create_task(withdrawal, name="withdrawal of avoided images").cancel)
    await see_pod(settings, pod)  # after the parts that must not wait for an unavailable API server
    claims = await see_claims(settings, pod)
    # Before any job.
    gpus = [await find_gpus(pod, claims, one.settings, one.init_server, recorders.slot) for one in heard]
    shared = SharedParts(
        startd_ad,
        recorders,
        ads,
        Registry(settings.pull_secret if settings.pull_secret.exists() else None),
        IdleImage(lambda: pod.pod),
        KilledContainers(),
        build_sizes(settings, pod),
        tasks,
    )
    slots = tuple(
        build_slot(context, one, gpu_record, shared, ends, is_doubtful=is_doubtful)
        for one, gpu_record, is_doubtful in zip(heard, gpus, doubtful, strict=True)
    )
    if shared.sizes is not None:
        shrinking = restarting(shared.sizes.shrink_all, "the sizes of idle containers", may_end=True)
        ends.callback(tasks.create_task(shrinking, name="sizes of idle containers").cancel)
    equal = os.environ.get(EQUAL_SLOTS, "")
    observed = Observed(pod, startd_ad, tuple(slot.observed for slot in slots), deaths(), equal)
    telemetry = Telemetry(settings, observed, recorders, shared.idle_image)
    return Components(startd_ad, images, slots, observed.gpus, telemetry)
