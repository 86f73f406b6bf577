"""Attacks by images: whatever they bring, their jobs run as the payload's user, and payload-init is the pilot's."""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import pytest

from lab import jobs, pilot
from lab.api import Lab
from lab.jobs import BAD_NEWS, Event
from lab.levels import Level
from lab.oci import BUSYBOX, Entry, OciImage, Pusher, layer
from tests.attacks.ground import BASELINE_FIRST, GROUPS, MARK, Ground, attacked, chosen
from tests.e2e.pool import hold_reason
from tests.e2e.test_odd_images import image

pytestmark = pytest.mark.timeout(600)  # the first test of a level waits for the jobs of all tricks

EVIL = b"#!/bin/sh\necho evil; id\n"
OWN_GROUPS: dict[Level, list[str]] = {"baseline": ["65534"], "restricted": ["65534", "64200"]}
STATUS = (
    "while read name value rest; do case $name in Uid:|CapEff:|CapPrm:|NoNewPrivs:) echo $name $value;; esac; done "
    "</proc/self/status"
)
ORDINARY = "Uid: 65534\nCapPrm: 0000000000000000\nCapEff: 0000000000000000\nNoNewPrivs: 1\n"
ROOT = layer(Entry("etc"), Entry("etc/passwd", 0o644, b"root:x:0:0::/:/bin/sh\nnobody:x:0:0::/:/bin/sh\n"))


@dataclass(frozen=True)
class Trick:
    """An image, and what its job may print; None where the job is held."""

    image: OciImage
    script: str = STATUS
    out: str | None = ORDINARY


TRICKS = {
    "a user that is root": Trick(image(ROOT, User="0:0")),
    "a passwd in which nobody is root": Trick(image(ROOT, User="nobody")),
    "a set-uid shell": Trick(
        image(layer(Entry("root"), Entry("root/busybox", 0o6755, BUSYBOX.read_bytes()))),
        f"exec /root/busybox sh -c '{STATUS}'",
    ),
    "its own payload-init": Trick(
        image(layer(Entry("k8spilot"), Entry("k8spilot/bin"), Entry("k8spilot/bin/payload-init", 0o755, EVIL)))
    ),
    "payload-init as a link": Trick(
        image(layer(Entry("k8spilot"), Entry("k8spilot/bin"), Entry("k8spilot/bin/payload-init", link="/bin/sh")))
    ),
    "the exchange as a link": Trick(image(layer(Entry("k8spilot", link="/etc"), Entry("etc"))), "echo fine", out=None),
    "the sandboxes as a link": Trick(
        image(layer(Entry("var"), Entry("var/lib"), Entry("var/lib/condor", link="/k8spilot"))), "echo fine", out=None
    ),
    "tmp as a link to the exchange": Trick(
        image(layer(Entry("tmp", link="/k8spilot/bin"), Entry("k8spilot"), Entry("k8spilot/bin"))),
        "echo fine",
        out=None,
    ),
    "proc as a link": Trick(image(layer(Entry("proc", link="/tmp"))), "echo fine", out=None),
    "a preload for everything": Trick(
        image(layer(Entry("etc"), Entry("etc/ld.so.preload", 0o644, b"/evil.so\n")), Env=["LD_PRELOAD=/evil.so"])
    ),
    "an environment of the pilot's": Trick(
        image(
            Env=[
                "PATH=/bin",
                "K8SPILOT_PAYLOAD_UID=0",
                "CONDOR_CONFIG=/evil",
                "DOCKER_HOST=tcp://evil",
                "_CONDOR_START=1",
            ]
        )
    ),
    "an entrypoint in place of the job": Trick(
        image(Entrypoint=["/bin/sh", "-c", "echo in its place", "k8spilot"]), STATUS, out="in its place\n"
    ),
    "a signal to stop that stops": Trick(image(StopSignal="SIGSTOP")),
    "a signal to stop that kills": Trick(image(StopSignal="SIGKILL")),
    "a working directory of the pilot's": Trick(image(WorkingDir="/k8spilot/evil"), "echo fine", out=None),
    "a working directory by way of others": Trick(image(WorkingDir="/proc/1/root"), "echo fine", out=None),
    "volumes over the sandboxes": Trick(image(Volumes={"/var/lib/condor/execute/slot": {}}), out=None),
    "volumes with two slashes": Trick(image(Volumes={"//k8spilot/bin": {}}), out=None),
    "volumes in small letters": Trick(image(volumes={"//k8spilot/bin": {}}), out=None),
    "volumes over what all see": Trick(image(Volumes={"/proc/evil": {}, "/sys": {}}), "echo fine", out=None),
    "a configuration of three megabytes": Trick(image(Labels={f"l{n}": "x" * 1000 for n in range(3_000)})),
    "a configuration of ten megabytes": Trick(image(Labels={f"l{n}": "x" * 1000 for n in range(10_000)}), out=None),
    "labels of HTCondor's": Trick(image(Labels={"org.htcondorproject": "False", "io.kubernetes.pod.name": "evil"})),
}


