"""The pool worker: a user's expressions may cost it its life, and others have their pilots all the same."""

import os
import signal
import time
from pathlib import Path

import pytest

from k8spilot.provisioner.planning.model import Demand
from k8spilot.provisioner.pool import client, worker
from k8spilot.provisioner.pool.client import PoolAway, pool_of
from k8spilot.provisioner.pool.query import PoolQuery, PoolView

QUERY = PoolQuery("pilots", "true", ())


def query_and_die(query: PoolQuery) -> PoolView:
    """Look at alice's jobs and die of them, unless they are to be left out."""
    if "alice" not in query.suspects:
        worker.record_suspect("alice")
        os.kill(os.getpid(), signal.SIGKILL)
    return PoolView(Demand(()), (), 0)


def query_and_hang(query: PoolQuery) -> PoolView:
    """The same, but the worker hangs."""
    if "alice" not in query.suspects:
        worker.record_suspect("alice")
        time.sleep(60)
    return PoolView(Demand(()), (), 0)


def die(_: PoolQuery) -> PoolView:
    """Die of something else."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


@pytest.mark.slow
@pytest.mark.parametrize("run", [query_and_die, query_and_hang])
async def test_a_user_whose_jobs_end_the_worker_is_named_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: object
) -> None:
    monkeypatch.setattr(worker, "run", run)
    monkeypatch.setattr(client, "_QUERY_SECONDS", 30.0)
    async with pool_of("cm.example", tmp_path) as found:
        with pytest.raises(PoolAway, match="an expression of the jobs of alice took too much memory or time"):
            await found.run(QUERY)
        await found.run(QUERY)


@pytest.mark.slow
async def test_a_worker_that_dies_otherwise_blames_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "run", die)
    async with pool_of("cm.example", tmp_path) as found:
        for _ in range(2):
            with pytest.raises(PoolAway, match=r"has ended, and starts again$"):
                await found.run(QUERY)
