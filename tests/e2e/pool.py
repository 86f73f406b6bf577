"""Helpers of the end-to-end tests: jobs of users, and a look at the pod that runs them."""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from lab import pilot
from lab.api import Lab
from lab.errors import LabError
from lab.faulty import FaultyRegistry
from lab.jobs import PATIENCE_S, Event, Jobs, submit
from lab.oci import Entry, OciImage, Pusher, layer, shell
from lab.patience import scaled
from lab.streams import Stream
from tests.simulator.pod import payload_image

IMAGE_HOLD = 35
"""CONDOR_HOLD_CODE::InvalidDockerImage."""

MATCHED_SECONDS = 90.0
"""Within this time a job has found its slot, also when the pool has many others."""

FIT_SECONDS = 60.0
"""Within this time a slot that is fit runs a job, its match and its bind on a busy node included.

No document promises less. A slot that is not fit is so for minutes: for as long as it is claimed, or avoids a registry.
"""

KILLED = 137
"""Exit code of a shell whose container was ended: by SIGKILL."""

WAITS = "sleep 1; "
"""HTCondor may run a job again that ends before its shadow has seen the input sent (lab/jobs.py, SLOW_SHADOW).

So a job whose starts are counted, or whose claim is to go on, begins with this.
"""

_SCRIPT = "job.sh"

# The one that is nobody's child (parent 0: it is outside the pod) is payload-init, the first process of its container.
_FIRST = """
for folder in /proc/[0-9]*; do
    grep -q '^Uid:[[:space:]]65534' $folder/status 2>/dev/null || continue
    if grep -q '^PPid:[[:space:]]0$' $folder/status 2>/dev/null; then echo "${folder#/proc/}"; fi
done
"""

# Processes of the payload's uid but payload-init, as the pilot sees them: "pid command line".
_PROCESSES = """
for folder in /proc/[0-9]*; do
    grep -q '^Uid:[[:space:]]65534' $folder/status 2>/dev/null || continue
    command=$(tr '\\0' ' ' <$folder/cmdline 2>/dev/null)
    case "$command" in ''|/k8spilot/bin/payload-init*) ;; *) echo "${folder#/proc/} $command";; esac
done
"""


# Says that it looks once it has seen a process of the job's, and then when none is left, by the node's clock.
_WATCH = """
import os, sys, time
def processes():
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            status, command = open(f'/proc/{pid}/status').read(), open(f'/proc/{pid}/cmdline').read()
        except OSError:
            continue
        if '\\nUid:\\t65534\\t' in status:
            yield pid, '\\nPPid:\\t0\\n' in status, command
def look():
    found = list(processes())
    first = [pid for pid, is_first, _ in found if is_first]
    return first, [pid for pid, _, one in found if one and not one.startswith('/k8spilot/bin/payload-init')]
looks = False
while True:
    first, left = look()
    if first != sys.argv[1:]:
        sys.exit(print('changed', time.time()))
    if left and not looks:
        looks = True
        print('looks')
    if looks and not left:
        sys.exit(print('killed', time.time()))
    time.sleep(0.02)
"""


@dataclass
class Killed:
    """When the last process of a job ended."""

    at: float = 0.0
    """By the node's clock (time.time); after the body of `Pool.kills`."""


@dataclass(frozen=True)
class Result:
    """Event, output and files of a job that has ended."""

    event: Mapping[str, Any]
    """HTCondor's JobTerminatedEvent."""
    stdout: bytes
    stderr: bytes
    files: Mapping[str, bytes]
    """The whole folder, by path."""

    @property
    def code(self) -> int | None:
        """The exit code; None after death by a signal."""
        return self.event.get("ReturnValue")

    @property
    def signal(self) -> int | None:
        """The signal that ended it; None after an exit."""
        return self.event.get("TerminatedBySignal")

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.stdout.decode()


