"""Pulls that take long, fail for good, or fail for now."""

import math
import re
import time
from collections.abc import Callable, Iterator

import pytest

from lab import jobs, pilot
from lab.api import Lab
from lab.faulty import ALL, BLOBS, MANIFESTS, Fault, FaultyRegistry
from lab.jobs import BAD_NEWS, Jobs
from lab.oci import Pusher
from lab.settings import Settings
from tests.e2e.pool import MATCHED_SECONDS, Images, Pool, ads, hold_reason, result, slot_takes_a_job_of_bob, until
from tests.runner.tiers import each_day

PATIENCE_SECONDS = 75
"""K8SPILOT_PATIENCE_SECONDS of the pod: the kubelet's pauses between pulls are 10, 20 and 40 s."""

ASKED_SECONDS = 30
"""condor_starter asks twenty times, once a second, for a container that was never created."""

KILLED_SECONDS = 20
"""After this time HTCondor kills a docker client that has not ended when it was asked to."""

AVOIDED_SECONDS = 600
"""Time for which a registry is avoided (docs/reference/failures/)."""

FIRST_UPDATE_SECONDS = 3
"""STARTER_INITIAL_UPDATE_INTERVAL of the pilot (condor/configuration/template.py)."""

IDLE = 1
"""JobStatus."""

NODE = Settings.from_environment().runtime_agent
"""First word of the User-Agent in the node's requests to registries."""


@pytest.fixture(scope="module")
def pod(lab: Lab, owner: str) -> Iterator[str]:
    """A pilot pod that gives up sooner on what may pass."""
    name = f"e2e-{owner}-pulls"
    pilot.deploy(lab, name, {"K8SPILOT_PATIENCE_SECONDS": str(PATIENCE_SECONDS)})
    jobs.wait_in_pool(lab, name)
    yield name
    pilot.discard(lab, name)


@pytest.fixture
def images(pusher: Pusher, faulty: FaultyRegistry) -> Images:
    """Fresh images at the faulty registry."""
    return Images(pusher, faulty)


def _job(pool: Pool, image: str) -> Jobs:
    return pool.submit({"container_image": image, "executable": "/bin/echo", "arguments": "fine"})


def _hangs(faulty: FaultyRegistry, agent: str = NODE) -> Callable[[], object]:
    """Let `agent` wait for blobs; what waits until it does: HTCondor's pull is under way."""
    faulty.fails(Fault(BLOBS, hang=True, agent=agent))
    return lambda: until(lambda: faulty.asked(BLOBS, agent), f"{agent} asks for a blob", MATCHED_SECONDS)


def test_a_job_does_not_run_before_its_image_is_there(pool: Pool, faulty: FaultyRegistry, images: Images) -> None:
    waits = _hangs(faulty)
    image = images.fresh()
    submitted = _job(pool, image)
    waits()
    pulling = f"pulling {image.removeprefix('docker://')} since "
    until(lambda: pool.of_slot("K8SImageStatus").startswith(pulling), "the slot says what is pulled")
    submitted.look()
    at = {event.kind: event.at for event in submitted.events}
    assert "JobTerminatedEvent" not in at
    # The shadow writes an ExecuteEvent at the starter's first update, which comes while the image is still pulled.
    early = FIRST_UPDATE_SECONDS - 1  # events have whole seconds
    assert at.get("ExecuteEvent", math.inf) - at["FileTransferEvent"] >= early, at
    faulty.is_well()
    assert result(submitted).stdout == b"fine\n"
    until(lambda: pool.of_slot("K8SImageStatus") == "undefined", "the slot says no more that it is pulled")


