"""Read-only root file systems: the pilot's always, the jobs' with the component read-only-payload."""

from collections.abc import Iterator

import pytest

from lab import jobs, pilot
from lab.api import Lab
from lab.pilot import SUPERVISOR
from tests.e2e.pool import Pool, result, slot_takes_a_job_of_bob, until
from tests.e2e.test_recovery import kill, restarts

FOLDERS = {"/run": "755", "/tmp": "1777", "/var/tmp": "1777", "/var/lib/condor": "755"}
MODES = f"stat --format='%n %a' {' '.join(FOLDERS)}"
LEFT = (
    "mkdir -p /run/left/deep /tmp/left; touch /tmp/left/file /var/tmp/.left; ln -s /etc /run/link; chmod 777 /run /tmp"
)


@pytest.fixture(scope="module")
def strict(lab: Lab, owner: str) -> Iterator[str]:
    """The name of a pilot pod whose jobs cannot write to their own image either."""
    name = f"e2e-{owner}-read-only"
    pilot.deploy(lab, name, overlay={"components": ["read-only-payload"]})
    jobs.wait_in_pool(lab, name)
    yield name
    pilot.discard(lab, name)


def _modes(pool: Pool) -> dict[str, str]:
    return dict(line.split() for line in pool.inside(MODES).splitlines())


def test_the_pilot_writes_to_its_volumes_alone(pool: Pool) -> None:
    assert _modes(pool) == FOLDERS
    for folder in ("/", "/etc", "/usr", "/opt/k8spilot", "/root", "/home", "/var/cache", "/etc/condor"):
        assert "Read-only file system" in pool.inside(f"touch {folder}/x 2>&1 || true"), folder
    assert pool.inside("findmnt --noheadings --output FSTYPE /run").strip() == "tmpfs"  # the pool's secrets are there


def test_a_pilot_container_that_starts_again_finds_its_folders_as_new(pool: Pool) -> None:
    before = restarts(pool)
    pool.inside(LEFT)
    kill(pool, SUPERVISOR)
    until(lambda: restarts(pool) > before, "the pilot container starts again")
    slot_takes_a_job_of_bob(pool, 90)
    assert _modes(pool) == FOLDERS
    assert pool.inside("ls -d /run/left /run/link /tmp/left /var/tmp/.left 2>/dev/null || true") == ""


def test_a_job_whose_image_is_read_only_has_its_scratch_folder_and_tmp(pool: Pool, strict: str) -> None:
    script = (
        "touch /x 2>&1; echo a >/tmp/a && echo b >/var/tmp/b && echo c >c && echo d >/dev/shm/d && echo all $(cat c)"
    )
    found = result(pool.of_pod(strict).shell(script, transfer_output_files="c"))
    assert b"Read-only file system" in found.stdout
    assert found.stdout.endswith(b"all c\n")
    assert found.files["c"] == b"c\n"
    slot_takes_a_job_of_bob(pool.of_pod(strict), 60)
