"""HTCondor's GPU monitor: what the startd runs to know how busy the GPUs are.

HTCondor's own (condor_gpu_utilization) needs the GPUs where the startd is, which here has none: this one asks the
engine, which has the figures from the GPU metrics container (gpu/monitoring/container.py). It runs as long as the
startd does, and reports an interval every ten seconds. A job's ad gets

    GPUsAverageUsage, GPUsUsage         how many GPUs were busy on average, 0.5 for half of the time of one
    GPUsMemoryUsage                     the most memory that was in use on one of them, MiB
    GPU0AverageUsage, GPU0MemoryUsage   the same of the first GPU that the job sees, and so on
"""

import sys
from pathlib import Path
from typing import Final

from k8spilot.common import engine_api, unix_http
from k8spilot.condor.folders import Folders
from k8spilot.gpu.monitoring.monitor_output import METRICS
from k8spilot.settings import Settings

_AGAIN_SECONDS: Final = 10
"""When an engine has died."""


def program(settings: Settings) -> str:
    """The text of the program."""
    client = Path(unix_http.__file__)
    return f"#!/bin/sh\nexec {sys.executable} -IS {client} stream {settings.socket} {engine_api.GPU_MONITOR}\n"


def configuration(folders: Folders) -> str:
    """HTCondor's configuration of it, several lines."""
    return f"""\
use feature : Monitor( GPUs, WaitForExit, {_AGAIN_SECONDS}, {folders.gpu_monitor}, {METRICS} )
STARTD_CRON_GPUs_MONITOR_CONDITION = TotalGPUs > 0
STARTD_JOB_ATTRS = $(STARTD_JOB_ATTRS) GPUsUsage GPUsMemoryUsage"""
