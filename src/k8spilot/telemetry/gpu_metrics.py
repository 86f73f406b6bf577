"""GPU metrics for Prometheus: one series for each GPU, by its NVML name. Unknown values have no series."""

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from k8spilot.gpu.monitoring.meter import Gpu, Meter
from k8spilot.gpu.monitoring.protocol import DeviceFigures

_GAUGES: Final[dict[str, tuple[str, Callable[[DeviceFigures], float | None]]]] = {
    "utilization_ratio": (
        "Fraction of the last five seconds in which the GPU was busy, 0 to 1",
        lambda figures: figures.busy / figures.known if figures.busy is not None and figures.known else None,
    ),
    "memory_used_bytes": ("Memory in use on the GPU, by all processes", lambda figures: figures.memory),
    "memory_bytes": ("Size of the GPU's memory", lambda figures: figures.total),
}


def families(meter: Meter, up: bool, is_jobs: Callable[[int], bool]) -> Iterator[Metric]:
    """Yield all families.

    Args:
        meter: has the figures.
        up: whether a sampler sends figures.
        is_jobs: whether a process belongs to the job.
    """
    up_gauge = GaugeMetricFamily("k8spilot_gpu_sampler_up", "1 if a sampler measures the GPUs, else 0")
    up_gauge.add_metric([], float(up))
    yield up_gauge
    gpus = list(meter.now())
    yield _seconds("busy", "Seconds in which the GPU was busy", gpus, lambda gpu: gpu.busy)
    yield _seconds("known", "Seconds for which it is known whether the GPU was busy", gpus, lambda gpu: gpu.known)
    for name, (words, read) in _GAUGES.items():
        family = GaugeMetricFamily(f"k8spilot_gpu_{name}", words, labels=["gpu"])
        for gpu in gpus:
            if gpu.last is not None and (value := read(gpu.last)) is not None:
                family.add_metric([gpu.uuid], value)
        yield family
    yield from _of_the_job(gpus, is_jobs)


def _seconds(name: str, words: str, gpus: list[Gpu], read: Callable[[Gpu], float]) -> Metric:
    family = CounterMetricFamily(f"k8spilot_gpu_{name}_seconds", words, labels=["gpu"])
    for gpu in gpus:
        if gpu.known:
            family.add_metric([gpu.uuid], read(gpu))
    return family


def _of_the_job(gpus: list[Gpu], is_jobs: Callable[[int], bool]) -> Iterator[Metric]:
    """Yield the GPU use of the job's processes, where the driver distinguishes processes."""
    count = GaugeMetricFamily(
        "k8spilot_gpu_job_processes", "Number of the job's processes that use the GPU", labels=["gpu"]
    )
    memory = GaugeMetricFamily(
        "k8spilot_gpu_job_memory_bytes", "Memory in use on the GPU by the job's processes", labels=["gpu"]
    )
    share = GaugeMetricFamily(
        "k8spilot_gpu_job_utilization_ratio",
        "Fraction of the time in which the job's processes kept the GPU busy",
        labels=["gpu"],
    )
    for gpu in gpus:
        if gpu.last is None or gpu.last.processes is None:
            continue
        own = [process for process in gpu.last.processes if is_jobs(process.pid)]
        count.add_metric([gpu.uuid], len(own))
        for family, values in (
            (memory, [process.memory for process in own]),
            (share, [process.share for process in own]),
        ):
            if None not in values:
                family.add_metric([gpu.uuid], sum(value or 0.0 for value in values))
    yield from (count, memory, share)
