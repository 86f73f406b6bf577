"""Attacks by images: whatever they bring, their jobs run as the payload's user, and payload-init is the pilot's."""

from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from lab import jobs, pilot
from lab.api import Lab
from lab.jobs import BAD_NEWS
from lab.levels import Level
from lab.oci import BUSYBOX, Entry, OciImage, Pusher, layer
from tests.attacks.ground import MARK, Ground
from tests.e2e.pool import hold_reason, result
from tests.e2e.test_odd_images import image

EVIL = b"#!/bin/sh\necho evil; id\n"
OWN_GROUPS: dict[Level, list[str]] = {"baseline": ["65534"], "restricted": ["65534", "64200"]}
STATUS = (
    "while read name value rest; do case $name in Uid:|CapEff:|CapPrm:|NoNewPrivs:) echo $name $value;; esac; done "
    "</proc/self/status"
)
ORDINARY = "Uid: 65534\nCapPrm: 0000000000000000\nCapEff: 0000000000000000\nNoNewPrivs: 1\n"
ROOT = layer(Entry("etc"), Entry("etc/passwd", 0o644, b"root:x:0:0::/:/bin/sh\nnobody:x:0:0::/:/bin/sh\n"))
GROUPS = layer(
    Entry("etc"),
    Entry("etc/passwd", 0o644, b"nobody:x:65534:65534::/:/bin/sh\n"),
    Entry("etc/group", 0o644, b"condor:x:101:nobody\nroot:x:0:nobody\nsandboxes:x:64200:nobody\n"),
)
"""Those of HTCondor, of the Docker socket and of the sandboxes (components/restricted)."""


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


@pytest.mark.parametrize("name", TRICKS)
def test_an_image_gains_nothing_by(ground: Ground, pusher: Pusher, name: str) -> None:
    trick = TRICKS[name]
    reference = pusher.push(f"attacks:{list(TRICKS).index(name)}", trick.image).partition("@")[0]
    quoted = trick.script.replace("'", "''").replace('"', '""')
    submitted = ground.submit(
        {"container_image": f"docker://{reference}", "executable": "/bin/sh", "arguments": f"\"-c '{quoted}' {MARK}\""}
    )
    event = submitted.wait("JobHeldEvent", "JobTerminatedEvent", ignore=BAD_NEWS, timeout=120)
    if event.kind == "JobTerminatedEvent":
        out = submitted.files()["out.0"].decode()
        assert trick.out is None or out == trick.out, (event.attributes, submitted.files()["err.0"])
        assert out in (trick.out, "fine\n")
    else:
        assert trick.out is None, event.attributes["HoldReason"]
        assert "Traceback" not in event.attributes["HoldReason"]
    ground.is_fit()


def test_an_image_puts_its_job_into_no_groups(ground: Ground, pusher: Pusher, level: Level) -> None:
    reference = "docker://" + pusher.push("attacks:groups", image(GROUPS)).partition("@")[0]
    assert result(ground.shell("id -G", container_image=reference)).text.split() == OWN_GROUPS[level]
    ground.is_fit()


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
            assert f"puts its jobs into groups that are not theirs ({', '.join(sorted(brought, key=int))})" in reason
            pool.is_fit()
    finally:
        pilot.delete(here, name)
