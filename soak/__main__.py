"""Run the soak test, print its progress, write build/soak.json.

The exit status is 1 in three cases: a job was lost, had a wrong result, ran twice at a time, was stuck, or was started
again although no fault hit its payload container or its pod; the pilot that only faults of the node hit has changed
(its memory, its file descriptors, remains of jobs); a fault could not be made.
"""

import argparse
import json
import os
import random
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from lab.api import Lab
from lab.errors import LabError
from soak.campaign import Campaign, Report


def main() -> int:
    """Run a soak; return the exit status."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--jobs", type=int, default=300, help="at least so many")
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=40, help="no new fault after that")
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(10**6), help="which faults, in which order"
    )
    parser.add_argument("--slots", type=int, default=1, help="payload containers of each pod; jobs have mixed sizes")
    parser.add_argument("--pod-only", action="store_true", help="no faults of the whole node, which others may use")
    chosen = parser.parse_args()
    prefix = os.environ.get("K8SPILOT_TEST_PREFIX", "")
    _say(f"seed {chosen.seed}")
    try:
        campaign = Campaign(
            lab=Lab.up(),
            seed=chosen.seed,
            jobs=chosen.jobs,
            faults=chosen.faults,
            minutes=chosen.minutes,
            prefix=prefix,
            say=_say,
            whole_node=not chosen.pod_only,
            batch=20 if chosen.slots == 1 else 5 * chosen.slots + 20,
            slots=chosen.slots,
        )
        report = campaign.run()
    except LabError as error:
        print(f"soak: {error}", file=sys.stderr)
        return 1
    tell(report)
    target = Path("build/soak.json")
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(asdict(report), indent=1))
    return 0 if report.verdict.good and report.steady and not report.trouble else 1


def _say(line: str) -> None:
    print(line, flush=True)


def tell(report: Report) -> None:
    """Print a line for each figure."""
    verdict, before, after = report.verdict, report.before, report.after
    same = before.engine == after.engine
    rows: list[tuple[str, object]] = [
        ("seed", report.seed),
        ("seconds", round(report.seconds)),
        ("faults", len(report.faults)),
        ("jobs submitted", verdict.submitted),
        ("completed right", verdict.right),
        ("started more than once by HTCondor's own rules", verdict.again),
        ("lost", len(verdict.lost)),
        ("wrong results", len(verdict.wrong)),
        ("doubled", len(verdict.doubled)),
        ("stuck longer than two minutes", len(verdict.stuck)),
        ("large jobs that waited as long for a match", len(verdict.crowded_out)),
        ("started again though no fault hit them", len(verdict.again_unhit)),
        ("pilot's memory before, after (MiB, Rss)", f"{before.resident:.1f}, {after.resident:.1f}"),
        ("of that its own (MiB)", f"{before.own:.1f}, {after.own:.1f}"),
        (f"its growth in {report.calm_jobs} jobs (MiB)", f"{report.growth:.2f}" if same else "another engine"),
        ("file descriptors before, after", f"{before.descriptors}, {after.descriptors}"),
        ("files left before, after", f"{before.files}, {after.files}"),
    ]
    for name, value in rows:
        print(f"{name:<50} {value}", flush=True)
    for jobs, mib in report.memory:
        print(f"    {mib:6.2f} MiB after {jobs} jobs", flush=True)
    for name, number in [*Counter(report.faults).most_common(), *verdict.reasons.items()]:
        print(f"    {number:4} {name}", flush=True)
    for what in ("lost", "wrong", "doubled", "stuck", "crowded_out", "again_unhit"):
        for words in getattr(verdict, what):
            print(f"{what}: {words}", flush=True)
    for words in report.trouble:
        print(f"could not be made: {words}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
