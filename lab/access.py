"""Run commands on the access point: in its container's namespaces on the lab's own node, otherwise by kubectl exec.

The namespaces are used because kubectl needs the API server, the kubelet and the container runtime, and tests look at
jobs while one of these is stopped.
"""

from pathlib import Path

from lab import node
from lab.errors import LabError
from lab.settings import ACCESS_POINT, CGROUP, POOL_NAMESPACE, Settings

_SCHEDD = "condor_schedd"
_START = 19
"""Index of a process's start time among the fields that follow the name in /proc/<pid>/stat (proc(5), field 22)."""
_NAMESPACES = ("--mount", "--uts", "--ipc", "--net")


def argv(settings: Settings, user: str, script: str) -> list[str]:
    """Return the command line that runs a shell script as `user` in his home. Raises LabError."""
    if settings.kubeconfig is not None:
        kubectl = [str(part) for part in node.kubectl(settings)]
        return [*kubectl, "exec", "-i", "-n", POOL_NAMESPACE, ACCESS_POINT, "--", "su", "-", user, "-c", script]
    inside = ["nsenter", f"--target={_access_point()}", *_NAMESPACES]
    person = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
    facts = {"HOME": f"/home/{user}", "USER": user, "LOGNAME": user, "SHELL": "/bin/bash", "LANG": "C.UTF-8"}
    environment = ["env", "-i", *(f"{name}={value}" for name, value in facts.items())]
    return [*inside, *person, *environment, "/bin/bash", "-lc", f'cd "$HOME" && {script}']


def _access_point() -> int:
    """Return the process id of the schedd: the oldest of that name, since its short-lived children have it, too."""
    found: list[tuple[int, int]] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "comm").read_text().strip() == _SCHEDD and f"/{CGROUP}/" in (process / "cgroup").read_text():
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                found.append((int(fields[_START]), int(process.name)))
        except OSError:  # it has ended
            continue
    if not found:
        raise LabError("no schedd runs on this machine: bring the lab up")
    return min(found)[1]
