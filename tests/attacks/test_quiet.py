"""Attacks that take what is not the job's, or change what it is not to change: all in one job, and bob's after it."""

import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lab.api import Lab
from lab.levels import Level
from lab.pod_processes import uid_of
from tests.attacks.arsenal import ATTACKS
from tests.attacks.arsenal.network import OTHERS
from tests.attacks.ground import ARSENAL, Ground, attacked, packed
from tests.e2e.pool import MATCHED_SECONDS, result, runs


@pytest.fixture(scope="module")
def gained(lab: Lab, battlefield: str, level: Level) -> dict[str, list[str]]:
    """Gains of each attack, by its name: one job makes all attacks, and bob's job comes after it."""
    with attacked(lab.at(level), battlefield) as ground:
        address = ground.inside("echo https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT").strip()
        script = f"ATTACK_API={address} ATTACK_LEVEL={level} exec python3 ./{ARSENAL} {' '.join(ATTACKS)}"
        commands: dict[str, str] = {"+WantIOProxy": "true"}
        jobs = ground.alice(script, **commands)  # type: ignore[arg-type]
        jobs.wait("ExecuteEvent", timeout=MATCHED_SECONDS)
        runs(ground, ARSENAL)
        with _somebody_listens(ground):  # from now on: what is of the jobs' account is ended before a job's files come
            done = result(jobs, timeout=240)
        assert done.code == 0, done.stderr
        found: dict[str, list[str]] = json.loads(done.stdout)
        return found


@contextmanager
def _somebody_listens(ground: Ground) -> Iterator[None]:
    """In the pilot container, on abstract sockets of each kind: as root and as the jobs' account, where it is root."""
    begun = ground.inside(f"exec python3 - {OTHERS} <<'END'\n{LISTEN}\nEND").split()
    try:
        yield
    finally:
        ground.inside(f"kill -KILL {' '.join(begun)} 2>/dev/null; true")


LISTEN = """
import os, socket, sys, time
for uid in (0, 65534) if os.getuid() == 0 else (os.getuid(),):
    if child := os.fork():
        print(child)
        continue
    os.setsid()
    for end in range(3):
        os.dup2(os.open("/dev/null", os.O_RDWR), end)
    if os.getuid() != uid:
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    held = []
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
        held.append(socket.socket(socket.AF_UNIX, kind))
        held[-1].set_inheritable(True)
        held[-1].bind(f"\\0{sys.argv[1]}{kind.name}/{uid}")
        if kind is not socket.SOCK_DGRAM:
            held[-1].listen()
    os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(280)", sys.argv[1]])
"""


@pytest.mark.cluster
@pytest.mark.parametrize("name", ATTACKS)
def test_a_job_gains_nothing_by(gained: dict[str, list[str]], name: str) -> None:
    assert gained[name] == []


@pytest.mark.usefixtures("gained")
def test_after_all_of_them_the_next_user_finds_nothing(ground: Ground) -> None:
    ground.is_fit()


@pytest.mark.usefixtures("gained")
def test_the_kubelets_own_files_of_the_pod_do_not_grow(ground: Ground) -> None:
    """On the node: all but the volumes. The kubelet keeps a termination log of each container."""
    folder = ground.lab.settings.state / "kubelet/pods" / uid_of(ground.lab, ground.pod)
    assert [*folder.glob("containers/payload/*")]
    parts = [path for part in ("containers", "etc-hosts") for path in (folder / part, *(folder / part).rglob("*"))]
    assert sum(path.stat().st_size for path in parts) < 2**21


def test_the_same_attacks_succeed_where_there_is_no_defence(ground: Ground) -> None:
    """As HTCondor in the pilot container: else what they do not gain in a job would show nothing."""
    names = ("docker_socket", "secrets", "htcondors_levels")
    folder = "/tmp/control"
    script = f"mkdir {folder}; cd {folder}; base64 -d >{ARSENAL} <<'END'\n{b64encode(packed()).decode()}\nEND\n"
    script += f"_CONDOR_SCRATCH_DIR={folder} python3 {ARSENAL} {' '.join(names)}; rm -r {folder}"
    found = json.loads(ground.inside(script))
    assert {f"/run/k8spilot/{name}docker.sock" for name in ("", "htcondor-")} <= set(found["docker_socket"])
    has_the_api = ground.lab.level == "baseline"
    assert any("serviceaccount" in one for one in found["secrets"]) == has_the_api, found
    assert [one for one in found["secrets"] if "/etc/condor/" in one], found
    assert [one for one in found["htcondors_levels"] if one.startswith("ADMINISTRATOR ")], found
