"""The pilot's secrets are in the pilot container, and nowhere else: with all of them given, and all of them used."""

import base64
import json
import re
import shlex
from collections.abc import Iterator

import pytest

from lab import jobs, pilot
from lab.api import Lab
from lab.levels import Level
from lab.oci import OciImage, Pusher, shell
from lab.registries import PrivateRegistry, private_registry
from lab.settings import PILOT_NAMESPACE
from tests.e2e.pool import Pool, hold_reason, result, runs, until

IMAGE = "private/image:1"
FILES = {
    "engine": "/var/run/secrets/kubernetes.io/serviceaccount/token /etc/k8spilot/pull-secret/.docker*",
    "HTCondor": "/etc/condor/tokens-orig.d/*",
}
"""By who needs them: a container each where nobody is root."""


@pytest.fixture(scope="module")
def private(lab: Lab) -> Iterator[PrivateRegistry]:
    """A registry that wants a password."""
    with private_registry(lab) as registry:
        Pusher(registry.address, registry.user, registry.password).push(IMAGE, OciImage([shell()]))
        yield registry


@pytest.fixture(scope="module")
def talkative(lab: Lab, owner: str, level: Level, private: PrivateRegistry) -> Iterator[str]:
    """A pilot that says all that it can, with a pull secret and a pool token, the latter in its environment, too."""
    here, name = lab.at(level), f"attacks-{owner}-{level}-secrets"
    secret = {
        "name": "pull-secret",
        "namespace": PILOT_NAMESPACE,
        "type": "kubernetes.io/dockerconfigjson",
        "literals": [f".dockerconfigjson={private.docker_config()}"],
    }
    overlay = {"components": ["pull-secret"], "secretGenerator": [secret]}
    words = here.kubectl("get", "secret", "pool-token", "-n", here.namespace, "-o", "json")
    token = base64.b64decode(next(iter(json.loads(words)["data"].values()))).decode().strip()
    # To HTCondor's container alone, which is the engine's as well but where nobody is root.
    given = {"op": "add", "path": "/spec/containers/0/env/-", "value": {"name": "TOKEN", "value": token}}
    pilot.deploy(here, name, {"K8SPILOT_LOG_LEVEL": "DEBUG"}, {**overlay, "patches": [pilot.change(given)]})
    jobs.wait_in_pool(here, name)
    yield name
    made = pilot.volumes(here, name)["pull-secret"]["secret"]["secretName"]
    pilot.delete(here, name)
    here.kubectl("delete", "secret", made, "-n", here.namespace)


def _secrets(here: Pool, private: PrivateRegistry) -> list[str]:
    """Parts of them that nothing else has."""
    text = here.beside_the_engine(f"awk 1 {FILES['engine']}") + here.inside(f"awk 1 {FILES['HTCondor']}")
    signatures = re.findall(r"eyJ[\w-]+\.[\w-]+\.([\w-]{20,})", text)
    both = base64.b64encode(f"{private.user}:{private.password}".encode()).decode()
    assert len(signatures) == 2, "API token and pool token"
    assert both in text or private.password in text
    return [*signatures, both, private.password]


LOOK = """
for folder in /proc/[0-9]*; do
    tr '\\0' '\\n' <$folder/cmdline 2>/dev/null; tr '\\0' '\\n' <$folder/environ 2>/dev/null
    cat $folder/comm $folder/maps $folder/mountinfo 2>/dev/null
done
exec sleep 605
"""


