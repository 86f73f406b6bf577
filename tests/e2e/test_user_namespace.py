"""Pods with a user namespace of their own: the component user-namespace."""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import psutil
import pytest

from lab import cgroups, pod_processes
from lab.levels import Level
from tests.e2e.pool import Pool, result, slot_takes_a_job_of_bob
from tests.runner.pilots import Configuration

pytestmark = [pytest.mark.landing, pytest.mark.both_levels]

ACCOUNTS: Final = {"baseline": {"0", "101", "65534"}, "restricted": {"101", "64100", "65534"}}
"""Users of the pod's processes, as its containers see them: root, HTCondor, the engine, the jobs."""
BESIDE: Final = {"pause", "conmon"}
"""The process that holds the sandbox, and CRI-O's own."""


@pytest.fixture(scope="module")
def pod(lease: Callable[[Configuration, Level], str], level: Level) -> str:
    """The name of a pilot pod with a user namespace, which no other module uses meanwhile."""
    return lease(Configuration("user-namespace", overlay={"components": ["user-namespace"]}), level)


def test_no_process_of_the_pod_has_an_account_of_the_node(pool: Pool) -> None:
    jobs = pool.shell("cat /proc/self/uid_map; sleep 20")
    jobs.wait("ExecuteEvent")
    outside = set()
    for process in cgroups.processes(pod_processes.uid_of(pool.lab, pool.pod)):
        with suppress(psutil.NoSuchProcess):  # a short one of HTCondor
            if process.name() not in BESIDE:
                outside.add(process.uids().real)
    mapped, first, count = (int(word) for word in result(jobs).text.split())
    assert (mapped, count) == (0, 65536)
    assert first >= count  # the node's own accounts are below
    inside = {str(uid - first) for uid in outside}
    assert len(inside) >= 2  # at least the job and who started it
    assert inside <= ACCOUNTS[pool.lab.level]


def test_files_of_a_job_go_in_and_out_through_the_namespace(pool: Pool) -> None:
    jobs = pool.shell(
        "id -u; cat given >made && chmod 640 made && exit 7",
        files={"given": b"given"},
        transfer_input_files="given",
        transfer_output_files="made",
    )
    ended = result(jobs)
    assert (ended.code, ended.stdout, ended.files["made"]) == (7, b"65534\n", b"given")
    slot_takes_a_job_of_bob(pool)
