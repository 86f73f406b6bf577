"""`make demo`: jobs of two HTCondor users run in one pilot pod, each in the image and with the size it asks for."""

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing

from rich.console import Console
from rich.live import Live

from lab import jobs, pilot
from lab.api import Lab
from lab.demo.log import PilotLog
from lab.demo.plan import CONTAINERS, CPUS, MEMORY_MB, PLAN, Job
from lab.demo.view import Row, closing_table, hints, live_table
from lab.errors import LabError
from lab.jobs import BAD_NEWS, SLOW_SHADOW, Event
from lab.patience import scaled

PILOT = "demo"
LIMIT_S = scaled(120.0)
"""Time limit for all jobs together. They need about 10 s."""

_INPUT_TRANSFERRED = 3  # FileTransferEventType in HTCondor's condor_event.h
_LOOK_S = 0.05


def main() -> int:
    """Bring the lab up, run the jobs and show their progress. Return 0 if all results are as expected.

    Raises LabError.
    """
    console = Console(highlight=False)
    began = time.monotonic()
    lab = Lab.up()
    with lab.progress, lab.progress.step("deploy a pilot and wait for its slot"):
        deploy(lab, PILOT)
    rows, faults = run(lab, PILOT, console)
    console.print()
    console.print(closing_table(rows))
    console.print(f"{len(rows)} jobs in {time.monotonic() - began:.0f} s, set-up included.")
    if not faults:
        console.print("✓ All exit codes, outputs and files are as expected.", style="green")
    console.print(hints(lab, PILOT), markup=False, soft_wrap=True)
    for fault in faults:
        console.print(f"✗ {fault}", style="red", markup=False, soft_wrap=True)
    return 1 if faults else 0


def deploy(lab: Lab, name: str) -> None:
    """Deploy the demonstration's pilot, and wait for its slot. Its node has less than the jobs may use together."""
    limits = {"cpu": str(CPUS), "memory": f"{MEMORY_MB}Mi", "ephemeral-storage": "6Gi"}
    resources = {"limits": limits, "requests": {**limits, "cpu": "400m", "ephemeral-storage": "400Mi"}}
    change = pilot.change({"op": "replace", "path": "/spec/initContainers/1/resources", "value": resources})
    pilot.deploy(lab, name, overlay={"patches": [change]}, slots=CONTAINERS)
    jobs.wait_in_pool(lab, name)


def run(lab: Lab, pilot_name: str, console: Console) -> tuple[list[Row], list[str]]:
    """Run the jobs in the pilot pod of that name. Return a row for each job, and one sentence for each fault."""
    with ExitStack() as parts:
        log = parts.enter_context(closing(PilotLog(lab, pilot_name)))
        plan = _that_fit(lab, pilot_name)
        for job in PLAN:
            if job not in plan:
                console.print(
                    f"The pilot's slots are of equal size, so that this job is left out: {job.shows}.", markup=False
                )
        rows = _submit(lab, plan, pilot_name, parts)
        _follow(rows, log, console)
        return rows, [fault for row in rows for fault in _faults(row)]


def _that_fit(lab: Lab, pilot_name: str) -> Sequence[Job]:
    """Return the jobs for which the pilot has a slot: all, unless its slots are equal."""
    query = ["condor_status", "-constraint", f'K8SPodName == "{pilot_name}"']
    query += ["-af", "PartitionableSlot", "Cpus", "Memory"]
    is_partitionable, cpus, memory = lab.access_point("alice", query).splitlines()[0].split()
    if is_partitionable == "true":
        return PLAN
    return [job for job in PLAN if job.cpus <= int(cpus) and job.memory <= int(memory)]


