"""Terminals, of which the node has so many for all of its containers together (kernel.pty.max)."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.attacks.ground import RESTRICTED, Ground
from tests.e2e.pool import MATCHED_SECONDS, runs

TAKE = """
import os, resource, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
held, full = [], ""
while not full:
    try:
        held.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))
    except OSError as error:
        full = error.strerror
if child := os.fork():
    print(child, len(held), full)
    sys.exit()
os.setsid()
for end in range(3):
    os.dup2(held[0], end)
time.sleep(240)
"""


@contextmanager
def _all_terminals_taken(ground: Ground) -> Iterator[None]:
    """In the pilot container, which counts as any pod of the node; for four minutes at most, whatever happens here."""
    holder, count, full = ground.inside(f"exec python3 - <<'END'\n{TAKE}\nEND").split(maxsplit=2)
    try:
        assert int(count) > 100, "they were gone before, so that this shows nothing"
        assert "No space left" in full
        yield
    finally:
        ground.inside(f"kill -KILL {holder} 2>/dev/null; true")


@RESTRICTED  # where payload-init can be killed by the end of a terminal alone
@pytest.mark.disruptive
def test_a_slot_takes_jobs_while_somebody_has_all_terminals_of_the_node(ground: Ground) -> None:
    with _all_terminals_taken(ground):
        ground.is_fit(MATCHED_SECONDS)
        jobs = ground.alice("kill -STOP $PPID; exec sleep 606", job_max_vacate_time="2")
        jobs.wait("ExecuteEvent")
        runs(ground, "sleep 606")
        jobs.command("condor_rm")  # whose payload-init is ended by its terminal, which is good for no other
        ground.is_fit(MATCHED_SECONDS)
