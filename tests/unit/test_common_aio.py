"""Work that goes on without its caller, and the ends of servers and of an event loop."""

import asyncio
import socket
from typing import Any

import pytest

from k8spilot.common.aio import close_server, completed, run
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


def test_a_pod_without_a_free_process_ends_a_program_with_its_own_outcome_or_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def ends() -> int:
        return 3

    async def fails(error: Exception) -> None:
        raise error

    with pytest.raises(PilotError, match="the pod has no free process"):
        run(fails(RuntimeError("can't start new thread")))
    with pytest.raises(RuntimeError, match="a defect"):
        run(fails(RuntimeError("a defect")))

    async def no_thread(_loop: object, _seconds: float | None = None) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(asyncio.BaseEventLoop, "shutdown_default_executor", no_thread)
    assert run(ends()) == 3
    with pytest.raises(PayloadLost, match="it was killed"):
        run(fails(PayloadLost("it was killed")))


async def test_a_connection_that_is_accepted_while_its_server_closes_is_not_lost() -> None:
    loop, made, closed = asyncio.get_running_loop(), list[asyncio.BaseTransport](), asyncio.Future[int]()

    class Server(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made.append(transport)

    async def close(server: asyncio.Server) -> None:
        await close_server(server)
        closed.set_result(len(made))

    server = await loop.create_server(Server, "127.0.0.1", 0)
    # The kernel accepts this connection now, the event loop in its next iteration.
    with socket.create_connection(server.sockets[0].getsockname()):
        # A timer that is due runs right after the loop has accepted, before what that has scheduled.
        loop.call_later(0, lambda: asyncio.Task(close(server), loop=loop, eager_start=True))
        assert await closed == 1
        made[0].close()
