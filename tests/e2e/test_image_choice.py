"""Jobs that do not name an image of a registry: plain ones, and those whose image is a file."""

from collections.abc import Iterator

import pytest

from lab import jobs, pilot
from lab.api import Lab
from tests.e2e.pool import Pool, result

IMAGE_HOLD = 35
"""CONDOR_HOLD_CODE::InvalidDockerImage."""

PLAIN = {"executable": "/bin/sh", "arguments": "\"-c 'cat /etc/debian_version || echo other'\""}

FILES = [
    {"container_image": "/cvmfs/unpacked.example/debian:forky"},
    {"container_image": "image.sif", "transfer_container": "false"},
    {"+SingularityImage": '"/cvmfs/unpacked.example/debian:forky"'},
    {"+SingularityImage": '"oras://unpacked.example/debian"'},
    {"container_image": "other.sif"},
]
"""The last is sent along."""

MAPPED_SIF = {"container_image": "debian-forky.sif"}
SIF = {"other.sif": "not looked into", "debian-forky.sif": "not looked into"}


@pytest.fixture(scope="module")
def mapping(lab: Lab, owner: str) -> Iterator[str]:
    """A pod whose operator has a default image, by the job's memory, and maps images that are files."""
    name = f"e2e-{owner}-images"
    debian, busybox = (f'"docker://{lab.registry}/{image}"' for image in ("debian:forky", "busybox"))
    environment = {
        "K8SPILOT_DEFAULT_IMAGE": f"ifThenElse(TARGET.RequestMemory > 128, {debian}, {busybox})",
        "K8SPILOT_IMAGE_MAP": rf"""^/cvmfs/unpacked\.example/([^:]+(:.*)?)$ => docker://{lab.registry}/\1
([^/]*)-forky\.sif$ => docker://{lab.registry}/\1:forky""",
        "K8SPILOT_UNMAPPED_IMAGES": "leave",
    }
    pilot.deploy(lab, name, environment)
    jobs.wait_in_pool(lab, name)
    yield name
    pilot.discard(lab, name)


def _submit(pool: Pool, commands: dict[str, str]) -> jobs.Jobs:
    universe = "container" if "container_image" in commands else "vanilla"
    return pool.submit({"container_image": "", **PLAIN, "universe": universe, **commands}, files=SIF)


def test_plain_jobs_run_in_the_image_that_the_operators_expression_names(pool: Pool, mapping: str) -> None:
    mapped = pool.of_pod(mapping)
    small, large = _submit(mapped, {}), _submit(mapped, {"request_memory": "129M"})
    assert result(small).text == "other\n"
    assert result(large).text.startswith("forky")


def test_images_that_are_files_are_the_registrys_that_the_operator_maps_them_to(pool: Pool, mapping: str) -> None:
    mapped = pool.of_pod(mapping)
    for submitted in [_submit(mapped, commands) for commands in (FILES[0], FILES[2], MAPPED_SIF)]:
        assert result(submitted).text.startswith("forky")


def test_images_that_are_files_and_mapped_to_nothing_are_left_to_others_or_held(pool: Pool, mapping: str) -> None:
    left = [_submit(pool.of_pod(mapping), FILES[number]) for number in (1, 3, 4)]
    for held in [_submit(pool, commands) for commands in FILES]:
        facts = held.held().attributes
        assert facts["HoldReasonCode"] == IMAGE_HOLD
        assert "the job's image is a file or folder" in facts["HoldReason"]
        assert "set container_image = docker://... in the submit file" in facts["HoldReason"]
    assert result(_submit(pool.of_pod(mapping), {})).code == 0
    for one in left:
        one.look()
        assert [event.kind for event in one.events] == ["SubmitEvent"]


def test_a_job_that_asks_for_singularity_as_in_ospool_runs_in_its_image(pool: Pool) -> None:
    commands = {
        "+SingularityImage": f'"docker://{pool.lab.registry}/debian:forky"',
        "requirements": "TARGET.HasSingularity && TARGET.SINGULARITY_CAN_USE_REGISTRY",
    }
    assert result(_submit(pool, commands)).text.startswith("forky")


def test_a_job_never_runs_in_the_pilot_container(pool: Pool, lab: Lab, owner: str) -> None:
    # An operator's mistake that leaves jobs without a container: what remains is the last line of defence.
    name = f"e2e-{owner}-bare"
    pilot.deploy(lab, name, {"_CONDOR_USE_DEFAULT_CONTAINER": "False", "_CONDOR_START": "True"})
    try:
        jobs.wait_in_pool(lab, name)
        facts = _submit(pool.of_pod(name), {}).held().attributes
        assert "this execution point runs jobs in containers only" in facts["HoldReason"]
    finally:
        pilot.discard(lab, name)
