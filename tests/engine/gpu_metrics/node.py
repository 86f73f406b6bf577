"""A pod on a node with four GPUs, whose ephemeral containers run as processes here."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from k8spilot.gpu.monitoring.metrics_container import GpuMetrics, MonitoredGpus
from k8spilot.kube.own_pod import OwnPod
from k8spilot.settings import Settings
from lab.gpu import nvml
from tests.simulator.api_server import ApiServer
from tests.simulator.ephemeral import Ephemerals
from tests.simulator.images import REGISTRY

UUIDS = [f"GPU-{number}f9c2d75-0000-4000-8000-000000000000" for number in range(4)]


@dataclass
class Node:
    """A pod on a node with four GPUs, and a driver."""

    server: ApiServer
    kubelet: Ephemerals
    stub: nvml.Stub
    folder: Path
    pod: OwnPod
    told: list[str] = field(default_factory=list)
    age: float | None = None

    def metrics(self) -> GpuMetrics:
        """Return the GPU metrics of an engine in this pod."""
        settings = Settings(
            pod_name="pilot",
            pod_namespace="pilots",
            services=("engine",),
            gpu_metrics=self.folder,
            gpu_sample_seconds=0.1,
        )
        return GpuMetrics(settings, self.pod, lambda: f"{REGISTRY}/k8spilot:test", self.told.append, lambda _: self.age)

    @asynccontextmanager
    async def measured(self, found: MonitoredGpus, metrics: GpuMetrics | None = None) -> AsyncIterator[GpuMetrics]:
        """An engine measures."""
        metrics = metrics or self.metrics()
        task = asyncio.create_task(metrics.run(found))
        try:
            yield metrics
        finally:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()

    def containers(self) -> list[str]:
        """Names in the pod's spec."""
        return [one["name"] for one in self.server.pod["spec"].get("ephemeralContainers", [])]


def write(stub: nvml.Stub, driver: nvml.Driver) -> None:
    """As Stub.write, which keeps what it wrote beside a library that is shared here."""
    fresh = stub.settings.with_suffix(".new")
    fresh.write_text(nvml.render(driver))
    fresh.chmod(0o644)
    fresh.replace(stub.settings)


def pod(volume: Path, **spec: Any) -> dict[str, Any]:
    pilot = {"name": "pilot", "image": "k8spilot", "volumeMounts": [{"name": "gpu-metrics", "mountPath": str(volume)}]}
    return {
        "metadata": {"name": "pilot", "namespace": "pilots", "uid": "6f1f7e53-0000-4000-8000-000000000000"},
        "spec": {"initContainers": [{"name": "payload"}], "containers": [pilot], **spec},
        "status": {},
    }


def driver(**of_each: Any) -> nvml.Driver:
    found = nvml.Driver([nvml.h200(number, uuid) for number, uuid in enumerate(UUIDS)])
    for gpu in found.gpus:
        for name, value in of_each.items():
            setattr(gpu, name, value)
    return found


async def eventually(look: Callable[[], object], what: str, seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not look():
            assert what
            await asyncio.sleep(0.05)


TWO = MonitoredGpus("variable", UUIDS[:2], [UUIDS[:2]])
