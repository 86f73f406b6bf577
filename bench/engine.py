"""Figures of the engine alone, from inside a pilot that runs nothing else."""

import contextlib
import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.figures import Figures, Goal, percentile
from bench.floor import floor
from lab import node, pilot
from lab.api import Lab
from lab.settings import PILOT_NAMESPACE

POD = "bench-engine"
CHANGES = 12
JOBS = 20
APART_SECONDS = 1.5
"""The kubelet makes one change a second of a pod; what is measured here is a change, not the wait for its turn."""
IDLE_SECONDS = 20
_CHANGED = re.compile(r"runs \S+ ([0-9.]+) s after the change")


class Inside:
    """bench/inside.py in the pilot container."""

    def __init__(self, lab: Lab) -> None:
        text = Path(__file__).with_name("inside.py").read_text()
        command = [
            "exec",
            "-i",
            POD,
            "-n",
            PILOT_NAMESPACE,
            "-c",
            "pilot",
            "--",
            "/opt/k8spilot/bin/python",
            "-c",
            text,
        ]
        self._process = subprocess.Popen(
            [*(str(part) for part in node.kubectl(lab.settings)), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, *words: str) -> float:
        """One line in, one figure out."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"the benchmark's program in pod {POD} ended: see its error above")
        return float(json.loads(answer))

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)


@contextlib.contextmanager
def inside(lab: Lab) -> Iterator[Inside]:
    """A pilot with the engine alone, and the program in it."""
    pilot.deploy(lab, POD, {"K8SPILOT_SERVICES": "engine", "K8SPILOT_IDLE_AFTER_SECONDS": "3600"})
    try:
        lab.kubectl("wait", "--for=condition=Ready", f"pod/{POD}", "-n", PILOT_NAMESPACE, "--timeout=60s")
        _until_serving(lab)
        program = Inside(lab)
        yield program
        program.close()
    finally:
        pilot.delete(lab, POD)


def measure(lab: Lab, figures: Figures) -> None:
    """Bind against the floor, exit to told, requests, memory and CPU."""
    image = f"{lab.registry}/debian:forky"
    with inside(lab) as program:
        program.ask("bind", image)
        _idle(lab, program, figures)
        _binds(lab, program, figures, image)
        _exits(program, figures, image)


def _binds(lab: Lab, program: Inside, figures: Figures, image: str) -> None:
    bare: list[float] = []
    repository, digest = _reference(lab)
    with floor(lab, repository, digest) as pod:
        for _ in range(CHANGES):
            time.sleep(APART_SECONDS)
            bare.append(pod.change())
            time.sleep(APART_SECONDS)
            program.ask("bind", image)
    log = lab.kubectl("logs", POD, "-n", PILOT_NAMESPACE, "-c", "pilot")
    ours = [float(found) for found in _CHANGED.findall(log)][-CHANGES:]
    figures.add("bare PATCH to running", median(bare), "s")
    figures.add("bind, PATCH to payload-init ready", median(ours), "s")
    figures.add("bind / bare PATCH to running", median(ours) / median(bare), "ratio", Goal(1.3))


def _exits(program: Inside, figures: Figures, image: str) -> None:
    before = program.ask("requests")
    told = [program.ask("job", image) for _ in range(JOBS)]
    figures.add("payload's exit to the end of docker wait, median", median(told) * 1000, "ms", Goal(50))
    figures.add("payload's exit to the end of docker wait, 99%", percentile(told, 99) * 1000, "ms")
    figures.add("API requests a job", (program.ask("requests") - before) / JOBS, "", Goal(3))


def _idle(lab: Lab, program: Inside, figures: Figures) -> None:
    before, began = program.ask("requests"), _process(lab)
    time.sleep(IDLE_SECONDS)
    after, ended = program.ask("requests"), _process(lab)
    # `bind` above took at least one; the watch is one that lasts.
    figures.add(f"API requests in {IDLE_SECONDS} s idle, beside the watch", after - before, "", Goal(0))
    figures.add("k8spilot's memory", ended[0] / 1024, "MiB")
    figures.add("k8spilot's CPU while idle", (ended[1] - began[1]) / IDLE_SECONDS * 100, "% of a core")


def _process(lab: Lab) -> tuple[float, float]:
    """Resident KiB and CPU seconds of k8spilot."""
    script = """
        pid=$(pgrep -f '[b]in/k8spilot run')
        getconf CLK_TCK; grep VmRSS /proc/$pid/status; cat /proc/$pid/stat
    """
    where = ("exec", POD, "-n", PILOT_NAMESPACE, "-c", "pilot", "--", "sh", "-c", script)
    ticks, rss, stat = lab.kubectl(*where).splitlines()
    columns = stat.rpartition(")")[2].split()
    return float(rss.split()[1]), (int(columns[11]) + int(columns[12])) / int(ticks)


def _reference(lab: Lab) -> tuple[str, str]:
    """Repository and digest of the image that the pod runs, so that the floor changes to one of the same size."""
    found = lab.kubectl(
        "get", "pod", POD, "-n", PILOT_NAMESPACE, "-o", "jsonpath={.status.initContainerStatuses[1].imageID}"
    )
    repository, _, digest = found.strip().partition("@")
    return repository, digest


def _until_serving(lab: Lab) -> None:
    for _ in range(100):
        if "Serving the Docker" in lab.kubectl("logs", POD, "-n", PILOT_NAMESPACE, "-c", "pilot"):
            return
        time.sleep(0.2)
    raise SystemExit(f"the engine of pod {POD} does not serve within 20 s; see its log")
