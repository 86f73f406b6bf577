"""Images of a registry that wants a password: with the pull-secret component, without it, with a user's own."""

from collections.abc import Iterator
from typing import Any

import pytest

from lab import jobs, pilot
from lab.api import Lab
from lab.oci import OciImage, Pusher, shell
from lab.registries import PrivateRegistry, private_registry
from lab.settings import PILOT_NAMESPACE
from tests.e2e.pool import Pool, hold_reason, result, slot_takes_a_job_of_bob

IMAGE = "private/image:1"
SECRET = "pull-secret"  # noqa: S105


@pytest.fixture(scope="module")
def private(lab: Lab) -> Iterator[PrivateRegistry]:
    """The registry, with one image."""
    with private_registry(lab) as registry:
        Pusher(registry.address, registry.user, registry.password).push(IMAGE, OciImage([shell()]))
        yield registry


def _overlay(credentials: str) -> dict[str, Any]:
    """As an operator writes it; kustomize gives the Secret a name of its own, wherever it is mentioned."""
    return {
        "components": ["pull-secret"],
        "secretGenerator": [
            {
                "name": SECRET,
                "namespace": PILOT_NAMESPACE,
                "type": "kubernetes.io/dockerconfigjson",
                "literals": [f".dockerconfigjson={credentials}"],
            }
        ],
    }


@pytest.fixture(scope="module")
def admitted(lab: Lab, owner: str, private: PrivateRegistry) -> Iterator[str]:
    """The name of a pilot pod with the registry's password."""
    name = f"e2e-{owner}-private"
    pilot.deploy(lab, name, overlay=_overlay(private.docker_config()))
    jobs.wait_in_pool(lab, name)
    yield name
    spec = pilot.volumes(lab, name)
    pilot.delete(lab, name)
    lab.kubectl("delete", "secret", spec[SECRET]["secret"]["secretName"], "-n", PILOT_NAMESPACE)


@pytest.fixture(scope="module")
def stranger(lab: Lab, owner: str) -> Iterator[str]:
    """The name of a pilot pod without the password, whose operator wants to see what its jobs lack."""
    name = f"e2e-{owner}-stranger"
    pilot.deploy(lab, name, {"K8SPILOT_REFUSED_IMAGES": "hold"})
    jobs.wait_in_pool(lab, name)
    yield name
    pilot.discard(lab, name)


def _commands(private: PrivateRegistry) -> dict[str, str]:
    image = f"docker://{private.address}/{IMAGE}"
    return {"container_image": image, "executable": "/bin/echo", "arguments": "let in"}


def test_the_pull_secret_lets_a_pilots_jobs_in(pool: Pool, admitted: str, private: PrivateRegistry) -> None:
    assert result(pool.of_pod(admitted).submit(_commands(private))).stdout == b"let in\n"


@pytest.mark.landing
def test_without_it_the_job_is_held_where_the_operator_wants_that(
    pool: Pool, stranger: str, private: PrivateRegistry
) -> None:
    reason = hold_reason(pool.of_pod(stranger).submit(_commands(private)))
    assert f"{private.address}/{IMAGE}" in reason
    assert "authentication required" in reason
    slot_takes_a_job_of_bob(pool.of_pod(stranger))


def test_an_image_that_is_on_the_node_is_not_for_those_without_the_password(
    pool: Pool, admitted: str, stranger: str, private: PrivateRegistry
) -> None:
    result(pool.of_pod(admitted).submit(_commands(private)))
    digest = Pusher(private.address, private.user, private.password).digest(*IMAGE.split(":"))
    by_digest = f"docker://{private.address}/{IMAGE.partition(':')[0]}@{digest}"
    reason = hold_reason(pool.of_pod(stranger).submit({**_commands(private), "container_image": by_digest}))
    assert by_digest.removeprefix("docker://") in reason
    assert "authentication required" in reason


def test_credentials_of_a_user_are_not_used_and_the_job_is_told(
    pool: Pool, stranger: str, private: PrivateRegistry
) -> None:
    # condor_docker_pat_producer takes the second file, when it is newer, and asks no registry for a token then.
    files = "mkdir -p .docker && touch -d -1hour .docker/config.json && cat >.docker/htcondor_pat.json"
    pool.lab.access_point("bob", files, input=private.docker_config())
    try:
        here = pool.of_pod(stranger)
        jobs = here.submit({**_commands(private), "docker_send_credentials": "true"}, user="bob")
        reason = hold_reason(jobs)
        assert "authentication required" in reason
        assert "docker_send_credentials" in reason
    finally:
        pool.lab.access_point("bob", "rm -r .docker")
