"""`make matrix`: the demo and the engine's suite on a node of each Kubernetes version, as a table for the docs.

    python -m lab.matrix [1.34 1.36 ...]

Each version has a node of its own, one after another; at the end the lab is down. The table is printed, and its rows
are kept in build/matrix.json, so that a run of some versions replaces these only.
"""

import json
import os
import platform
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lab.errors import LabError
from lab.settings import CHECKOUT, KUBERNETES_VERSIONS, Settings

_FOLDER: Final = CHECKOUT / "build/matrix"
_ROWS: Final = CHECKOUT / "build/matrix.json"
_HEADS: Final = (
    "Kubernetes",
    "containerd",
    "cgroup",
    "kernel",
    "`make demo`",
    "the engine's suite on the node",
    "date",
)

Row = dict[str, str]


def main(minors: Sequence[str]) -> int:
    """Run what is to be run on each version, and print the table; return 0 if all is well."""
    if unknown := [one for one in minors if one not in KUBERNETES_VERSIONS]:
        print(f"matrix: {unknown[0]} is none of {', '.join(KUBERNETES_VERSIONS)}", file=sys.stderr)
        return 2
    rows: dict[str, Row] = json.loads(_ROWS.read_text()) if _ROWS.exists() else {}
    is_good = True
    for minor in minors or KUBERNETES_VERSIONS:
        rows[minor], is_well = _measure(minor)
        is_good &= is_well
        _ROWS.parent.mkdir(parents=True, exist_ok=True)
        _ROWS.write_text(json.dumps(rows, indent=1) + "\n")
    _run(["-m", "lab", "down"], "", "down")
    print("\n".join(table([rows[minor] for minor in KUBERNETES_VERSIONS if minor in rows])))
    return 0 if is_good else 1


def table(rows: Sequence[Row]) -> list[str]:
    """Return the lines of a table in Markdown."""
    lines = [_HEADS, tuple("---" for _ in _HEADS), *(tuple(row[head] for head in _HEADS) for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def outcome(report: Path) -> tuple[str, bool]:
    """Return the result of a suite in words, and whether it is good, from its report (JUnit's XML)."""
    try:
        suite = next(ET.parse(report).getroot().iter("testsuite"))  # noqa: S314 -- pytest wrote it a moment ago
    except (OSError, ET.ParseError, StopIteration):
        return "ended without a report", False
    tests, skipped = int(suite.get("tests", "0")), int(suite.get("skipped", "0"))
    failed = int(suite.get("failures", "0")) + int(suite.get("errors", "0"))
    words = f"{tests - skipped - failed} passed" + (f", {failed} failed" if failed else "")
    words += f", {skipped} skipped" if skipped else ""
    return words, failed == 0 and tests > skipped


def _measure(minor: str) -> tuple[Row, bool]:
    print(f"--- Kubernetes {KUBERNETES_VERSIONS[minor]} ({time.strftime('%H:%M:%S')})", flush=True)
    began = time.monotonic()
    demo = _run(["-m", "lab", "demo"], minor, "demo")
    seconds = time.monotonic() - began
    report = _FOLDER / f"{minor}.xml"
    report.unlink(missing_ok=True)
    suite = ["-m", "tests.runner", "all", "--part", "node", "--", "tests/engine", f"--junitxml={report}"]
    _run(suite, minor, "engine")
    words, is_good = outcome(report)
    values = (
        KUBERNETES_VERSIONS[minor].removeprefix("v"),
        _containerd(),
        "v2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "v1",
        platform.release(),
        f"right, {seconds:.0f} s" if demo == 0 else "**failed**",
        words if is_good else f"**{words}**",
        time.strftime("%Y-%m-%d", time.gmtime()),
    )
    print("  ".join(values), flush=True)
    return dict(zip(_HEADS, values, strict=True)), demo == 0 and is_good


def _containerd() -> str:
    """Return the version of the node's containerd."""
    program = Settings.from_environment().bin / "containerd"
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    words = done.stdout.split()
    return words[2].removeprefix("v") if len(words) > 2 else "unknown"


def _run(arguments: Sequence[str], minor: str, name: str) -> int:
    """Run a program of this Python; its output goes into build/matrix/. Return its exit status."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **({"K8SPILOT_LAB_KUBERNETES": minor} if minor else {})}
    with (_FOLDER / f"{minor or 'end'}-{name}.log").open("wb") as log:
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, cwd=CHECKOUT, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False
        ).returncode


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except LabError as problem:
        sys.exit(f"matrix: {problem}")
