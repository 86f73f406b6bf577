"""The component by which a pilot measures its GPUs, and HTCondor's part of it."""

from pathlib import Path

import yaml

from k8spilot.condor.configuration.values import gpu_monitor
from k8spilot.condor.folders import Folders

COMPONENT = Path(__file__).parents[2] / "components/gpu-metrics"


def test_the_right_is_to_add_ephemeral_containers_and_no_other() -> None:
    role, binding = yaml.safe_load_all((COMPONENT / "rights.yaml").read_text())
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods/ephemeralcontainers"], "verbs": ["patch"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "k8spilot"}]


def test_htcondor_runs_the_monitor_only_where_there_are_gpus() -> None:
    folders = Folders(Path("/var/lib/condor/execute"))
    lines = gpu_monitor(folders).splitlines()
    assert lines[0].startswith(
        f"use feature : Monitor( GPUs, WaitForExit, 10, {folders.gpu_monitor}, SUM:GPUs, PEAK:GPUsMemory, "
    )
    assert "STARTD_CRON_GPUs_MONITOR_CONDITION = TotalGPUs > 0" in lines