IN_GROUPS = "groups"
"""An image that puts its job into groups: what it prints is another thing at each level."""


@pytest.fixture(scope="module")
def ends(
    request: pytest.FixtureRequest, lab: Lab, battlefield: str, level: Level, pusher: Pusher
) -> dict[str, tuple[Event, str]]:
    """End and output of the job of each image, by the trick's name.

    The jobs are all in the queue at once, each one a job of one cluster: the slot is alice's until they are done, and
    bob's job comes then. No job writes anything.
    """
    told = chosen(request, test_an_image_gains_nothing_by.__name__, "name", level)
    tricks = {name: trick for name, trick in TRICKS.items() if name in told}
    tricks[IN_GROUPS] = Trick(image(GROUPS), "id -G")
    references = [
        "docker://" + pusher.push(f"attacks:{at}", trick.image).partition("@")[0]
        for at, trick in enumerate(tricks.values())
    ]
    with attacked(lab.at(level), battlefield) as ground:
        jobs = ground.submit(
            {
                # Twice the last one: a single word would be the name of a list (condor_submit, $CHOICE).
                "container_image": f"$CHOICE(Process, {', '.join([*references, references[-1]])})",
                "executable": "/bin/sh",
                "arguments": f"./trick.$(Process) {MARK}",
                "transfer_input_files": "trick.$(Process)",
            },
            files={f"trick.{at}": trick.script for at, trick in enumerate(tricks.values())},
            count=len(tricks),
        )
        events = [
            jobs.wait("JobHeldEvent", "JobTerminatedEvent", proc=at, ignore=BAD_NEWS, timeout=120)
            for at in range(len(tricks))
        ]
        files = jobs.files()
        ground.is_fit()
    return {name: (events[at], files.get(f"out.{at}", b"").decode()) for at, name in enumerate(tricks)}


AT_BOTH_LEVELS: Final = (
    "a user that is root",
    "a passwd in which nobody is root",
    "a set-uid shell",
    "its own payload-init",
    "the sandboxes as a link",
    "tmp as a link to the exchange",
    "a working directory of the pilot's",
    "volumes over what all see",
)
"""At `restricted` users, groups and rights of the container are others, and its root file system is read-only, so that
the runtime cannot make what an image lacks. The other tricks meet the engine's own checks, and programs that are the
same at both levels."""
NIGHTLY: Final = {("restricted", name) for name in TRICKS if name not in AT_BOTH_LEVELS}


@pytest.mark.parametrize("name", TRICKS)
def test_an_image_gains_nothing_by(ends: dict[str, tuple[Event, str]], name: str) -> None:
    (event, out), wanted = ends[name], TRICKS[name].out
    if event.kind == "JobTerminatedEvent":
        assert wanted is None or out == wanted, event.attributes
        assert out in (wanted, "fine\n")
    else:
        assert wanted is None, event.attributes["HoldReason"]
        assert "Traceback" not in event.attributes["HoldReason"]


def test_an_image_puts_its_job_into_no_groups(ends: dict[str, tuple[Event, str]], level: Level) -> None:
    event, out = ends[IN_GROUPS]
    assert event.kind == "JobTerminatedEvent", event.attributes.get("HoldReason")
    assert out.split() == OWN_GROUPS[level]


@BASELINE_FIRST  # where more groups are none of its own
def test_an_image_that_brings_groups_runs_no_job_where_kubernetes_lets_it(
    lab: Lab, level: Level, owner: str, pusher: Pusher
) -> None:
    reference = "docker://" + pusher.push("attacks:groups", image(GROUPS)).partition("@")[0]
    here, name = lab.at(level), f"attacks-{owner}-groups-{level}"
    pilot.deploy(here, name, overlay={"components": ["merged-groups"]})
    try:
        jobs.wait_in_pool(here, name)
        with ExitStack() as cleanup:
            pool = Ground(here, name, cleanup)
            reason = hold_reason(pool.shell("id -G", container_image=reference))
            brought = {"0", "101", "64200"} - {*OWN_GROUPS[level]}
            assert f"adds its jobs to other groups ({', '.join(sorted(brought, key=int))})" in reason
            pool.is_fit()
    finally:
        pilot.delete(here, name)
