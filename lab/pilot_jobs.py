"""Pilot pods that belong to batch/v1 Jobs, as pilot factories make them."""

import json
import time
from collections.abc import Mapping
from typing import Any

import yaml

from lab import jobs, pilot
from lab.api import Lab
from lab.errors import LabError
from lab.patience import scaled
from lab.phases import CLEAN_UP, PILOT, phase

NO_LIMIT = 2**31 - 1
"""Limit of a Job's restarts. With restartPolicy OnFailure, Jobs count restarts of init containers, native sidecars
among them: each bind is one."""


@phase(PILOT)
def deploy(lab: Lab, environments: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Make a Job for each name; the pilot of its pod has these additional variables. Return the pods' names.

    They are in the pool when this returns. Raises LabError.
    """
    documents: list[dict[str, Any]] = []
    for name, environment in environments.items():
        overlay = pilot.write_overlay(lab, name, {"CONDOR_HOST": lab.pool_host, **environment})
        rendered = yaml.safe_load_all(lab.kubectl("kustomize", str(overlay)))
        documents += [_job(lab, name, one) if one["kind"] == "Pod" else one for one in rendered]
    lab.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(documents))
    pods = {name: _pod(lab, name) for name in environments}
    for pod in pods.values():
        jobs.wait_in_pool(lab, pod, timeout=120)
    return pods


@phase(CLEAN_UP)
def delete(lab: Lab, *names: str) -> None:
    """Remove the Jobs and their pods."""
    lab.kubectl("delete", "job", *names, "-n", lab.namespace, "--ignore-not-found", "--cascade=foreground", timeout=300)


def is_complete(lab: Lab, name: str) -> bool:
    """Return whether the Job is complete, and its pod has succeeded."""
    job = json.loads(lab.kubectl("get", "job", name, "-n", lab.namespace, "-o", "json"))
    conditions = {one["type"] for one in job["status"].get("conditions", ()) if one["status"] == "True"}
    if "Failed" in conditions:
        raise LabError(f"the Job {name} has failed: {job['status']}")
    return "Complete" in conditions and job["status"].get("succeeded") == 1


def _job(lab: Lab, name: str, pod: dict[str, Any]) -> dict[str, Any]:
    template = {"metadata": {"labels": pod["metadata"].get("labels", {})}, "spec": pod["spec"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": lab.namespace, "labels": lab.labels},
        "spec": {"backoffLimit": NO_LIMIT, "template": template},
    }


def _pod(lab: Lab, name: str) -> str:
    deadline = time.monotonic() + scaled(30)
    while True:
        found = lab.kubectl("get", "pod", "-n", lab.namespace, "-l", f"job-name={name}", "-o", "name").split()
        if found:
            return found[0].removeprefix("pod/")
        if time.monotonic() > deadline:
            raise LabError(f"the Job {name} makes no pod")
        time.sleep(0.3)