def _submit(lab: Lab, plan: Sequence[Job], pilot_name: str, parts: ExitStack) -> list[Row]:
    """Submit jobs. `parts` removes them when it is closed."""
    rows = []
    for job in plan:
        commands = {
            "container_image": f"docker://{lab.registry}/{job.image}",
            "executable": job.executable,
            "arguments": job.arguments,
            "transfer_output_files": '""',
            "request_cpus": str(job.cpus),
            "request_memory": f"{job.memory}M",
            **job.commands,
        }
        submitted = jobs.submit(lab, job.user, commands, files=job.files, pilot=pilot_name, count=job.count)
        parts.callback(submitted.remove)
        now = time.monotonic()
        rows += [Row(job, submitted, number, now) for number in range(job.count)]
    return rows


def _follow(rows: Sequence[Row], log: PilotLog, console: Console) -> None:
    """Show the progress until all jobs have ended or the time limit is reached."""
    deadline = time.monotonic() + LIMIT_S
    live = Live(console=console, get_renderable=lambda: live_table(rows), refresh_per_second=8)
    with ExitStack() as parts:
        if console.is_terminal:
            parts.enter_context(live)
        else:
            console.print("Seconds since submission, job, user, image, state:")
        while not all(row.over for row in rows) and time.monotonic() < deadline:
            before = {row.name: set(row.reached) for row in rows}
            _look(rows, log)
            if not console.is_terminal:
                for row in rows:
                    _print_news(row, before[row.name], console)
            time.sleep(_LOOK_S)
    for row in rows:
        if not row.over and "done" not in row.reached:
            row.trouble = f"not finished after {LIMIT_S:.0f} s"


def _look(rows: Sequence[Row], log: PilotLog) -> None:
    by_name = {row.name: row for row in rows}
    for news in log.look():
        if (row := by_name.get(news.job)) is not None:
            row.reach(news.state, time.monotonic())
            row.bind_s = news.bind_s if news.bind_s is not None else row.bind_s
    for cluster in {id(row.jobs): row.jobs for row in rows}.values():
        for event in cluster.look():
            if (row := by_name.get(f"{cluster.cluster}.{event.proc}")) is not None:
                _update(row, event)


def _update(row: Row, event: Event) -> None:
    """Update a row from an event of the job's event log."""
    if event.kind == "FileTransferEvent" and event.attributes["Type"] == _INPUT_TRANSFERRED:
        row.reach("files in", event.seen)
    elif event.kind == "JobTerminatedEvent":
        row.reach("done", event.seen)
        row.code = event.attributes.get("ReturnValue")
    elif event.kind in BAD_NEWS and SLOW_SHADOW not in jobs.words(event):
        row.trouble = jobs.words(event)


def _print_news(row: Row, before: set[str], console: Console) -> None:
    for state, seconds in row.reached.items():
        if state not in before:
            extra = f" in {row.bind_s:.2f} s" if state == "bound" else ""
            extra = f" with exit code {row.code}" if state == "done" else extra
            words = f"{row.name:>6}  {row.plan.user:5}  {row.plan.image:12}  {state}{extra}"
            console.print(f"{seconds:6.1f}  {words}", markup=False)


def _faults(row: Row) -> list[str]:
    """Compare a job's results with the plan and fill in its output. Return one sentence for each fault."""
    plan, title = row.plan, f"job {row.name} ({row.plan.shows})"
    if row.trouble:
        return [f"{title}: {row.trouble}"]
    try:
        files = row.jobs.files()
    except LabError as problem:
        return [f"{title}: {problem}"]
    texts = {name: content.decode(errors="replace") for name, content in files.items()}
    row.output, errors = texts.get(f"out.{row.proc}", ""), texts.get(f"err.{row.proc}", "")
    faults = [
        f"{title}: {text!r} is missing in its output {row.output!r}" for text in plan.output if text not in row.output
    ]
    if row.code != plan.code:
        faults.append(f"{title}: its exit code is {row.code}, not {plan.code}; its standard error is {errors!r}")
    if errors != plan.errors:
        faults.append(f"{title}: its standard error is {errors!r}, not {plan.errors!r}")
    for name, content in plan.returned.items():
        if texts.get(name) != content:
            faults.append(f"{title}: its file {name} is {texts.get(name)!r}, not {content!r}")
    if not row.logged:
        faults.append(f"{title}: the pilot's log does not show its bind and its start")
    return faults
