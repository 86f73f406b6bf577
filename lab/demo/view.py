"""The demonstration's tables: one row for each job, with the times of its states or its results."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich import box
from rich.table import Table
from rich.text import Text

from lab.api import Lab
from lab.demo.plan import Job
from lab.jobs import Jobs
from lab.progress import clock
from lab.settings import ACCESS_POINT, PILOT_NAMESPACE, POOL_NAMESPACE

STATES = ("idle", "claimed", "files in", "bound", "running", "done")
"""The states that a job goes through, in this order."""


@dataclass
class Row:
    """One job."""

    plan: Job
    jobs: Jobs
    proc: int
    submitted: float
    """Time of its submission (time.monotonic)."""
    reached: dict[str, float] = field(default_factory=lambda: {"idle": 0.0})
    """State -> seconds since its submission."""
    bind_s: float | None = None
    """Duration of its bind in seconds, from the pilot's log: until payload-init runs in the job's image."""
    code: int | None = None
    output: str = ""
    trouble: str = ""

    @property
    def name(self) -> str:
        """HTCondor's id of the job."""
        return f"{self.jobs.cluster}.{self.proc}"

    @property
    def over(self) -> bool:
        """Whether the job has failed, or has ended and its last lines of the pilot's log have come."""
        return bool(self.trouble) or ("done" in self.reached and self.logged)

    @property
    def logged(self) -> bool:
        """Whether the pilot's log has shown its bind and its start."""
        return self.bind_s is not None and "running" in self.reached

    @property
    def ran_s(self) -> float | None:
        """Seconds from its start to its end, the return of its files included."""
        if "done" in self.reached and "running" in self.reached:
            return self.reached["done"] - self.reached["running"]
        return None

    def reach(self, state: str, seen: float) -> None:
        """Note that the job came to `state` at `seen` (time.monotonic)."""
        self.reached.setdefault(state, seen - self.submitted)


def live_table(rows: Sequence[Row]) -> Table:
    """Return a table with the state of each job, and the time at which it reached each state."""
    table = Table(box=None, pad_edge=False, caption="Seconds since the job was submitted", caption_justify="left")
    table.add_column("job")
    table.add_column("user")
    table.add_column("image")
    for state in STATES:
        table.add_column(state, justify="right", min_width=8)
    for row in rows:
        current = [state for state in STATES if state in row.reached][-1]
        cells = []
        for state in STATES:
            if state in row.reached:
                cells.append(Text(f"{row.reached[state]:.1f}", style="bold green" if state == current else ""))
            else:
                cells.append(Text("·", style="dim"))
        if not row.over:
            cells[0] = Text(f"{time.monotonic() - row.submitted:.1f}") if current == "idle" else cells[0]
        table.add_row(row.name, row.plan.user, row.plan.image, *cells)
    return table


def closing_table(rows: Sequence[Row]) -> Table:
    """Return a table with the results of each job."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="Results", title_justify="left")
    for name in ("job", "user", "image"):
        table.add_column(name, no_wrap=True)
    for name in ("CPUs", "MiB", "exit", "bind", "run"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("output")
    for row in rows:
        table.add_row(
            row.name,
            row.plan.user,
            row.plan.image,
            str(row.plan.cpus),
            str(row.plan.memory),
            "-" if row.code is None else str(row.code),
            "-" if row.bind_s is None else f"{row.bind_s:.2f} s",
            "-" if row.ran_s is None else clock(row.ran_s),
            Text("\n".join((row.output or row.trouble).splitlines()[:3])),
        )
    return table


def hints(lab: Lab, pilot: str) -> str:
    """Return commands with which a user can look around. They work as they are printed."""
    kubectl = f"{lab.settings.bin}/kubectl" if lab.settings.kubeconfig is None else "kubectl"
    access_point = f"$K exec -it -n {POOL_NAMESPACE} {ACCESS_POINT} -- su - alice"
    job = f"universe=container container_image=docker://{lab.registry}/busybox executable=/bin/uname arguments=-a"
    files = "transfer_executable=false output=uname.out log=uname.log"
    return f"""
The lab is still running; `make lab-down` stops it. To look around:
  K="{kubectl} --kubeconfig {lab.kubeconfig}"
  $K get pods --all-namespaces
  $K logs -n {PILOT_NAMESPACE} {pilot} -c pilot
  $K exec -n {PILOT_NAMESPACE} {pilot} -c pilot -- k8spilot status
  {access_point} -c condor_status
Submit a job of your own, or work as the user alice:
  {access_point} -c "condor_submit {job} {files} -queue 1"
  {access_point} -c "condor_wait uname.log; cat uname.out"
  {access_point}"""
