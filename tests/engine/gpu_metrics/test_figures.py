"""Figures of GPUs: measurement, metrics and HTCondor's monitor."""

import asyncio
import os
import time

import aiohttp
import pytest
from aiohttp import web

from k8spilot.gpu.monitoring.metrics_container import MonitoredGpus
from k8spilot.telemetry.gpu_metrics import families
from lab.gpu import nvml
from tests.engine.gpu_metrics.node import TWO, UUIDS, Node, driver, eventually, write

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="samplers run under a uid of their own, for which it takes root"
)


async def test_a_driver_that_is_loaded_anew_is_followed_and_nothing_is_zero_meanwhile(node: Node) -> None:
    write(node.stub, driver(utilisation=[(0.0, 50.0)]))
    async with node.measured(TWO) as metrics:
        await eventually(lambda: metrics.meter is not None and metrics.meter.gpus[UUIDS[0]].known > 1, "figures")
        gone = driver()
        gone.failures = {"*": nvml.DRIVER_NOT_LOADED}
        gone.epoch = 2
        write(node.stub, gone)
        assert metrics.meter is not None
        gpu = metrics.meter.gpus[UUIDS[0]]
        await eventually(lambda: gpu.last is not None and gpu.last.fault, "the fault is told")
        assert gpu.last is not None
        assert gpu.last.memory is None
        known = gpu.known
        await asyncio.sleep(1)
        assert gpu.known == pytest.approx(known, abs=0.5)
        back = driver(utilisation=[(0.0, 50.0)])
        back.epoch = 2
        write(node.stub, back)
        await eventually(lambda: gpu.known > known + 1, "figures again", seconds=30)
        assert gpu.busy / gpu.known == pytest.approx(0.5, abs=0.02)
    assert node.containers() == ["gpu-metrics-1"]


async def test_a_lost_gpu_is_unknown_and_the_others_are_measured_on(node: Node) -> None:
    write(node.stub, driver(utilisation=[(0.0, 50.0)]))
    async with node.measured(TWO) as metrics:
        await eventually(lambda: metrics.meter is not None and metrics.meter.gpus[UUIDS[0]].known > 1, "figures")
        lost = driver(utilisation=[(0.0, 50.0)])
        lost.gpus[0].failures = {"*": nvml.GPU_IS_LOST}
        write(node.stub, lost)
        assert metrics.meter is not None
        first, second = metrics.meter.gpus.values()
        await eventually(lambda: first.last is not None and first.last.fault, "the fault is told")
        known, other = first.known, second.known
        await eventually(lambda: second.known > other + 2, "the other goes on")
        assert first.known == pytest.approx(known, abs=0.5)
        assert first.last is not None
        assert first.last.memory is None
    assert node.told == []


@pytest.mark.parametrize(
    "failing", [("nvmlDeviceGetSamples",), ("nvmlDeviceGetSamples", "nvmlDeviceGetUtilizationRates")]
)
async def test_a_driver_without_utilisation_gives_what_it_has(node: Node, failing: tuple[str, ...]) -> None:
    lacking = driver(utilisation=[(0.0, 50.0)], used_bytes=nvml.MIB)
    lacking.failures = dict.fromkeys(failing, nvml.NOT_SUPPORTED)
    write(node.stub, lacking)
    async with node.measured(TWO) as metrics:
        await eventually(lambda: metrics.up, "a sampler")
        assert metrics.meter is not None
        loop = asyncio.get_running_loop()
        reader, began = metrics.meter.reader(), loop.time()
        await asyncio.sleep(2)
        usage, seconds = reader.read()[0], loop.time() - began
    assert usage.peak == nvml.MIB
    if len(failing) == 1:
        assert usage.busy == pytest.approx(0.5 * seconds, rel=0.1)
    else:
        assert usage.busy is None


@pytest.mark.parametrize("gpm", [True, False])
async def test_a_mig_device_has_figures_of_its_own(node: Node, gpm: bool) -> None:
    mig = "MIG-0caf1234-0000-4000-8000-000000000000"
    found = driver()
    found.gpus[0].instances = [nvml.slice_of_h200(0, mig)]
    found.gpus[0].instances[0].used_bytes = 5 * nvml.MIB
    found.gpus[0].instances[0].utilisation = [(0.0, 40.0)]
    found.gpus[0].gpm = gpm
    write(node.stub, found)
    async with node.measured(MonitoredGpus("variable", (mig,), [(mig,)])) as metrics:
        await eventually(lambda: metrics.meter is not None and metrics.meter.gpus[mig].last is not None, "figures")
        assert metrics.meter is not None
        gpu = metrics.meter.gpus[mig]
        last = gpu.last
        assert last is not None
        assert last.memory == 5 * nvml.MIB
        if gpm:
            await eventually(lambda: gpu.known > 1, "GPM tells")
            assert gpu.busy / gpu.known == pytest.approx(0.4, abs=0.02)
        else:
            assert last.busy is None