class Pool:
    """One pilot pod of the pool, and its users. What they submit here runs nowhere else."""

    def __init__(self, lab: Lab, pod: str, cleanup: ExitStack) -> None:
        self.lab = lab
        self.pod = pod
        self._cleanup = cleanup

    def of_pod(self, pod: str) -> "Pool":
        """The same pool, through another pilot pod."""
        return Pool(self.lab, pod, self._cleanup)

    def image(self, name: str) -> str:
        """The lab's image `name` as a user writes it."""
        return f"docker://{self.lab.registry}/{name}"

    def submit(
        self,
        commands: Mapping[str, str],
        *,
        user: str = "alice",
        files: Mapping[str, str | bytes] | None = None,
        count: int = 1,
    ) -> Jobs:
        """Submit jobs that run in busybox unless `commands` say otherwise. They are removed after the test."""
        chosen = {"container_image": self.image("busybox"), "transfer_output_files": '""', **commands}
        jobs = submit(self.lab, user, chosen, files=files, pilot=self.pod, count=count)
        self._cleanup.callback(jobs.remove)
        return jobs

    def shell(
        self,
        script: str,
        *,
        user: str = "alice",
        image: str = "busybox",
        files: Mapping[str, str | bytes] | None = None,
        count: int = 1,
        **commands: str,
    ) -> Jobs:
        """Submit a shell script, which gets its job's number as $1."""
        chosen = {
            "container_image": self.image(image),
            "executable": _SCRIPT,
            "transfer_executable": "true",
            "arguments": "$(Process)",
            **commands,
        }
        return self.submit(chosen, user=user, files={_SCRIPT: f"#!/bin/sh\n{script}\n", **(files or {})}, count=count)

    def processes(self) -> list[str]:
        """Processes in the payload container but payload-init: pid and command line."""
        return self.inside(_PROCESSES).splitlines()

    def first_process(self) -> str:
        """Process id of payload-init: another one is another container."""
        return self.inside(_FIRST).strip()

    @contextmanager
    def kills(self, container: str, timeout: float = 60, *, itself: bool = True) -> Iterator["Killed"]:
        """Let the body have a job killed; wait until no process of it is left.

        A program in the pod looks all the while, from before the body on: between the end of a job's processes and
        that of its container, which kills by itself, there may be only moments.

        Args:
            container: what `first_process` is while the job runs.
            timeout: how long that may take after the body, in seconds.
            itself: whether they are to end before their container does, which kills what is left.

        Raises:
            AssertionError: processes were left when the container ended, or after that time.
        """
        assert container, "no container was seen while the job ran"
        killed = Killed()
        with Stream.of_program(self.lab, self.pod, "python3", "-u", "-c", _WATCH, container) as watch:
            said: list[str] = []

            def has_said(count: int) -> bool:
                said.extend(watch.lines())
                return len(said) >= count

            until(lambda: has_said(1), "the program in the pod looks")
            assert said[0] == "looks", said
            yield killed
            until(lambda: has_said(2), "all processes of the job are gone", timeout)
        how, at = said[1].split()
        assert how == "killed" or not itself, "the container was changed, which kills by itself"
        killed.at = float(at)

    def has_idle_image(self) -> bool:
        """Whether the spec has the idle image, and the payload container runs it: the image of the pilot container."""
        pod = self.status()
        statuses = pod["status"]["initContainerStatuses"] + pod["status"]["containerStatuses"]
        payload, own = (next(one for one in statuses if one["name"] == name) for name in ("payload", "pilot"))
        is_asked_for = "/k8spilot:" in payload_image(pod)
        return is_asked_for and "running" in payload["state"] and payload["imageID"] == own["imageID"]

    def inside(self, script: str) -> str:
        """Run a shell script in the pilot container; return its output."""
        return pilot.inside(self.lab, self.pod, script)

    def beside_the_engine(self, script: str) -> str:
        """Run a shell script in the engine's container, which the pilot container is but where nobody is root."""
        return pilot.inside(self.lab, self.pod, script, self.lab.engine)

    def ends_its_container(self, script: str, container: str = "pilot") -> None:
        """Run a shell script in a container which that script ends: the script may be killed with its container."""
        try:
            pilot.inside(self.lab, self.pod, script, container)
        except LabError as ended:
            if f"exit code {KILLED}" not in str(ended):
                raise

    def of_slot(self, attribute: str) -> str:
        """An attribute of the slot as the pool's users see it; `undefined` if there is none of that name."""
        query = ["condor_status", "-constraint", f'K8SPodName == "{self.pod}"', "-af", attribute]
        return self.lab.access_point("alice", query).strip()

    def has_another_startd(self, start: str) -> bool:
        """Whether the pool has the slot of another startd than that with this DaemonStartTime."""
        return self.of_slot("DaemonStartTime") not in (start, "")

    def status(self) -> dict[str, Any]:
        """The pod in the API's JSON."""
        answer = self.lab.kubectl("get", "pod", self.pod, "-n", self.lab.namespace, "-o", "json")
        found: dict[str, Any] = json.loads(answer)
        return found

    def log(self, seconds: int, timeout: float = 120) -> str:
        """Return the logs of the pilot's own containers of the last `seconds`."""
        of_pod = ("logs", "-n", self.lab.namespace, self.pod, f"--since={seconds}s")
        return "".join(self.lab.kubectl(*of_pod, "-c", one, timeout=timeout) for one in self.lab.containers)

    def faults(self, seconds: int) -> list[str]:
        """Lines of that log which tell of a fault of the pilot's own, and not of HTCondor's."""
        return [
            line for line in self.log(seconds).splitlines() if " ERROR k8spilot" in line or line.startswith("Traceback")
        ]

    def restarts(self) -> int:
        """Return the number of restarts of the payload container: one for every bind, and one for every unbind."""
        statuses = self.status()["status"]["initContainerStatuses"]
        return int(next(one["restartCount"] for one in statuses if one["name"] == "payload"))


