"""The component by which a pilot measures its GPUs, and HTCondor's part of it."""

from pathlib import Path
from typing import Any

import yaml

from k8spilot.condor import gpu_monitor
from k8spilot.condor.folders import Folders
from k8spilot.settings import Settings

COMPONENT = Path(__file__).parents[2] / "components/gpu-metrics"


def operations() -> list[dict[str, Any]]:
    (patch,) = yaml.safe_load((COMPONENT / "kustomization.yaml").read_text())["patches"]
    found: list[dict[str, Any]] = yaml.safe_load(patch["patch"])
    return found


def test_the_volume_is_where_the_pilot_looks_and_the_job_has_none_of_it() -> None:
    settings = Settings(pod_name="pilot", pod_namespace="pilots", services=("engine",))
    mounts = {one["path"]: one["value"] for one in operations() if one["path"].endswith("/volumeMounts/-")}
    assert mounts == {
        "/spec/containers/0/volumeMounts/-": {"name": "gpu-metrics", "mountPath": str(settings.gpu_metrics)}
    }
    assert {"op": "test", "path": "/spec/containers/0/name", "value": "pilot"} in operations()


def test_the_volume_cannot_fill_the_nodes_disk() -> None:
    (volume,) = [one["value"] for one in operations() if one["path"] == "/spec/volumes/-"]
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Mi"}


def test_the_right_is_to_add_ephemeral_containers_and_no_other() -> None:
    role, binding = yaml.safe_load_all((COMPONENT / "rights.yaml").read_text())
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods/ephemeralcontainers"], "verbs": ["patch"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "k8spilot"}]


def test_htcondor_runs_the_monitor_only_where_there_are_gpus() -> None:
    folders = Folders(Path("/var/lib/condor/execute"))
    lines = gpu_monitor.configuration(folders).splitlines()
    assert lines[0].startswith(
        f"use feature : Monitor( GPUs, WaitForExit, 10, {folders.gpu_monitor}, SUM:GPUs, PEAK:GPUsMemory, "
    )
    assert "STARTD_CRON_GPUs_MONITOR_CONDITION = TotalGPUs > 0" in lines
