"""The contestants without HTCondor: a pod per job, and the proposal's reference method."""

import contextlib
import json
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kubernetes import client, config

from bench.images import PROGRAM, renamed
from bench.job_times import whole
from lab.api import Lab
from lab.errors import LabError
from lab.settings import POOL_NAMESPACE

POD_PER_JOB = "pod per job (batch/v1)"
REFERENCE = "reference method (set image, sleep 30, poll 5)"

SLEEP_SECONDS = 30.0
POLL_SECONDS = 5.0
_PATIENCE_S = 120.0
_EACH_S = 15.0
_RESOURCES = {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "50m", "memory": "64Mi"}}


class PodPerJob:
    """The contestant batch/v1 Job, with one completion for each job, one at a time. The output is in a volume."""

    def __init__(self, lab: Lab, name: str, image: str, resources: Mapping[str, Any] | None = None) -> None:
        self._lab = lab
        self._name = name
        self._image = image
        self._resources = resources or _RESOURCES
        """Resources of the job's container: requests and limits."""
        self._folder = lab.settings.state / "bench" / name
        self._batch = client.BatchV1Api(config.new_client_from_config(str(lab.kubeconfig)))

    def run(self, count: int, words: str = "now") -> list[dict[str, float]]:
        """Run `count` jobs one after another; return the times that each printed, and that of its request (`asked`).

        A Job's creationTimestamp has whole seconds only, so the request is timed here. Raises LabError.
        """
        self._clear()
        self._folder.mkdir(parents=True)
        self._folder.chmod(0o1777)
        patience = _PATIENCE_S + _EACH_S * count
        try:
            asked = time.time()
            self._batch.create_namespaced_job(POOL_NAMESPACE, self._manifest(count, words), _request_timeout=(5, 30))
            where = (f"job/{self._name}", "-n", POOL_NAMESPACE)
            wait = ("wait", "--for=condition=Complete", *where, f"--timeout={patience:.0f}s")
            self._lab.kubectl(*wait, timeout=patience + 30)
            outputs = [path.read_text() for path in sorted(self._folder.glob("out.*"))]
        finally:
            self._clear()
        if len(outputs) != count:
            raise LabError(f"of {count} pods of the Job {self._name}, {len(outputs)} have left an output")
        return [{**whole(one, f"a pod of the Job {self._name}"), "asked": asked} for one in outputs]

    def _clear(self) -> None:
        """Remove the Job and its files. A killed run may have left them."""
        gone = ("delete", "job", self._name, "-n", POOL_NAMESPACE, "--ignore-not-found", "--cascade=foreground")
        self._lab.kubectl(*gone)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _manifest(self, count: int, words: str) -> dict[str, Any]:
        container = {
            "name": "job",
            "image": self._image,
            "imagePullPolicy": "IfNotPresent",  # as in the pilot: `latest` would be asked for each time
            "command": ["/bin/sh", "-c", f"cd /files && {PROGRAM} {words} >out.$JOB_COMPLETION_INDEX"],
            "volumeMounts": [{"name": "files", "mountPath": "/files"}],
            "resources": dict(self._resources),
        }
        pod = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "volumes": [{"name": "files", "hostPath": {"path": str(self._folder)}}],
        }
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": self._name, "namespace": POOL_NAMESPACE},
            "spec": {
                "completions": count,
                "parallelism": 1,
                "completionMode": "Indexed",
                "backoffLimit": 0,
                "template": {"spec": pod},
            },
        }


class Reference:
    """The proposal's reference method: kubectl sets the image of a pod's sidecar, with fixed sleeps between.

    Steps: set the job's image, sleep 30 s, look every 5 s whether the job has ended, set the idle image, sleep 30 s.
    The job is a script in a shared folder. Each job's reference is a fresh one: the kubelet always has a change to
    make.
    """

    def __init__(self, lab: Lab, name: str, folder: Path, image: str, idle: str) -> None:
        self._lab = lab
        self._name = name
        self._folder = folder
        self._image = image
        self._idle = idle

    def job(self) -> tuple[float, float]:
        """Run one empty job; return the seconds until it began, and until the next one could be requested."""
        asked = time.time()
        for file in ("out", "done"):
            (self._folder / file).unlink(missing_ok=True)
        (self._folder / "job.sh").write_text(f"{PROGRAM} now >/files/out; echo $? >/files/done\n")
        self._set_image(renamed(self._image))
        time.sleep(SLEEP_SECONDS)
        deadline = time.monotonic() + _PATIENCE_S
        while not (self._folder / "done").exists():
            if time.monotonic() > deadline:
                raise LabError(f"the reference method's job has not run within {_PATIENCE_S:.0f} s")
            time.sleep(POLL_SECONDS)
        began = whole((self._folder / "out").read_text(), "the reference method's job")["start"]
        (self._folder / "job.sh").unlink()
        self._set_image(self._idle)
        time.sleep(SLEEP_SECONDS)
        return began - asked, time.time() - asked

    def _set_image(self, image: str) -> None:
        self._lab.kubectl("set", "image", f"pod/{self._name}", f"payload={image}", "-n", POOL_NAMESPACE, timeout=30)


@contextlib.contextmanager
def reference(lab: Lab, name: str, image: str) -> Iterator[Reference]:
    """Run the reference method's pod while the context lasts. `image` needs a shell."""
    folder = lab.settings.state / "bench" / name
    gone = ("delete", "pod", name, "-n", POOL_NAMESPACE, "--ignore-not-found", "--wait=true")
    lab.kubectl(*gone)  # a run that was killed may have left it
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    folder.chmod(0o1777)
    idle = f"{lab.registry}/busybox:latest"
    script = (Path(__file__).parent / "scripts/reference.sh").read_text()
    same = {"image": idle, "imagePullPolicy": "IfNotPresent"}
    resting = {**same, "command": ["/bin/sh", "-c", "while :; do sleep 100; done"]}
    mounted = {"command": ["/bin/sh", "-c", script]}
    payload = {"name": "payload", **same, **mounted, "volumeMounts": [{"name": "files", "mountPath": "/files"}]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": POOL_NAMESPACE},
        "spec": {
            "automountServiceAccountToken": False,
            "shareProcessNamespace": True,
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "pilot", **resting}, payload],
            "volumes": [{"name": "files", "hostPath": {"path": str(folder)}}],
        },
    }
    lab.kubectl("apply", "-f", "-", input=json.dumps(pod))
    try:
        lab.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "-n", POOL_NAMESPACE, "--timeout=60s")
        yield Reference(lab, name, folder, image, idle)
    finally:
        lab.kubectl(*gone)
        shutil.rmtree(folder, ignore_errors=True)
