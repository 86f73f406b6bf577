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
from lab.process_group import KILL_SECONDS, run_group
from lab.settings import (
    CHECKOUT,
    HTCONDOR,
    HTCONDOR_SUITES,
    KUBERNETES_VERSIONS,
    RUNTIME,
    RUNTIMES,
    Settings,
)

COMBINATIONS: Final = (
    "1.33+containerd-1.7+merged-groups",
    "1.34",
    "1.35",
    "1.36",
    "1.37",
    "1.36+23.9",
    "1.36+crio-1.36",
    "1.36+user-namespace",
)
PART: Final = "node or attack or gpu or cluster or (e2e and quick)"
"""Marker expression of the tests that run on each combination."""
SUITES: Final = {
    "engine on the node": r"tests\.engine\.",
    "jobs": r"tests\.e2e\.(?!test_gpu)",
    "attacks": r"tests\.attacks\.",
    "GPUs": r"tests\.e2e\.test_gpu",
}
"""Columns of the table: the test modules of each, as a pattern of their names."""

VARIABLES: Final = (
    "K8SPILOT_LAB_KUBERNETES",
    "K8SPILOT_LAB_HTCONDOR",
    "K8SPILOT_LAB_RUNTIME",
    "K8SPILOT_LAB_COMPONENTS",
)
"""Variables of the lab that a combination sets."""
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
    """Run the demo and the tests on each combination, and print the table; return 0 if all have passed."""
    if unknown := [one for one in chosen if one not in COMBINATIONS]:
        print(f"matrix: {unknown[0]} is none of {', '.join(COMBINATIONS)}", file=sys.stderr)
        return 2
    if own := [name for name in ("KUBECONFIG", "IMAGE", "REGISTRY", *VARIABLES) if os.environ.get(name)]:
        print(f"matrix: unset {', '.join(own)}, because each combination has a lab of its own", file=sys.stderr)
        return 2
    rows: dict[str, Row] = json.loads(_ROWS.read_text()) if _ROWS.exists() else {}
    is_good = True
    try:
        for name in chosen or COMBINATIONS:
            rows[name], is_well = _measure(name)
            is_good &= is_well
            _ROWS.parent.mkdir(parents=True, exist_ok=True)
            _ROWS.write_text(json.dumps(rows, indent=1) + "\n")
    finally:
        _run(["-m", "lab", "down"], {}, "down")
    print("\n".join(table([rows[name] for name in COMBINATIONS if name in rows])))
    return 0 if is_good else 1


def table(rows: Sequence[Row]) -> list[str]:
    """Return the lines of a table in Markdown."""
    lines = [HEADS, tuple("---" for _ in HEADS), *(tuple(row.get(head, "not run") for head in HEADS) for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def outcome(report: Path, suite: str | None = None) -> tuple[str, bool]:
    """Return the result of a suite, or of all tests, in words, and whether it is good, from a report (JUnit's XML)."""
    try:
        cases = list(ET.parse(report).getroot().iter("testcase"))  # noqa: S314 -- pytest wrote it a moment ago
    except (OSError, ET.ParseError):
        return "**no report**", False
    pattern = SUITES[suite] if suite else ""
    # A test whose clean-up fails, too, has two entries.
    ends: dict[str, set[str]] = {}
    for case in cases:
        if re.match(pattern, module := case.get("classname", "")):
            ends.setdefault(f"{module}::{case.get('name')}", set()).update(part.tag for part in case)
    bad = {"failure", "error"}
    failed = sum(1 for tags in ends.values() if tags & bad)
    skipped = sum(1 for tags in ends.values() if "skipped" in tags and not tags & bad)
    passed = len(ends) - failed - skipped
    if not ends:
        return "not run", False
    words = f"{passed} passed" + (f", **{failed} failed**" if failed else "")
    words += f", {skipped} skipped" if skipped else ""
    return words, failed == 0 and passed > 0


def parts(name: str) -> tuple[str, str, str, str]:
    """Return the Kubernetes, the HTCondor, the runtime and the components (with spaces between) of a combination."""
    kubernetes, *others = name.split("+")
    htcondor = [one for one in others if one in HTCONDOR_SUITES] or [HTCONDOR]
    runtime = [one for one in others if one in RUNTIMES] or [RUNTIME]
    components = [one for one in others if one not in HTCONDOR_SUITES and one not in RUNTIMES]
    return kubernetes, htcondor[0], runtime[0], " ".join(components)


def _measure(name: str) -> tuple[Row, bool]:
    kubernetes, htcondor, _, components = parts(name)
    environment = dict(zip(VARIABLES, parts(name), strict=True))
    print(f"--- {name} ({time.strftime('%H:%M:%S')})", flush=True)
    is_right = _run(["-m", "lab", "demo"], environment, f"{name}-demo") == 0
    jobs = re.search(r"^(\d+) jobs in ", (_FOLDER / f"{name}-demo.log").read_text(errors="replace"), re.MULTILINE)
    report = _FOLDER / f"{name}.xml"
    report.unlink(missing_ok=True)
    options = ["all", "--part", PART, "--", f"--junitxml={report}"]
    is_complete = _run(["-m", "tests.runner", *options], environment, f"{name}-tests") in {0, 1}  # 1: a test failed
    suites = [outcome(report, suite) for suite in SUITES]
    interrupted = "" if is_complete else "**interrupted**: "
    values = (
        KUBERNETES_VERSIONS[kubernetes].removeprefix("v"),
        htcondor,
        _runtime(),
        f"`{components}`" if components else "",
        "v2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "v1",
        ".".join(platform.release().split(".")[:2]),
        f"{jobs[1]} jobs right" if is_right and jobs else "**failed**",
        *(f"{interrupted}{words}" for words, _ in suites),
        time.strftime("%Y-%m-%d", time.gmtime()),
    )
    print("  ".join(values), flush=True)
    return dict(zip(HEADS, values, strict=True)), is_right and is_complete and all(good for _, good in suites)


def _runtime() -> str:
    """Return the name and the version of the node's container runtime, as the kubelet tells them."""
    path = "jsonpath={.items[0].status.nodeInfo.containerRuntimeVersion}"
    command = [*node.kubectl(Settings.from_environment()), "get", "nodes", "-o", path]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:  # the node was never built
        return "unknown"
    return done.stdout.replace("://", " ").replace(" v", " ").replace("cri-o", "CRI-O").partition("+")[0] or "unknown"


def _run(arguments: Sequence[str], environment: Mapping[str, str], name: str) -> int:
    """Run a program of this Python; its output goes into build/matrix/. Return its exit status."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with (_FOLDER / f"{name}.log").open("wb") as log:
        return run_group(
            [sys.executable, *arguments],
            kill_seconds=KILL_SECONDS + 15,  # the runner of the tests kills its session after KILL_SECONDS
            cwd=CHECKOUT,
            env={**os.environ, **environment},
            stdout=log,
            stderr=subprocess.STDOUT,
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
