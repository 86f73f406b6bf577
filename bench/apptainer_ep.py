"""The contestant nested apptainer: HTCondor and apptainer in one privileged pod, as OSPool's operators run it."""

import json
from pathlib import Path
from string import Template

import yaml

from lab import docker_ep
from lab.api import Lab
from lab.settings import HERE, PILOT_NAMESPACE, POOL_DOMAIN, POOL_NAMESPACE

FOLDER = Path(__file__).with_name("apptainer")
WANTED = {"+WantApptainerEP": "true"}
"""Submit commands that make a job run there."""


def deploy(lab: Lab, name: str, cpus: int = 4) -> None:
    """Deploy the pod `name`, in place of one that has that name; return when its slot can be matched.

    It has one partitionable slot, which says that it has `cpus` CPUs, and which has the pod's name as K8SPodName, as
    those of pilots have. Raises LabError.
    """
    image = lab.push_image("bench-apptainer", (FOLDER / "Dockerfile").read_text())
    delete(lab, name)
    values = {"name": name, "image": image, "collector": lab.pool_host, "pool_domain": POOL_DOMAIN, "cpus": str(cpus)}
    pool = HERE / "pool"
    files = {"00-security": "use security:recommended\n", "start.sh": (pool / "start.sh").read_text()}
    for target, source in (("10-common.conf", pool / "common.conf"), ("20-ep.conf", FOLDER / "ep.conf")):
        files[target] = Template(source.read_text()).safe_substitute(values)
    token = json.loads(lab.kubectl("get", "secret", "pool-token", "-n", PILOT_NAMESPACE, "-o", "json"))["data"]["token"]
    where = {"name": name, "namespace": POOL_NAMESPACE}
    documents = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": where, "data": files},
        {"apiVersion": "v1", "kind": "Secret", "metadata": where, "data": {"token": token}},
        yaml.safe_load(Template((FOLDER / "pod.yaml").read_text()).substitute(values)),
    ]
    lab.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(documents))
    docker_ep.wait(lab, name, "HasSingularity")


def delete(lab: Lab, name: str) -> None:
    """Remove the pod `name` and its objects."""
    for kind in ("pod", "configmap", "secret"):
        lab.kubectl("delete", kind, name, "-n", POOL_NAMESPACE, "--ignore-not-found", "--wait=true")