@pytest.mark.parametrize("code", [nvml.NO_PERMISSION, nvml.UNKNOWN, nvml.TIMEOUT])
@pytest.mark.parametrize("failing", ["nvmlGpmMigSampleGet", "nvmlGpmMetricsGet"])
async def test_a_mig_device_whose_utilisation_fails_has_its_memory_all_the_same(
    node: Node, failing: str, code: int
) -> None:
    mig = "MIG-0caf1234-0000-4000-8000-000000000000"
    found = driver()
    found.gpus[0].instances = [nvml.slice_of_h200(0, mig)]
    found.gpus[0].instances[0].used_bytes = 5 * nvml.MIB
    found.failures = {failing: code}
    write(node.stub, found)
    async with node.measured(MonitoredGpus("variable", (mig,), [(mig,)])) as metrics:
        await eventually(lambda: metrics.meter is not None and metrics.meter.gpus[mig].last is not None, "figures")
        await asyncio.sleep(1.5)  # the first reading of all is the same for all
        assert metrics.meter is not None
        gpu = metrics.meter.gpus[mig]
        assert gpu.last is not None
        assert (gpu.last.busy, gpu.last.memory, gpu.last.fault) == (None, 5 * nvml.MIB, "")
        if code != nvml.NO_PERMISSION:
            found.failures = {}
            write(node.stub, found)
            await eventually(lambda: gpu.known > 1, "GPM tells")


async def test_a_device_of_which_nothing_can_be_read_is_faulty(node: Node) -> None:
    found = driver()
    found.failures = {"nvmlDeviceGetSamples": nvml.UNKNOWN} | dict.fromkeys(
        ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"), nvml.NOT_SUPPORTED
    )
    write(node.stub, found)
    async with node.measured(TWO) as metrics:
        await eventually(lambda: metrics.meter is not None and metrics.meter.gpus[UUIDS[0]].last is not None, "figures")
        assert metrics.meter is not None
        last = metrics.meter.gpus[UUIDS[0]].last
        assert last is not None
        assert "Unknown" in last.fault


@pytest.mark.parametrize(("version", "tells"), [("535.104.05", False), ("535.113.01", True)])
async def test_who_uses_a_gpu_is_not_known_of_a_driver_that_does_not_tell(
    node: Node, version: str, tells: bool
) -> None:
    found = driver()
    found.version = version
    found.gpus[0].processes = [nvml.Process(os.getpid(), nvml.MIB, 50)]
    write(node.stub, found)
    async with node.measured(TWO) as metrics:
        await eventually(lambda: metrics.meter is not None and metrics.meter.gpus[UUIDS[0]].last is not None, "figures")
        assert metrics.meter is not None
        told = {one.name: one.samples for one in families(metrics.meter, True, lambda pid: pid == os.getpid())}
    names = [f"k8spilot_gpu_job_{name}" for name in ("processes", "memory_bytes")]
    values = [{one.labels["gpu"]: one.value for one in told[name]} for name in names]
    assert values == ([{UUIDS[0]: 1, UUIDS[1]: 0}, {UUIDS[0]: nvml.MIB, UUIDS[1]: 0}] if tells else [{}, {}])


async def test_htcondors_monitor_gets_an_ad_for_each_gpu(node: Node) -> None:
    write(node.stub, driver(utilisation=[(0.0, 25.0)], used_bytes=100 * nvml.MIB))
    node.age = 100.0
    async with node.measured(TWO) as metrics:
        app = web.Application()
        app.add_routes(metrics.routes)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        await eventually(lambda: metrics.up, "a sampler")
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/k8spilot/gpu/monitor") as answer,
        ):
            text = b""
            times: list[float] = []
            async with asyncio.timeout(60):
                while len(times) < 4:
                    text += await answer.content.readany()
                    times += [time.monotonic()] * (text.count(b"- GPUsSlot1") - len(times))
        await runner.cleanup()
    lines = text.decode().splitlines()
    assert lines[0] == (
        f'SlotMergeConstraint = StringListMember("{UUIDS[0][:12]}", AssignedGPUs) || '
        f'StringListMember("{UUIDS[0]}", AssignedGPUs)'
    )
    assert "UptimeGPU1MemoryPeakUsage = 100" in lines
    assert "- GPUsSlot1 update:true" in lines
    busy = [float(line.rpartition(" ")[2]) for line in lines if line.startswith("UptimeGPU0Seconds")]
    assert busy[0] == 0, "the average of the first job begins with this ad"
    assert sum(busy[2:4]) == pytest.approx(0.25 * (times[3] - times[1]), rel=0.3)
