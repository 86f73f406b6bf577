"""Pulls that fail for good, for a while, or for too long."""

import asyncio
from collections.abc import Mapping

import pytest

from k8spilot.cli import status
from k8spilot.condor.ads.agent_link import RemoteStartdAd
from tests.engine.client import Answer
from tests.engine.faulty import lost
from tests.engine.rings import Simulated, eventually, patched, simulated
from tests.simulator.pod import payload_image
from tests.simulator.programs import Programs

JOB = {"Labels": {"org.htcondorproject": "True"}}
REPOSITORY = "registry.test:5000/debian"
PULL = f'failed to pull and unpack image "{REPOSITORY}:forky": '
REQUEST = "unexpected status from HEAD request to http://registry.test:5000/v2/debian/manifests/forky: "

FOR_NOW = {
    "unavailable": f"{PULL}{REQUEST}503 Service Unavailable",
    "rate limit": f"{PULL}{REQUEST}429 Too Many Requests\ntoomanyrequests: rate limit",
    "refused": f"{PULL}dial tcp 10.0.0.1:5000: connect: connection refused",
    "no answer": f"rpc error: code = DeadlineExceeded desc = {PULL}net/http: timeout awaiting response headers",
    "cut": f"{PULL}short read: expected 925 bytes but got 924: unexpected EOF",
    "no space": f"{PULL}failed to copy: failed to send write: write /var/lib/x/data: no space left on device",
    "no space to unpack": f"{PULL}failed to extract layer sha256:00: write /a/b: no space left on device",
}
FOR_GOOD = {
    "not found": ("ErrImagePull", f"rpc error: code = NotFound desc = {PULL}{REPOSITORY}:forky: not found"),
    "broken": ("ErrImagePull", f"{PULL}failed to extract layer sha256:00 to overlayfs: unexpected EOF"),
}
OF_THE_SITE = {
    "denied": f"{PULL}{REQUEST}403 Forbidden\ndenied",
    "no password": f"{PULL}pull access denied: authorization failed: no basic auth credentials",
    "no such host": f'{PULL}failed to do request: Head "http://x/v2/": dial tcp: lookup registry.test: no such host',
}


async def _create(simulator: Simulated, name: str = "HTCJob1_0_slot1_PID1") -> Answer:
    body = {"Image": simulator.image("debian"), "Cmd": ["sh", "-c", "exit 3"], **JOB}
    return await simulator.ask("POST", "/containers/create", body, {"name": name})


@pytest.mark.slow
@pytest.mark.parametrize("case", FOR_NOW)
async def test_what_passes_in_time_is_no_failure(simulator: Simulated, case: str) -> None:
    simulator.cluster.kubelet.fail_pulls(REPOSITORY, FOR_NOW[case], times=2)
    assert (await simulator.shell(simulator.image("debian"), "exit 3", **JOB)).code == 3
    assert simulator.cluster.kubelet.failed_pulls == 2


@pytest.mark.parametrize("case", FOR_GOOD)
async def test_what_does_not_pass_fails_create_with_the_runtimes_words(simulator: Simulated, case: str) -> None:
    reason, words = FOR_GOOD[case]
    simulator.cluster.kubelet.fail_pulls(REPOSITORY, words, reason=reason)
    answer = await _create(simulator)
    assert answer.status == 500
    assert f"{reason}: {words}" in answer.message
    assert (await simulator.shell(simulator.image("busybox"), "exit 2", **JOB)).code == 2


async def test_what_cannot_start_fails_create_with_the_cause_first_and_without_paths_of_the_node(
    simulator: Simulated,
) -> None:
    path = "/var/lib/kubelet/pods/2d9a40a9-8769-4e48-ac1c-6c11bab503ee/volumes/kubernetes.io~empty-dir/tmp"
    words = (
        "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
        f'unable to start container process: error mounting "{path}" to rootfs at "/tmp": mount {path}: not a directory'
    )
    simulator.cluster.kubelet.fail_pulls(REPOSITORY, words, reason="RunContainerError")
    answer = await _create(simulator)
    assert answer.status == 500
    assert "cannot be run here: its container does not start: the image has something at /tmp " in answer.message
    assert "kubelet" not in answer.message
    assert (await simulator.shell(simulator.image("busybox"), "exit 2", **JOB)).code == 2


