"""`make matrix`: the demo and parts of the suite on several kinds of clusters, as a table.

    python -m lab.matrix [1.34 1.36+23.9 1.33+containerd-1.7+merged-groups ...]

A combination is the Kubernetes of the node, and what else is not the usual one: the HTCondor of the pool, the node's
container runtime, and components that each pilot has. Each has a lab of its own, one after another; at the end the lab
is down. The table is printed, and its rows are kept in build/matrix.json, so that a run of some combinations replaces
these only.
"""

import json
import os
import platform
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from lab import node
from lab.settings import (
    CHECKOUT,
    HTCONDOR,
    HTCONDOR_SUITES,
    KUBERNETES,
    KUBERNETES_VERSIONS,
    RUNTIME,
    RUNTIMES,
    Settings,
)

COMBINATIONS: Final = (
    *KUBERNETES_VERSIONS,
    *(f"{KUBERNETES}+{version}" for version in HTCONDOR_SUITES if version != HTCONDOR),
    "1.33+containerd-1.7+merged-groups",
    "1.36+crio-1.36",
    f"{KUBERNETES}+user-namespace",
)
SUITES: Final = {"engine on the node": "node", "stories of jobs": "e2e and quick"}
"""Parts of the test suite by their names, as marker expressions."""

_FOLDER: Final = CHECKOUT / "build/matrix"
_ROWS: Final = CHECKOUT / "build/matrix.json"
HEADS: Final = (
    "Kubernetes",
    "HTCondor of the pool",
    "runtime",
    "component",
    "cgroup",
    "kernel",
    "`make demo`",
    *SUITES,
    "date",
)

Row = dict[str, str]


def main(chosen: Sequence[str]) -> int:
    """Run what is to be run on each combination, and print the table; return 0 if all is well."""
    if unknown := [one for one in chosen if one not in COMBINATIONS]:
        print(f"matrix: {unknown[0]} is none of {', '.join(COMBINATIONS)}", file=sys.stderr)
        return 2
    if os.environ.get("KUBECONFIG"):
        print("matrix: unset KUBECONFIG, because each combination has a lab of its own", file=sys.stderr)
        return 2
    rows: dict[str, Row] = json.loads(_ROWS.read_text()) if _ROWS.exists() else {}
    is_good = True
    for name in chosen or COMBINATIONS:
        rows[name], is_well = _measure(name)
        is_good &= is_well
        _ROWS.parent.mkdir(parents=True, exist_ok=True)
        _ROWS.write_text(json.dumps(rows, indent=1) + "\n")
    _run(["-m", "lab", "down"], {}, "down")
    print("\n".join(table([rows[name] for name in COMBINATIONS if name in rows])))
    return 0 if is_good else 1


def table(rows: Sequence[Row]) -> list[str]:
    """Return the lines of a table in Markdown."""
    lines = [HEADS, tuple("---" for _ in HEADS), *(tuple(row[head] for head in HEADS) for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def outcome(report: Path) -> tuple[str, bool]:
    """Return the result of a suite in words, and whether it is good, from its report (JUnit's XML)."""
    try:
        suite = next(ET.parse(report).getroot().iter("testsuite"))  # noqa: S314 -- pytest wrote it a moment ago
    except (OSError, ET.ParseError, StopIteration):
        return "**no report**", False
    tests, skipped = int(suite.get("tests", "0")), int(suite.get("skipped", "0"))
    failed = int(suite.get("failures", "0")) + int(suite.get("errors", "0"))
    words = f"{tests - skipped - failed} passed" + (f", **{failed} failed**" if failed else "")
    words += f", {skipped} skipped" if skipped else ""
    return words, failed == 0 and tests > skipped


def parts(name: str) -> tuple[str, str, str, str]:
    """Return the Kubernetes, the HTCondor, the runtime and the components (with spaces between) of a combination."""
    kubernetes, *others = name.split("+")
    htcondor = [one for one in others if one in HTCONDOR_SUITES] or [HTCONDOR]
    runtime = [one for one in others if one in RUNTIMES] or [RUNTIME]
    components = [one for one in others if one not in HTCONDOR_SUITES and one not in RUNTIMES]
    return kubernetes, htcondor[0], runtime[0], " ".join(components)


def _measure(name: str) -> tuple[Row, bool]:
    kubernetes, htcondor, runtime, components = parts(name)
    environment = {
        "K8SPILOT_LAB_KUBERNETES": kubernetes,
        "K8SPILOT_LAB_HTCONDOR": htcondor,
        "K8SPILOT_LAB_RUNTIME": runtime,
        "K8SPILOT_LAB_COMPONENTS": components,
    }
    print(f"--- {name} ({time.strftime('%H:%M:%S')})", flush=True)
    is_right = _run(["-m", "lab", "demo"], environment, f"{name}-demo") == 0
    jobs = re.search(r"^(\d+) jobs in ", (_FOLDER / f"{name}-demo.log").read_text(errors="replace"), re.MULTILINE)
    suites = {}
    for number, (suite, part) in enumerate(SUITES.items()):
        report = _FOLDER / f"{name}-{number}.xml"
        report.unlink(missing_ok=True)
        options = ["all", "--part", part, "--", f"--junitxml={report}"]
        ended = _run(["-m", "tests.runner", *options], environment, f"{name}-{number}")
        words, is_good = outcome(report)
        suites[suite] = words if is_good == (ended == 0) else f"**interrupted**: {words}", is_good and ended == 0
    values = (
        KUBERNETES_VERSIONS[kubernetes].removeprefix("v"),
        htcondor,
        _runtime(),
        f"`{components}`" if components else "",
        "v2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "v1",
        ".".join(platform.release().split(".")[:2]),
        f"{jobs[1]} jobs right" if is_right and jobs else "**failed**",
        *(words for words, _ in suites.values()),
        time.strftime("%Y-%m-%d", time.gmtime()),
    )
    print("  ".join(values), flush=True)
    return dict(zip(HEADS, values, strict=True)), is_right and all(good for _, good in suites.values())


def _runtime() -> str:
    """Return the name and the version of the node's container runtime, as the kubelet tells them."""
    path = "jsonpath={.items[0].status.nodeInfo.containerRuntimeVersion}"
    command = [*node.kubectl(Settings.from_environment()), "get", "nodes", "-o", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.replace("://", " ").replace(" v", " ").replace("cri-o", "CRI-O").partition("+")[0] or "unknown"


def _run(arguments: Sequence[str], environment: Mapping[str, str], name: str) -> int:
    """Run a program of this Python; its output goes into build/matrix/. Return its exit status."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with (_FOLDER / f"{name}.log").open("wb") as log:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=CHECKOUT,
            env={**os.environ, **environment},
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
