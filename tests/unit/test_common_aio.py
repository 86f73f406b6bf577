"""Work that goes on without its caller, and the end of an event loop."""

import asyncio
from typing import Any

import pytest

from k8spilot.common.aio import completed, run
from k8spilot.common.errors import PayloadLost, PilotError


async def test_the_failure_of_work_that_a_cancelled_caller_has_left_is_not_logged() -> None:
    logged: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
    begun, ends = asyncio.Event(), asyncio.Event()

    async def fail() -> None:
        begun.set()
        await ends.wait()
        raise PayloadLost("it was killed")

    caller = asyncio.create_task(completed(fail()))
    await begun.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    ends.set()
    (working,) = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.wait([working])
    await asyncio.sleep(0)
    assert (logged, working.cancelled()) == ([], False)


async def test_a_caller_that_waits_gets_the_result_or_the_failure_of_the_work() -> None:
    async def fail() -> None:
        raise PayloadLost("it was killed")

    assert await completed(asyncio.sleep(0, "done")) == "done"
    with pytest.raises(PayloadLost, match="killed"):
        await completed(fail())


def test_a_pod_without_a_free_process_ends_a_program_with_a_sentence_and_other_errors_stay_what_they_are() -> None:
    async def fails(words: str) -> None:
        raise RuntimeError(words)

    with pytest.raises(PilotError, match="the pod has no free process"):
        run(fails("can't start new thread"))
    with pytest.raises(RuntimeError, match="a defect"):
        run(fails("a defect"))
