"""Attacks between jobs that run in one pod at the same time: bob's job neither notices nor suffers, and ends right."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lab import jobs, pilot
from lab.api import Lab
from lab.jobs import Jobs
from lab.levels import Level
from tests.attacks.arsenal import AGAINST_NEIGHBOURS
from tests.attacks.ground import ARSENAL, BASELINE_FIRST, Attack, Ground, packed
from tests.e2e.pool import MATCHED_SECONDS, ads, result, until

NEIGHBOUR = (Path(__file__).parent / "neighbour.py").read_text()
PROGRAM = "of-bob.py"
RESOURCES = {
    "limits": {"cpu": "2", "memory": "768Mi", "ephemeral-storage": "2600Mi"},
    "requests": {"cpu": "200m", "memory": "768Mi", "ephemeral-storage": "200Mi"},
}
SECONDS = 90.0

EVERY_SANDBOX = "/var/lib/condor/execute/payload-[12]/dir_*/scratch/of-bob"
LINKS = """
mkdir stolen; ln -s SECRET stolen/file; ln -s SECRET taken; ln -s $(dirname SECRET) folder
ln -sf SECRET _condor_stdout; ln -sf SECRET _condor_stderr
"""
"""As the starter may follow them when it transfers the outputs. SECRET is the path of the neighbour's file."""

NOISE = {
    "killing all that it can": Attack("sleep 1; kill -KILL -1; sleep 60"),
    "more memory than it has": Attack("head -c 900000000 /dev/zero | tail -c 900000000 | wc -c; exec sleep 60"),
    "all of the processor": Attack(
        "for one in 1 2 3 4 5 6 7 8; do while :; do :; done & done; sleep 12; kill -KILL -1"
    ),
    "all of the disk": Attack(
        "head -c 2000000000 /dev/zero >big & head -c 2000000000 /dev/zero >/tmp/big; exec sleep 60"
    ),
    "all of the shared memory": Attack("head -c 900000000 /dev/zero >/dev/shm/big; exec sleep 5"),
    "files without end": Attack(
        "for one in $(seq 1 40); do mkdir /tmp/$one; (cd /tmp/$one; seq 1 2000 | xargs touch); done; exec sleep 1"
    ),
    "objects of System V without end": Attack(
        "python3 -c 'import ctypes; c = ctypes.CDLL(None); [c.shmget(0, 4096, 0o1600) for _ in range(3000)]; "
        "[c.semget(0, 1, 0o1600) for _ in range(20000)]; [c.msgget(0, 0o1600) for _ in range(20000)]'"
    ),
    "stopping its own container": Attack("kill -STOP $PPID; kill -STOP 1; sleep 3; kill -KILL -1"),
    "links in its outputs": Attack(LINKS, outputs=("stolen", "taken", "folder")),
}


@pytest.fixture(scope="module")
def street(lab: Lab, owner: str, level: Level) -> Iterator[Ground]:
    """A pilot with two payload containers, of which one slot is made."""
    here, name = lab.at(level), f"e2e-{owner}-street"
    change = pilot.change({"op": "replace", "path": "/spec/initContainers/1/resources", "value": RESOURCES})
    known = {"K8SPILOT_VACATE_SECONDS": "10", "K8SPILOT_IDLE_AFTER_SECONDS": "1"}
    pilot.deploy(here, name, known, {"patches": [change]}, slots=2)
    jobs.wait_in_pool(here, name)
    with ExitStack() as cleanup:
        yield Ground(here, name, cleanup)
    pilot.discard(here, name)


def beside(street: Ground) -> Jobs:
    """Bob's job, which owns one of everything by now."""
    bob = street.shell(
        f"exec python3 ./{PROGRAM}", user="bob", files={PROGRAM: NEIGHBOUR}, transfer_input_files=PROGRAM,
        request_memory="256M", request_disk="500M", **street.python,  # type: ignore[arg-type]
    )  # fmt: skip
    bob.wait("ExecuteEvent", timeout=MATCHED_SECONDS)
    until(lambda: street.inside(f"ls -d {EVERY_SANDBOX}/secret 2>/dev/null; true"), "bob's job is ready")
    return bob


def ends_right(street: Ground, bob: Jobs) -> None:
    """Bob's job is told to stop, and was disturbed by nothing."""
    street.inside(f"for one in {EVERY_SANDBOX}; do touch $one/stop; done")
    done = result(bob)
    assert (done.code, done.stderr) == (7, b""), done
    assert int(ads(bob)[0]["NumJobStarts"]) == 1


@pytest.fixture(scope="module")
def gained(street: Ground) -> dict[str, list[str]]:
    """Gains of each attack, by its name: one job of alice's makes all attacks beside bob's job."""
    before = street.facts().lives
    bob = beside(street)
    alice = street.alice(
        f"exec python3 ./{ARSENAL} {' '.join(AGAINST_NEIGHBOURS)}", request_memory="256M", request_disk="500M"
    )
    done = result(alice, timeout=SECONDS)
    ends_right(street, bob)
    assert street.facts().lives == before
    assert done.code == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", AGAINST_NEIGHBOURS)
def test_a_job_gains_nothing_of_its_neighbour_by(gained: dict[str, list[str]], name: str) -> None:
    assert gained[name] == []


@pytest.mark.landing
@BASELINE_FIRST  # the kernel and the kubelet are the same
@pytest.mark.timeout(900)
def test_a_neighbour_computes_on_whatever_noise_a_job_makes(street: Ground) -> None:
    before, bob = street.facts().lives, beside(street)
    secret = street.inside(f"ls {EVERY_SANDBOX}/secret").strip()
    for name, attack in NOISE.items():
        outputs = {"transfer_output_files": ", ".join(attack.outputs) or '""'}
        script = attack.script.replace("SECRET", secret)
        alice = street.shell(
            script, files={ARSENAL: packed()}, request_memory="256M", request_disk="500M",
            **{**street.python, **outputs, **attack.commands},  # type: ignore[arg-type]
        )  # fmt: skip
        alice.wait("ExecuteEvent", timeout=MATCHED_SECONDS)
        event = alice.wait(
            "JobTerminatedEvent", "JobHeldEvent", "JobEvictedEvent", timeout=SECONDS, ignore=jobs.BAD_NEWS
        )
        files = alice.files()
        alice.remove()
        stolen = [path for path, content in files.items() if content == b"of-bob"]
        assert not stolen, (name, event, stolen)
        bob.look()
        assert not [one for one in bob.events if one.kind in jobs.BAD_NEWS], (name, bob.events[-1])
    ends_right(street, bob)
    assert street.facts().lives == before, "engine or HTCondor have been started again"
    street.is_fit()
