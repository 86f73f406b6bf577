"""A plain HTCondor execution point on the lab's dockerd, to compare k8spilot with."""

import json
import os
import shutil
import time
from pathlib import Path
from string import Template

import yaml

from lab import dockerd
from lab.api import Lab
from lab.errors import LabError
from lab.patience import scaled
from lab.settings import HERE, PILOT_NAMESPACE, POOL_DOMAIN, POOL_NAMESPACE

FOLDER = HERE / "pool"
PATIENCE_S = scaled(60.0)
WANTED = {"+WantDockerEP": "true"}
"""Submit commands that make a job run there."""


def deploy(lab: Lab, name: str = "docker-ep", cpus: int = 4) -> None:
    """Deploy the pod `name`, in place of one that has that name; return when its slot can be matched.

    It has one partitionable slot, which says that it has `cpus` CPUs, and which has the pod's name as K8SPodName, as
    those of pilots have. Raises LabError.
    """
    found = dockerd.ensure(lab.settings, lab.progress)
    delete(lab, name)
    execute = _execute(lab, name)
    execute.mkdir(parents=True)
    values = {
        "name": name,
        "image": lab.pool_image,
        "collector": lab.pool_host,
        "pool_domain": POOL_DOMAIN,
        "cpus": str(cpus),
        "socket": str(found.socket),
        "docker": str(found.socket.parent),
        "execute": str(execute),
    }
    files = {"00-security": "use security:recommended\n", "start.sh": (FOLDER / "start.sh").read_text()}
    for number, source in (("10", "common"), ("20", "docker-ep")):
        files[f"{number}-{source}.conf"] = Template((FOLDER / f"{source}.conf").read_text()).safe_substitute(values)
    token = json.loads(lab.kubectl("get", "secret", "pool-token", "-n", PILOT_NAMESPACE, "-o", "json"))["data"]["token"]
    where = {"name": name, "namespace": POOL_NAMESPACE}
    pod = yaml.safe_load(Template((FOLDER / "docker-ep.yaml").read_text()).substitute(values))
    pod["metadata"]["labels"] |= lab.labels
    documents = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": where, "data": files},
        {"apiVersion": "v1", "kind": "Secret", "metadata": where, "data": {"token": token}},
        pod,
    ]
    _own(lab, found.socket, execute)
    lab.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(documents))
    wait(lab, name, "HasDocker")


def delete(lab: Lab, name: str = "docker-ep") -> None:
    """Remove the pod `name` and its files."""
    for kind in ("pod", "configmap", "secret"):
        lab.kubectl("delete", kind, name, "-n", POOL_NAMESPACE, "--ignore-not-found", "--wait=true")
    shutil.rmtree(_execute(lab, name), ignore_errors=True)


def _execute(lab: Lab, name: str) -> Path:
    return lab.settings.state / "docker-ep" / name


def _own(lab: Lab, socket: Path, execute: Path) -> None:
    """Let HTCondor's account in the pod use the socket and the folder, as an administrator would."""
    account = lab.access_point("alice", "getent passwd condor").split(":")
    uid, gid = int(account[2]), int(account[3])
    os.chown(socket, 0, gid)
    socket.chmod(0o660)
    os.chown(execute, uid, gid)


def wait(lab: Lab, name: str, ready: str) -> None:
    """Return when the pool has the slot of the pod `name`, and its ad fulfils `ready` (a ClassAd expression)."""
    query = ["condor_status", "-constraint", f'K8SPodName == "{name}" && {ready}', "-af", "Name"]
    deadline = time.monotonic() + PATIENCE_S
    while not lab.access_point("alice", query).strip():
        if time.monotonic() > deadline:
            log = lab.kubectl("logs", "-n", POOL_NAMESPACE, name, "--tail=3").strip()
            raise LabError(f"the slot of pod {name} is not in the pool after {PATIENCE_S:.0f} s; it says: {log}")
        time.sleep(0.3)