@pytest.mark.parametrize(
    ("tool", "event", "agent"),
    [
        ("condor_rm", "JobAbortedEvent", NODE),
        pytest.param("condor_hold", "JobHeldEvent", NODE, marks=pytest.mark.nightly),
        ("condor_rm", "JobAbortedEvent", "skopeo"),
    ],
)
def test_a_job_that_is_ended_while_its_image_is_pulled_frees_the_slot(
    pool: Pool, faulty: FaultyRegistry, images: Images, tool: str, event: str, agent: str
) -> None:
    waits = _hangs(faulty, agent)
    ended = _job(pool, images.fresh())
    waits()
    ended.command(tool)
    asked = time.time()
    assert ended.wait(event, ignore=BAD_NEWS).at - asked < KILLED_SECONDS
    until(lambda: _is_free(pool), "the slot is free", MATCHED_SECONDS)
    # The kubelet does nothing else for the pod until its pull has ended, whatever the pod's image is by then.
    faulty.is_well()
    slot_takes_a_job_of_bob(pool)


def test_a_job_that_is_vacated_while_its_image_is_pulled_runs_later(
    pool: Pool, faulty: FaultyRegistry, images: Images
) -> None:
    waits = _hangs(faulty)
    vacated = _job(pool, images.fresh())
    waits()
    vacated.command("condor_vacate_job")
    until(lambda: _has_been_idle(pool, vacated), "it is back in the queue")
    faulty.is_well()
    vacated.ended(timeout=90, ignore=BAD_NEWS)
    assert vacated.files()["out.0"] == b"fine\n"
    assert ads(vacated)[0]["NumShadowStarts"] >= 2


LOST = "blob unknown" if NODE == "cri-o" else "not found"
FOR_GOOD = {
    "no manifest": (Fault(MANIFESTS, 404, ("MANIFEST_UNKNOWN", "manifest unknown")), "manifest unknown"),
    "name": (Fault(MANIFESTS, 400, ("NAME_INVALID", "invalid repository name")), "name invalid"),
    "a layer is lost": (Fault(BLOBS, 404, ("BLOB_UNKNOWN", "blob unknown to registry"), agent=NODE), LOST),
}


@pytest.mark.parametrize("case", each_day(("no manifest", "a layer is lost"), FOR_GOOD))
def test_what_the_registry_refuses_holds_the_job_with_its_words(
    pool: Pool, faulty: FaultyRegistry, images: Images, case: str
) -> None:
    fault, words = FOR_GOOD[case]
    faulty.fails(fault)
    image = images.fresh()
    reason = hold_reason(_job(pool, image))
    assert words in reason
    assert image.removeprefix("docker://") in reason


def test_a_job_whose_image_the_node_may_not_pull_goes_back_and_its_repository_alone_is_avoided(
    pool: Pool, faulty: FaultyRegistry, images: Images
) -> None:
    faulty.fails(Fault(BLOBS, 403, ("DENIED", "requested access is denied"), agent=NODE))
    submitted = _job(pool, images.fresh("e2e-denied"))
    submitted.wait("JobEvictedEvent", "ShadowExceptionEvent", timeout=MATCHED_SECONDS + 30, ignore=BAD_NEWS)
    until(lambda: f"{faulty.address}/e2e-denied" in pool.of_slot("K8SAvoidedImages"), "the slot says what it avoids")
    faulty.is_well()
    assert result(_job(pool, images.fresh())).stdout == b"fine\n"
    submitted.look()
    assert not {"JobHeldEvent", "JobTerminatedEvent"} & {event.kind for event in submitted.events}


FOR_NOW = {
    "away": None,
    "error": Fault(ALL, 500),
    "unavailable": Fault(MANIFESTS, 503, ("UNAVAILABLE", "service unavailable")),
    "rate limit": Fault(MANIFESTS, 429, ("TOOMANYREQUESTS", "rate limit"), agent=NODE),
    "cut": Fault(ALL, cut=True),
    "layers cut": Fault(BLOBS, cut=True, agent=NODE),
    "layers unavailable": Fault(BLOBS, 503, agent=NODE),
    "layers corrupt": Fault(BLOBS, corrupt=True, agent=NODE),
    "layers short": Fault(BLOBS, short=True, agent=NODE),
    "manifests short": Fault(MANIFESTS, short=True, agent=NODE),
}


