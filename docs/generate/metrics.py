"""The reference of metrics: every family that a pilot with a GPU and a job exposes, as Prometheus reads it."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from docs.generate.sources import (
    BIND_RESULTS,
    EXIT_REASONS,
    HOLD_CLASSES,
    DeviceFigures,
    Figures,
    GpuProcess,
    Meter,
    Metrics,
    Now,
    NowOfSlot,
    PayloadState,
    families,
)
from docs.generate.tables import NAMES, table

INTRODUCTION: Final = """\
# Metrics

A pilot serves metrics in Prometheus' text format at `/metrics` on port 9464 of the pod (port name `metrics`,
[`K8SPILOT_METRICS_PORT`](settings.md)). Counters count from the start of the engine. No label has the name of a user,
a job or an image. [Monitor pilots](../how-to/monitor.md) has scrape configuration and alerts, and
[GPUs](../explanation/gpu-metrics.md) says how GPU figures are measured.

The job shares the pod's network and can read the metrics, and so can every client that the network policies admit.
They contain nothing secret, and nothing can be changed through this port. Each address has at most four connections,
for one request each.

*This page is generated from the code.*
"""

LABELS: Final[Mapping[str, tuple[str, Mapping[Any, str]]]] = {
    "k8spilot_binds_total": ("result", BIND_RESULTS),
    "k8spilot_payload_exits_total": ("reason", EXIT_REASONS),
    "k8spilot_holds_total": ("class", HOLD_CLASSES),
}
"""Counters whose labels have a few values, each with a meaning of its own."""

_GPU: Final = "GPU-0"
_GPU_NOTE: Final = """\
One series for each GPU, by NVML's name of the device. A value that is not known has no series. The three series of the
job need a driver that tells processes apart (535.113 or newer), and exist while at most 64 processes use the GPU.
The rate of `busy` divided by the rate of `known` is the use of a GPU.
"""


def page() -> str:
    """Return the page."""
    own = list(exposed())
    rows = [(series(one), type_of(one), f"{one.documentation.rstrip('.')}.") for one in own]
    gpu = [row for row in rows if row[0].startswith("`k8spilot_gpu_")]
    parts = [
        INTRODUCTION,
        "## Pilot and jobs\n",
        _series_table(row for row in rows if row not in gpu and "process_" not in row[0]),
    ]
    for name, (label, values) in LABELS.items():
        rows_of_label = [(f"`{value}`", f"{words[:1].upper()}{words[1:]}.") for value, words in values.items()]
        parts += [f"### Label `{label}` of `{name}`\n", table(("Value", "Meaning"), rows_of_label)]
    states = ", ".join(f"`{state.value}`" for state in PayloadState)
    parts += [
        "### Label `state` of `k8spilot_state`\n",
        f"{states}. The [state table](../explanation/life-of-a-job.md#the-state-tables) explains them.\n",
        "## GPUs\n",
        _GPU_NOTE,
        _series_table(gpu),
        "## The engine's process\n",
        "Prometheus' own process metrics, of the engine.\n",
        _series_table(row for row in rows if "process_" in row[0] and row not in gpu),
    ]
    return "\n".join(parts)


def exposed() -> Iterator[Metric]:
    """Return the families of a pilot that has a GPU and runs a job, so that every series is there."""
    meter = Meter([_GPU], lambda: 0.0)
    process = GpuProcess(pid=1, memory=1, share=0.5)
    meter.take(Figures(5.0, "", {_GPU: DeviceFigures(1.0, 5.0, 1, 1, 2, (process,))}))
    now = Now(
        version="0",
        slots=[NowOfSlot("payload", PayloadState.RUNNING, datetime.now(UTC), datetime.now(UTC))],
        restarts=0,
        requests={("patch", "200"): 1},
        heard=0.0,
    )
    text = Metrics().text(now, families(meter, True, lambda _pid: True)).decode()
    yield from text_string_to_metric_families(text)


def _series_table(rows: Iterable[tuple[str, str, str]]) -> str:
    return NAMES.format(table(("Series", "Type", "Meaning"), rows))


def series(one: Metric) -> str:
    """Return the name as Prometheus has it, with its labels."""
    samples = [sample for sample in one.samples if not sample.name.endswith(("_bucket", "_count", "_sum"))]
    name = samples[0].name if samples else one.name
    labels = sorted(samples[0].labels) if samples else []
    return f"`{name}{{{','.join(labels)}}}`" if labels else f"`{name}`"


def type_of(one: Metric) -> str:
    """Return Prometheus' type of a family."""
    return "counter" if one.type == "counter" else one.type