def test_no_secret_is_to_be_seen_outside_of_the_pilot(ground: Pool, talkative: str, private: PrivateRegistry) -> None:
    here, lab = ground.of_pod(talkative), ground.lab
    wanted = _secrets(here, private)
    image = f"docker://{private.address}/{IMAGE}"
    done = here.submit({"container_image": image, "executable": "/bin/echo", "arguments": "let in"})
    assert result(done).stdout == b"let in\n"
    refused = here.submit({"container_image": f"docker://{private.address}/private/none:1"})
    reason = hold_reason(refused)
    looking = here.shell(LOOK)
    looking.wait("ExecuteEvent")
    runs(here, "sleep 605")
    until(lambda: "sleep 605" in "".join(here.processes()), "it has looked")
    selector = f"involvedObject.name={talkative}"
    seen = {
        "hold reason": reason,
        "logs": "".join(
            lab.kubectl("logs", "-n", lab.namespace, talkative, "-c", one) for one in (*lab.containers, "payload")
        ),
        "events": lab.kubectl("get", "events", "-n", lab.namespace, "--field-selector", selector, "-o", "json"),
        "status": here.inside("k8spilot status --json; k8spilot check --json; true"),
        "status of the engine's": here.beside_the_engine("k8spilot status --json; k8spilot check --json; true"),
        "HTCondor's logs": here.inside("find /var/log/condor -type f -exec cat {} +"),
        "metrics": here.inside("python3 -c " + shlex.quote(METRICS)),
        "slot": lab.access_point("alice", ["condor_status", "-long", "-constraint", f'K8SPodName == "{talkative}"']),
        "docker": here.inside("docker ps -a; docker inspect $(docker ps -aq); docker info"),
        "command lines": here.inside("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"),
    }
    looking.command("condor_rm")
    looking.wait("JobAbortedEvent", ignore=frozenset({"JobEvictedEvent", "JobAbortedEvent"}))
    files = looking.files()
    assert len(seen["logs"]) > 2000
    assert "condor_startd" in seen["command lines"]
    found = {place: [one[:4] for one in wanted if one in words] for place, words in seen.items()}
    assert {place: what for place, what in found.items() if what} == {}
    assert not [name for name, data in files.items() for one in wanted if one.encode() in data]


METRICS = (
    "import os, urllib.request as r, socket as s\n"
    "o = s.gethostbyname(s.gethostname())\n"
    "print(r.urlopen(f'http://{o}:9464/metrics').read().decode())"
)

LIMITS = """
for folder in /proc/[0-9]*; do
    [ "$(cat $folder/cgroup 2>/dev/null)" = "$(cat /proc/self/cgroup)" ] || continue
    grep -q '^State:.Z' $folder/status || echo "$(cat $folder/comm) $(grep 'core file' $folder/limits)"
done 2>/dev/null
"""


def test_no_process_of_the_pilots_leaves_a_core(ground: Pool, talkative: str) -> None:
    here = ground.of_pod(talkative)
    words = {*here.inside(LIMITS).splitlines(), *here.beside_the_engine(LIMITS).splitlines()}
    limits = {(line.split()[0], *line.split()[-3:-1]) for line in words if len(line.split()) > 3}
    pilots = {one for one in limits if one[0].startswith(("python", "k8spilot", "condor_"))}
    assert {"condor_master", "condor_startd"} <= {name for name, *_ in pilots}
    assert {tuple(limit) for _, *limit in pilots} == {("0", "0")}, pilots
    here.beside_the_engine("pkill -SEGV -f 'k8spilot[.]engine'; true")
    until(lambda: "fit" in here.inside("k8spilot status 2>&1; true"), "the next engine is fit", 60)
    for place in (here.inside, here.beside_the_engine):
        assert place(CORES) == ""


CORES = "find / -xdev -mmin -5 -name 'core*' -size +100k -not -path '/proc/*' 2>/dev/null; true"


def test_the_engines_environment_has_no_token(ground: Pool, talkative: str) -> None:
    """Even root's: it has been put where HTCondor looks for it, and an engine needs none."""
    script = "for p in /proc/[0-9]*; do tr '\\0' '\\n' 2>/dev/null <$p/environ | grep -q '^TOKEN=' && cat $p/comm; done"
    holders = ground.of_pod(talkative).beside_the_engine(f"{script}; true").split()
    assert [one for one in holders if one not in ("sh", "grep", "tr", "cat")] == []