class Images:
    """Images that no node has seen, at the faulty registry."""

    def __init__(self, pusher: Pusher, faulty: FaultyRegistry) -> None:
        self._pusher = pusher
        self._faulty = faulty

    def fresh(self, repository: str = "e2e-pulls", **config: Any) -> str:
        """A new image with a shell, as a user writes it."""
        mark = layer(Entry("mark", data=str(time.time_ns()).encode()))
        reference = self._pusher.push(f"{repository}:{time.time_ns()}", OciImage((shell(), mark), config))
        return f"docker://{reference.partition('@')[0].replace(self._pusher.address, self._faulty.address)}"


def result(jobs: Jobs, proc: int = 0, timeout: float = PATIENCE_S) -> Result:
    """Wait for the own end of job `proc`; fetch what came back."""
    return collect(jobs, jobs.ended(proc, timeout))


def collect(jobs: Jobs, event: Event) -> Result:
    """Fetch what came back of the job that `event` ended."""
    files = jobs.files()
    return Result(event.attributes, files[f"out.{event.proc}"], files[f"err.{event.proc}"], files)


def ads(jobs: Jobs) -> list[dict[str, Any]]:
    """The ads of jobs that have left the queue, by job number: what condor_history tells of them."""

    def all_of_them() -> list[dict[str, Any]]:
        answer = jobs.lab.access_point(jobs.user, ["condor_history", "-json", str(jobs.cluster)])
        found: list[dict[str, Any]] = json.loads(answer or "[]")
        return found if len(found) == jobs.count else []

    return sorted(until(all_of_them, "the jobs are in the history"), key=lambda ad: int(ad["ProcId"]))


def hold_reason(jobs: Jobs, code: int = IMAGE_HOLD, proc: int = 0) -> str:
    """Wait until job `proc` is held, for the reason `code`; the words that its user reads."""
    facts = jobs.held(proc).attributes
    assert facts["HoldReasonCode"] == code, facts
    reason = str(facts["HoldReason"])
    assert "Traceback" not in reason
    assert '{"message"' not in reason
    return reason


def runs(pool: Pool, command: str) -> None:
    """Wait until a job runs `command`: HTCondor tells of its execution a moment before that."""
    until(lambda: any(command in one for one in pool.processes()), "the job runs", MATCHED_SECONDS)


def slot_takes_a_job_of_bob(pool: Pool, seconds: float = FIT_SECONDS) -> None:
    """The slot is fit for somebody else's job, which ends within `seconds` of its submission, by HTCondor's own log."""
    submitted = pool.shell("echo fine", user="bob")
    ended = submitted.ended(timeout=seconds + 30)
    assert collect(submitted, ended).stdout == b"fine\n"
    assert ended.at - submitted.wait("SubmitEvent").at < seconds


def is_left_alone(jobs: Jobs, times: int = 2) -> None:
    """Wait until the negotiator has looked for a slot for the job so many times more, and has found none."""
    query = ["condor_q", str(jobs.cluster), "-af", "LastRejMatchTime"]
    seen: set[str] = set()

    def has_been_rejected() -> bool:
        seen.add(jobs.lab.access_point(jobs.user, query).strip())
        return len(seen - {"undefined", ""}) > times

    until(has_been_rejected, "the negotiator has rejected the job again", MATCHED_SECONDS)


def until[T](look: Callable[[], T], what: str, timeout: float = 30) -> T:
    """Look until there is something; fail with `what` when there is nothing within `timeout` (scaled) seconds."""
    timeout = scaled(timeout)
    deadline = time.monotonic() + timeout
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {timeout:.0f} s: {what}"
        time.sleep(0.2)
    return found


def cpu_seconds(usage: str) -> list[int]:
    """Of HTCondor's `Usr 0 00:00:05, Sys 0 00:00:01`: user and system."""
    parts = re.findall(r"(\d+) (\d+):(\d+):(\d+)", usage)
    return [int(d) * 86400 + int(h) * 3600 + int(m) * 60 + int(s) for d, h, m, s in parts]
