"""Memory, descriptors and processor time of a pilot, measured in its own container."""

import json
from dataclasses import dataclass

from lab.api import Lab
from lab.pilot import inside

_SCRIPT = """
import glob, json, os
def of(word):
    for path in glob.glob("/proc/[0-9]*"):
        try:
            words = open(path + "/cmdline").read().split("\\0")
            if any(one.rpartition("/")[2].startswith(word) for one in words[:4]):
                return path
        except OSError:
            pass
facts = {}
for name, word in (("engine", "k8spilot.engine"), ("supervisor", "supervisor")):
    path = of(word)
    if path:
        rows = dict(line.split(":", 1) for line in open(path + "/smaps_rollup").read().splitlines()[1:])
        facts[name] = {key: int(rows[key].split()[0]) / 1024 for key in ("Rss", "Private_Dirty")}
        facts[name]["descriptors"] = len(os.listdir(path + "/fd"))
        facts[name]["pid"] = int(path.split("/")[-1])
        times = open(path + "/stat").read().rpartition(")")[2].split()
        facts[name]["cpu"] = (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
folders = ("/var/lib/condor/execute", "/k8spilot-payload", "/tmp", "/var/tmp", "/dev/shm")
facts["files"] = sum(len(files) for folder in folders for _, _, files in os.walk(folder))
print(json.dumps(facts))
"""


@dataclass(frozen=True)
class Figures:
    """Measurements of a pilot at one moment."""

    engine: int
    """Process id of the engine. It changes when the engine is restarted."""
    resident: float
    """Resident memory of engine and supervisor, MiB (Rss)."""
    own: float
    """Private dirty memory of both, MiB. The pages of libraries do not count: they depend on the other processes
    that map them."""
    descriptors: int
    """Open descriptors of both."""
    files: int
    """Number of files that are left in sandboxes and temporary folders."""
    cpu: float
    """Processor seconds of both so far."""


def measure(lab: Lab, pod: str) -> Figures:
    """Measure the pod `pod`. Raises LabError."""
    facts = json.loads(inside(lab, pod, f"python3 -c '{_SCRIPT}'"))
    both = [facts[name] for name in ("engine", "supervisor")]
    return Figures(
        engine=facts["engine"]["pid"],
        resident=sum(one["Rss"] for one in both),
        own=sum(one["Private_Dirty"] for one in both),
        descriptors=sum(one["descriptors"] for one in both),
        files=facts["files"],
        cpu=sum(one["cpu"] for one in both),
    )