@pytest.mark.parametrize("case", OF_THE_SITE)
async def test_what_another_site_may_have_gives_the_job_back_at_once(simulator: Simulated, case: str) -> None:
    simulator.cluster.kubelet.fail_pulls(REPOSITORY, OF_THE_SITE[case])
    assert (await _create(simulator)).status == 201
    assert OF_THE_SITE[case] in await lost(simulator, "HTCJob1_0_slot1_PID1")
    found = await asyncio.to_thread(status.query, str(simulator.cluster.settings.socket))
    assert found["last_fault"]["what"] == "ImageLeft"
    await simulator.remove("HTCJob1_0_slot1_PID1")
    assert (await simulator.shell(simulator.image("busybox"), "exit 2", **JOB)).code == 2


@pytest.mark.slow
async def test_an_image_that_would_end_the_nodes_runtime_is_not_bound(simulator: Simulated) -> None:
    """CRI-O ends at an entry of an image's environment that has no value; others take it."""
    image = simulator.cluster.images.add("alone:latest", environment={"ALONE": None}).reference
    assert (await simulator.shell(image, "exit 3", **JOB)).code == 3
    simulator.cluster.kubelet.runtime = "cri-o"
    assert (await simulator.shell(simulator.image("busybox"), "exit 2", **JOB)).code == 2
    server = simulator.cluster.server
    await server.until(lambda pod: "busybox" not in payload_image(pod))
    before = server.requests["patch"]
    body = {"Image": image, "Cmd": ["sh", "-c", "exit 3"], **JOB}
    assert (await simulator.ask("POST", "/containers/create", body, {"name": "HTCJob1_0_slot1_PID1"})).status == 201
    assert "the entry 'ALONE' without a value, at which CRI-O ends" in await lost(simulator, "HTCJob1_0_slot1_PID1")
    assert server.requests["patch"] == before
    await simulator.remove("HTCJob1_0_slot1_PID1")
    assert (await simulator.shell(simulator.image("busybox"), "exit 2", **JOB)).code == 2


async def test_an_operator_can_have_such_jobs_held(programs: Programs) -> None:
    async with simulated(programs, refused_images="hold") as simulator:
        simulator.cluster.kubelet.fail_pulls(REPOSITORY, OF_THE_SITE["denied"])
        answer = await _create(simulator)
        assert (answer.status, "403 Forbidden" in answer.message) == (500, True)


async def test_an_image_that_the_site_does_not_allow_gives_the_job_back_or_holds_it(programs: Programs) -> None:
    """START keeps such jobs away; one that gets past it is not run."""
    async with simulated(programs, allowed_images=("other.example",)) as simulator:
        assert (await _create(simulator)).status == 201
        assert "this site allows images of other.example" in await lost(simulator, "HTCJob1_0_slot1_PID1")
        assert not await patched(simulator)
    async with simulated(programs, allowed_images=("other.example",), refused_images="hold") as simulator:
        answer = await _create(simulator)
        assert (answer.status, "this site allows images of other.example" in answer.message) == (500, True)


async def test_a_registry_whose_name_the_pods_dns_does_not_know_gives_the_job_back_at_once(
    simulator: Simulated,
) -> None:
    simulator.cluster.images.fail("pinging container registry registry.test:5000: dial tcp: lookup x: no such host")
    async with asyncio.timeout(20):
        assert (await _create(simulator)).status == 201
    assert "no such host" in await lost(simulator, "HTCJob1_0_slot1_PID1")


