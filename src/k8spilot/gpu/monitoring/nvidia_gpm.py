"""Utilization of a MIG device from NVML's performance monitoring (GPM), which Hopper and later GPUs have.

No other call of NVML reports it. A metric covers the time between two samples.
"""

import time
from ctypes import c_uint
from typing import Any, Final

import pynvml

_METRIC: Final = pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL
"""Percentage of the time with any activity, as in the utilization of a whole GPU."""


class Gpm:
    """A GPU instance. If it is divided further, the figures cover all of its parts."""

    def __init__(self, mig: Any) -> None:
        """Find the instance; `mig` is NVML's handle of the MIG device.

        Raises:
            NVMLError: the device has no GPM (NVML_ERROR_NOT_SUPPORTED).
        """
        self._parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)
        if not pynvml.nvmlGpmQueryDeviceSupport(self._parent).isSupportedDevice:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        self._instance = c_uint(pynvml.nvmlDeviceGetGpuInstanceId(mig))
        self._samples = [pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()]
        """The previous sample, and the next one."""
        self._when: float | None = None

    def read(self) -> tuple[float, float]:
        """Return the busy and the known seconds since the last read."""
        now, before = time.monotonic(), self._when
        pynvml.nvmlGpmMigSampleGet(self._parent, self._instance, self._samples[1])
        self._samples.reverse()
        self._when = now
        if before is None:
            return 0.0, 0.0
        query = pynvml.c_nvmlGpmMetricsGet_t()
        query.version, query.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, 1
        query.sample1, query.sample2 = self._samples[1], self._samples[0]
        query.metrics[0].metricId = _METRIC
        metric = pynvml.nvmlGpmMetricsGet(query).metrics[0]
        if metric.nvmlReturn != pynvml.NVML_SUCCESS:
            raise pynvml.NVMLError(metric.nvmlReturn)
        return (now - before) * min(max(metric.value, 0.0), 100.0) / 100, now - before

    def close(self) -> None:
        """Free the samples."""
        while self._samples:
            pynvml.nvmlGpmSampleFree(self._samples.pop())
