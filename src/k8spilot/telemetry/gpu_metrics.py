"""What Prometheus is told of the GPUs. A series for each GPU, by NVML's name of it; none for what is not known."""

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from k8spilot.gpu.monitoring.meter import Gpu, Meter
from k8spilot.gpu.monitoring.protocol import DeviceFigures

_GAUGES: Final[dict[str, tuple[str, Callable[[DeviceFigures], float | None]]]] = {
    "utilization_ratio": (
        "Fraction of the last five seconds in which the GPU was busy, 0 to 1",
        lambda one: one.busy / one.known if one.busy is not None and one.known else None,
    ),
    "memory_used_bytes": ("Memory in use on the GPU, by all processes", lambda one: one.memory),
    "memory_bytes": ("Size of the GPU's memory", lambda one: one.total),
}


def families(meter: Meter, up: bool, is_jobs: Callable[[int], bool]) -> Iterator[Metric]:
    """All families.

    Args:
        meter: has the figures.
        up: whether a sampler tells of them.
        is_jobs: whether a process is the job's.
    """
    there = GaugeMetricFamily("k8spilot_gpu_sampler_up", "1 if a sampler measures the GPUs, else 0")
    there.add_metric([], float(up))
    yield there
    gpus = list(meter.now())
    yield _seconds("busy", "Seconds in which the GPU was busy", gpus, lambda gpu: gpu.busy)
    yield _seconds("known", "Seconds for which it is known whether the GPU was busy", gpus, lambda gpu: gpu.known)
    for name, (words, look) in _GAUGES.items():
        family = GaugeMetricFamily(f"k8spilot_gpu_{name}", words, labels=["gpu"])
        for gpu in gpus:
            if gpu.last is not None and (value := look(gpu.last)) is not None:
                family.add_metric([gpu.uuid], value)
        yield family
    yield from _of_the_job(gpus, is_jobs)


def _seconds(name: str, words: str, gpus: list[Gpu], look: Callable[[Gpu], float]) -> Metric:
    family = CounterMetricFamily(f"k8spilot_gpu_{name}_seconds", words, labels=["gpu"])
    for gpu in gpus:
        if gpu.known:
            family.add_metric([gpu.uuid], look(gpu))
    return family


def _of_the_job(gpus: list[Gpu], is_jobs: Callable[[int], bool]) -> Iterator[Metric]:
    """What the job's own processes have of the GPU, where the driver tells processes apart."""
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
        own = [one for one in gpu.last.processes if is_jobs(one.pid)]
        count.add_metric([gpu.uuid], len(own))
        for family, values in ((memory, [one.memory for one in own]), (share, [one.share for one in own])):
            if None not in values:
                family.add_metric([gpu.uuid], sum(value or 0.0 for value in values))
    yield from (count, memory, share)
