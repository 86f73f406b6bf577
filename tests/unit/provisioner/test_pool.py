"""The pool worker: a user's expressions may cost it its life, and others have their pilots all the same."""

import os
import signal
import time
from pathlib import Path

import pytest

from k8spilot.provisioner import pool, pool_worker, suspect
from k8spilot.provisioner.model import Demand, PoolView, Question
from k8spilot.provisioner.pool import PoolAway, pool_of

QUESTION = Question("pilots", "true", ())


def look_and_die(question: Question) -> PoolView:
    """Look at alice's jobs and die of them, unless they are to be left out."""
    if "alice" not in question.suspects:
        suspect.name("alice")
        os.kill(os.getpid(), signal.SIGKILL)
    return PoolView(Demand(()), (), 0)


def look_and_hang(question: Question) -> PoolView:
    """The same, but the worker hangs."""
    if "alice" not in question.suspects:
        suspect.name("alice")
        time.sleep(60)
    return PoolView(Demand(()), (), 0)


def die(_: Question) -> PoolView:
    """Die of something else."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


@pytest.mark.parametrize("look", [look_and_die, look_and_hang])
async def test_a_user_whose_jobs_end_the_worker_is_named_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: object
) -> None:
    monkeypatch.setattr(pool_worker, "look", look)
    monkeypatch.setattr(pool, "_SECONDS", 30.0)
    async with pool_of("cm.example", tmp_path) as found:
        with pytest.raises(PoolAway, match="an expression of the jobs of alice took too much memory or time"):
            await found.look(QUESTION)
        await found.look(QUESTION)


async def test_a_worker_that_dies_otherwise_blames_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_worker, "look", die)
    async with pool_of("cm.example", tmp_path) as found:
        for _ in range(2):
            with pytest.raises(PoolAway, match=r"has ended, and starts again$"):
                await found.look(QUESTION)