async def test_what_turns_out_to_be_for_good_is_told_at_once(simulator: Simulated) -> None:
    kubelet = simulator.cluster.kubelet
    kubelet.fail_pulls(REPOSITORY, FOR_NOW["unavailable"], times=1)
    kubelet.fail_pulls(f"{REPOSITORY}:", FOR_GOOD["not found"][1])
    assert "forky: not found" in (await _create(simulator)).message
    assert kubelet.failed_pulls >= 2


async def test_what_does_not_pass_in_time_gives_the_job_back(programs: Programs) -> None:
    async with simulated(programs, patience_seconds=0.8) as simulator:
        simulator.cluster.kubelet.fail_pulls(REPOSITORY, FOR_NOW["refused"])
        name = "HTCJob1_0_slot1_PID1"
        assert (await _create(simulator, name)).status == 201
        # HTCondor takes a container that cannot be inspected for lost, and its job back into the queue.
        inspected = await simulator.ask("GET", f"/containers/{name}/json")
        assert inspected.status == 500
        assert "connection refused" in inspected.message
        await simulator.remove(name)
        assert (await simulator.shell(simulator.image("busybox"), "exit 2", **JOB)).code == 2


@pytest.mark.parametrize(
    ("words", "avoided"),
    [
        (FOR_NOW["no space"], "registry.test:5000/debian:forky"),
        (FOR_NOW["rate limit"], "registry.test:5000"),
    ],
)
async def test_an_image_that_the_node_cannot_hold_keeps_no_other_image_of_its_registry_away(
    programs: Programs, monkeypatch: pytest.MonkeyPatch, words: str, avoided: str
) -> None:
    ad: dict[str, object] = {}
    told = asyncio.Event()

    async def keep(_: RemoteStartdAd, attributes: Mapping[str, object]) -> bool:
        ad.update(attributes)
        if "K8SAvoidedImages" in attributes:
            told.set()
        return True

    monkeypatch.setattr(RemoteStartdAd, "set", keep)
    async with simulated(programs, patience_seconds=0.5) as simulator:
        simulator.cluster.kubelet.fail_pulls(REPOSITORY, words)
        assert (await _create(simulator)).status == 201
        async with asyncio.timeout(10):
            await told.wait()
    assert ad["K8SAvoidedImages"] == avoided


async def test_somebody_by_hand_is_told_that_it_may_pass(programs: Programs) -> None:
    async with simulated(programs, patience_seconds=0.5) as simulator:
        simulator.cluster.kubelet.fail_pulls(REPOSITORY, FOR_NOW["no space"])
        answer = await simulator.ask(
            "POST", "/containers/create", {"Image": simulator.image("debian"), "Cmd": ["true"]}
        )
        assert answer.status == 500
        assert "no space left on device" in answer.message


async def test_a_pull_that_failed_is_not_tried_once_more_by_create(programs: Programs) -> None:
    async with simulated(programs, patience_seconds=0.5) as simulator:
        kubelet = simulator.cluster.kubelet
        kubelet.fail_pulls(REPOSITORY, FOR_GOOD["not found"][1])
        await simulator.pull(simulator.image("debian"))
        asked, failed = len(simulator.cluster.images.asked), kubelet.failed_pulls
        assert "forky: not found" in (await _create(simulator)).message
        assert len(simulator.cluster.images.asked) == asked
        assert kubelet.failed_pulls - failed <= 1  # the kubelet's own next try
        # But a new pull is a new try.
        kubelet.fail_pulls(REPOSITORY, "", times=0)
        assert (await simulator.shell(simulator.image("debian"), "exit 3", **JOB)).code == 3


async def test_the_entrypoint_counts_though_the_registry_was_away_at_first(simulator: Simulated) -> None:
    images = simulator.cluster.images

    async def asked() -> bool:
        return "raw registry.test:5000/wrapped:1" in images.asked

    images.add("wrapped:1", entrypoint=["sh", "-c", "exit 9"])
    images.set_reachable(reachable=False)
    job = asyncio.ensure_future(simulator.run("registry.test:5000/wrapped:1", "true", **JOB))
    await eventually(asked)
    images.set_reachable(reachable=True)
    assert (await job).code == 9
