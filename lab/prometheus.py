"""The distribution's Prometheus, started on demand to scrape pods of the lab. It is unpacked and not installed."""

import json
import shutil
import socket
import subprocess
import tempfile
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lab import machine
from lab.api import Lab
from lab.errors import LabError
from lab.http import opened
from lab.patience import scaled
from lab.processes import Daemon, Daemons

NAME = "prometheus"
PATIENCE_S = scaled(30.0)
INTERVAL = "5s"
"""Scrape interval, and limit of a scrape, which may not be longer: a pilot on a busy node may need more than a
second."""


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus."""

    url: str
    promtool: Path
    """Path of the program that checks metrics and rules."""

    def get(self, path: str, **query: str) -> Any:
        """Ask its HTTP API (/api/v1/...); return the data in the answer."""
        with opened(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}") as answer:
            return json.load(answer)["data"]

    def value(self, expression: str) -> float | None:
        """Return the present value of an expression with one series, or None if it has none."""
        found = self.get("query", query=expression)["result"]
        return float(found[0]["value"][1]) if found else None

    def lint(self, text: str) -> str:
        """Return promtool's complaints about metrics in the form in which they are scraped; empty if there are none."""
        command: list[str | Path] = [self.promtool, "check", "metrics"]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False).stderr


def promtool(lab: Lab, *arguments: str) -> str:
    """Run Prometheus's own tool; return its complaints. Raises LabError without the package."""
    program = machine.unpack_packages(lab.settings, lab.progress, NAME, [NAME]) / "usr/bin/promtool"
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr if done.returncode else ""


@contextmanager
def scraping(lab: Lab, targets: list[str]) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes `targets` (host:port), every five seconds. Raises LabError."""
    if lab.settings.kubeconfig is not None:
        raise LabError("KUBECONFIG is set: a Prometheus of this machine reaches pods of the lab's own node only")
    programs = machine.unpack_packages(lab.settings, lab.progress, NAME, [NAME])
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    found = Prometheus(f"http://127.0.0.1:{port}", programs / "usr/bin/promtool")
    daemons = Daemons(lab.settings)
    folder = Path(tempfile.mkdtemp(prefix="prometheus-", dir=lab.settings.state))
    configuration = {
        "global": {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL},
        "scrape_configs": [{"job_name": "k8spilot", "static_configs": [{"targets": targets}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    argv: list[str | Path] = [
        programs / "usr/bin/prometheus",
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    name = f"{NAME}-{port}"
    try:
        daemons.start(Daemon(name, argv))
        daemons.wait_until(name, lambda: _answers(found), "Prometheus does not answer", PATIENCE_S)
        yield found
    finally:
        daemons.stop(name)
        shutil.rmtree(folder)


def _answers(prometheus: Prometheus) -> bool:
    try:
        with opened(f"{prometheus.url}/-/ready") as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