def _fail(faulty: FaultyRegistry, case: str) -> None:
    if (fault := FOR_NOW[case]) is None:
        faulty.goes_away()
    else:
        faulty.fails(fault)


@pytest.mark.parametrize("case", each_day(("away", "rate limit", "layers corrupt"), FOR_NOW))
def test_a_registry_that_is_well_again_in_time_was_never_ill(
    pool: Pool, faulty: FaultyRegistry, images: Images, case: str
) -> None:
    _fail(faulty, case)
    submitted = _job(pool, images.fresh())
    _has_trouble(pool, faulty)
    faulty.is_well()
    assert result(submitted, timeout=PATIENCE_SECONDS + 15).stdout == b"fine\n"


def test_a_slow_registry_only_takes_its_time(pool: Pool, faulty: FaultyRegistry, images: Images) -> None:
    faulty.fails(Fault(BLOBS, rate=200e3), Fault(MANIFESTS, delay=2))
    submitted = _job(pool, images.fresh())
    assert result(submitted).stdout == b"fine\n"
    assert submitted.ended().at - submitted.wait("SubmitEvent").at > 5


def test_the_entrypoint_of_an_image_counts_though_its_registry_was_away_first(
    pool: Pool, faulty: FaultyRegistry, images: Images
) -> None:
    faulty.goes_away()
    submitted = _job(pool, images.fresh(Entrypoint=["/bin/echo", "wrapped"]))
    _has_trouble(pool, faulty)
    faulty.is_well()
    assert result(submitted, timeout=PATIENCE_SECONDS + 15).stdout == b"wrapped /bin/echo fine\n"


@pytest.mark.landing
def test_a_job_whose_registry_stays_away_goes_back_to_the_queue(
    pool: Pool, faulty: FaultyRegistry, images: Images
) -> None:
    faulty.goes_away()
    submitted = _job(pool, images.fresh())
    seconds = MATCHED_SECONDS + PATIENCE_SECONDS + ASKED_SECONDS
    submitted.wait("JobEvictedEvent", "ShadowExceptionEvent", timeout=seconds, ignore=BAD_NEWS)
    assert "JobHeldEvent" not in {event.kind for event in submitted.events}
    until(lambda: faulty.address in pool.of_slot("K8SAvoidedImages").split(","), "the slot says what it avoids")
    assert int(pool.of_slot("K8SAvoidUntil")) > time.time() + AVOIDED_SECONDS / 2
    slot_takes_a_job_of_bob(pool)
    faulty.comes_back()


def test_an_image_that_the_pod_has_had_runs_while_its_registry_is_away(
    pool: Pool, faulty: FaultyRegistry, images: Images
) -> None:
    image = images.fresh(Entrypoint=["/bin/echo", "wrapped"])
    assert result(_job(pool, image)).stdout == b"wrapped /bin/echo fine\n"
    faulty.goes_away()
    assert result(_job(pool, image)).stdout == b"wrapped /bin/echo fine\n"


def _has_trouble(pool: Pool, faulty: FaultyRegistry) -> None:
    """Wait until the pilot tells that the registry, which it or the kubelet asks, is not well."""
    words = re.compile(
        rf"registry of image {faulty.address}.* did not answer|Image {faulty.address}.* is not available"
    )
    until(lambda: words.search(pool.log(120)), "the pilot complains of it", MATCHED_SECONDS)


def _is_free(pool: Pool) -> bool:
    return pool.of_slot("State") == "Unclaimed"


def _has_been_idle(pool: Pool, jobs: Jobs) -> bool:
    """Whether a job that has been matched is idle, or was idle until its next match."""
    look = ["condor_q", str(jobs.cluster), "-af", f"JobStatus == {IDLE} || NumShadowStarts >= 2"]
    return pool.lab.access_point(jobs.user, look).strip() == "true"
