"""Figures of whole jobs, through the real schedd and starter."""

import re
from datetime import UTC, datetime
from statistics import median

from bench.figures import Figures, Goal
from lab import pilot
from lab.api import Lab
from lab.jobs import submit, wait_in_pool
from lab.settings import PILOT_NAMESPACE

POD = "bench-jobs"
APART = 10
TWENTY = 20
STARTER_LOG = "/var/log/condor/StarterLog.slot1"
_STAMP = r"^(\d\d/\d\d/\d\d \d\d:\d\d:\d\d\.\d+) .*"


def measure(lab: Lab, figures: Figures) -> None:
    """Starting job to running, and twenty jobs of 0 s in one claim, with and without HTCondor's own second."""
    pilot.deploy(lab, POD)
    try:
        wait_in_pool(lab, POD)
        _run(lab, 2, "true", named=True)  # the image on the node, the caches warm
        cluster, began = _run(lab, APART, "sleep 1.5", named=True)
        starting = _starting(lab, cluster)
        waits = [began[proc] - starting[proc] for proc in range(APART)]
        figures.add("starter's 'Starting job' to payload running, median", median(waits), "s", Goal(0.6))
        _, began = _run(lab, TWENTY, "true", named=True)
        figures.add("0 s job in one claim", (max(began) - min(began)) / (TWENTY - 1), "s a job", Goal(1.3))
        _, began = _run(lab, TWENTY, "true", named=False)
        figures.add(
            "the same without transfer_output_files (HTCondor sleeps 1 s)",
            (max(began) - min(began)) / (TWENTY - 1),
            "s a job",
        )
        restarts = lab.kubectl(
            "get", "pod", POD, "-n", PILOT_NAMESPACE, "-o", "jsonpath={.status.initContainerStatuses[1].restartCount}"
        )
        figures.add("restarts of the payload container, one a job", float(restarts), "")
    finally:
        pilot.delete(lab, POD)


def _run(lab: Lab, count: int, then: str, *, named: bool) -> tuple[int, list[float]]:
    """Run `count` jobs one after another; return their cluster and when each began by its own clock.

    `named`: with transfer_output_files in the submit file. Without, HTCondor sleeps a second after the input transfer
    of each job, to tell new files by their time stamps (FileTransfer::Reap in condor_utils/file_transfer.cpp).
    """
    commands = {
        "container_image": f"docker://{lab.registry}/debian:forky",
        "executable": "/bin/sh",
        "arguments": f"\"-c 'date +%s.%N; {then}'\"",
    }
    if named:
        commands["transfer_output_files"] = '""'
    with submit(lab, "alice", commands, pilot=POD, count=count) as jobs:
        for proc in range(count):
            jobs.ended(proc, timeout=120)
        files = jobs.files()
        return jobs.cluster, [float(files[f"out.{proc}"].split()[0]) for proc in range(count)]


def _starting(lab: Lab, cluster: int) -> dict[int, float]:
    """When the starter began with each job, seconds since the epoch."""
    log = lab.kubectl("exec", POD, "-n", PILOT_NAMESPACE, "-c", "pilot", "--", "cat", STARTER_LOG)
    found = {}
    for stamp, proc in re.findall(
        _STAMP + rf"Starting a \w+ universe job with ID: {cluster}\.(\d+)", log, re.MULTILINE
    ):
        found[int(proc)] = datetime.strptime(stamp, "%m/%d/%y %H:%M:%S.%f").replace(tzinfo=UTC).timestamp()
    return found
