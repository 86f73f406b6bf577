"""Pods and jobs of a session of tests are removed, whatever becomes of the session."""

import json
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from lab import jobs
from lab.api import Lab
from lab.jobs import Jobs
from lab.settings import CHECKOUT, SESSION_LABEL
from tests import inner_session
from tests.e2e.pool import Pool, until
from tests.runner import sessions

SESSION: Final = """
import sys
from pathlib import Path
from tests.runner.sessions import Session
session = Session(sys.argv[1])
session.begin(Path(sys.argv[2]))
print("begun", flush=True)
sys.stdin.read()
"""


def deploy(lab: Lab, kind: str = "Pod") -> None:
    """Deploy a pod, or a Job of one, which requests no resources and runs until it is deleted."""
    container = {"name": "main", "image": f"{lab.registry}/busybox", "command": ["sleep", "infinity"]}
    spec: dict[str, Any] = {"containers": [container], "terminationGracePeriodSeconds": 0, "restartPolicy": "Never"}
    metadata = {"name": lab.settings.session, "labels": lab.labels}
    one: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    if kind == "Job":
        one |= {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": spec}}}
    lab.kubectl("apply", "-n", lab.namespace, "-f", "-", input=json.dumps(one))


def submit(lab: Lab) -> Jobs:
    """Submit a job that waits for good."""
    return jobs.submit(lab, "alice", {"universe": "vanilla", "requirements": "false"})


def is_queued(lab: Lab, cluster: int | str) -> bool:
    """Return whether a job is in the queue."""
    return bool(lab.access_point("alice", f"condor_q {cluster} -af JobStatus").strip())


@dataclass
class Other:
    """A session in a process of its own, with a pod, a Kubernetes Job, and a job of HTCondor."""

    lab: Lab
    process: subprocess.Popen[str]
    cleanup: ExitStack
    job: Jobs | None = None

    def deploy(self) -> None:
        """Deploy the pod and the Kubernetes Job, and submit the job."""
        self.job = self.cleanup.enter_context(submit(self.lab))
        for kind in ("Pod", "Job"):
            deploy(self.lab, kind)
        until(lambda: len(self.pods()) == 2, "the Job has its pod", 30)

    def pods(self) -> list[dict[str, Any]]:
        """Return the session's pods, except those that are being deleted."""
        found = json.loads(self.lab.kubectl("get", "pods", "-n", self.lab.namespace, "-o", "json"))["items"]
        mine = [one for one in found if one["metadata"]["name"].startswith(self.lab.settings.session)]
        return [one for one in mine if "deletionTimestamp" not in one["metadata"]]

    def has_its_job(self) -> bool:
        """Return whether the job is in the queue."""
        assert self.job is not None
        return is_queued(self.lab, self.job.cluster)

    def kill(self) -> None:
        """Kill the process, so that it removes nothing."""
        self.process.kill()
        self.process.wait()


@pytest.fixture
def others(lab: Lab, owner: str, tmp_path: Path) -> Iterator[tuple[Other, Other]]:
    """Two sessions that live. Their files are in a folder of this test."""
    with ExitStack() as cleanup:
        found = []
        for _ in range(2):
            name = f"e2e-{owner}-session-{secrets.token_hex(3)}"  # pods of the test before may not have ended yet
            settings = replace(lab.settings, session=name, cache=tmp_path)
            here = replace(lab, settings=settings)
            command = [sys.executable, "-c", SESSION, settings.session, str(sessions.folder_of(settings))]
            environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, cwd=CHECKOUT, env=environment, stdin=pipe, stdout=pipe, text=True)
            cleanup.enter_context(process)
            cleanup.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            which = ("-n", lab.namespace, "-l", f"{SESSION_LABEL}={settings.session}", "--wait=false")
            cleanup.callback(lab.kubectl, "delete", "jobs,pods", *which)
            found.append(Other(here, process, cleanup))
        yield found[0], found[1]


def test_this_session_lives_and_its_pods_have_its_name(lab: Lab, pool: Pool) -> None:
    name = lab.settings.session
    with (sessions.folder_of(lab.settings) / name).open() as file:
        assert not sessions.lock(file)
    pod = json.loads(lab.kubectl("get", "pod", pool.pod, "-n", lab.namespace, "-o", "json"))
    assert pod["metadata"]["labels"][SESSION_LABEL] == name


def test_what_a_killed_session_has_deployed_is_removed_by_the_next_one(others: tuple[Other, Other]) -> None:
    dead, living = others
    for one in others:
        one.deploy()
    dead.kill()
    sessions.remove_ended(living.lab)
    until(lambda: not dead.pods(), "the pods are deleted", 30)
    until(lambda: not dead.has_its_job(), "the job is removed", 30)
    assert len(living.pods()) == 2
    assert living.has_its_job()
    assert [path.name for path in sessions.folder_of(living.lab.settings).iterdir()] == [living.lab.settings.session]


INNER: Final = """
import pytest
from lab.api import Lab
from tests.e2e.test_sessions import deploy, submit

@pytest.mark.e2e
def test_what_leaves_a_pod_and_a_job():
    lab = Lab.attach()
    deploy(lab)
    job = submit(lab)
    print("made", lab.settings.session, job.cluster)
    job.close()
"""


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_a_session_of_pytest_removes_what_its_tests_leave(lab: Lab, tmp_path: Path, workers: str) -> None:
    command, environment = inner_session.prepare(tmp_path, INNER, workers, "-rP")
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    ((name, cluster),) = re.findall(r"^made (\w+) (\d+)$", said, re.MULTILINE)
    pod = ("get", "pod", name, "-n", lab.namespace, "--ignore-not-found", "-o", "name")
    until(lambda: not lab.kubectl(*pod).strip(), "the pod is deleted", 30)
    until(lambda: not is_queued(lab, cluster), "the job is removed")
    assert not (sessions.folder_of(lab.settings) / name).exists()
