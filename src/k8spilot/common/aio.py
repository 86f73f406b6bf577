"""Helpers for asyncio: work that restarts, work within a context, waits, the end of a server, output of programs."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final

from k8spilot.common.errors import PilotError
from k8spilot.common.logs import capitalized

logger = logging.getLogger(__name__)

_RESTART_SECONDS: Final = 60.0
_NO_THREAD: Final = "can't start new thread"
"""Part of the message of Python's RuntimeError."""


def run[T](work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in an event loop, as asyncio.run does.

    At its end, the loop starts a thread that ends the others. Where the pod has no free process, that fails; the result
    of the work is returned nevertheless.

    Raises:
        PilotError: the work itself needed a thread.
    """
    results: list[T] = []

    async def keep_result() -> None:
        results.append(await work)

    try:
        asyncio.run(keep_result())
    except RuntimeError as error:
        if _NO_THREAD not in str(error):
            raise
        if isinstance(error.__context__, PilotError):
            raise error.__context__ from None
        if not results:
            raise PilotError("no thread can be started: the pod has no free process") from error
    return results[0]


async def restarting(work: Callable[[], Awaitable[None]], what: str, *, may_end: bool = False) -> None:
    """Do `work`, and restart it after a failure: a defect in metrics, Events or listeners must not end a job.

    Work that returns has a defect, too, and restarts, unless it `may_end`.
    """
    subject = capitalized(what)
    while True:
        try:
            await work()
        except Exception:
            logger.exception("%s failed; this is a defect of k8spilot. It restarts.", subject)
        else:
            if may_end:
                return
            logger.error("%s ended by itself; this is a defect of k8spilot. It restarts.", subject)
        await asyncio.sleep(_RESTART_SECONDS)


@contextmanager
def guarded_task(
    tasks: asyncio.TaskGroup, work: Callable[[], Awaitable[None]], what: str, *, may_end: bool = False
) -> Iterator[asyncio.Task[None]]:
    """Do long-lived work in a task while the context lasts, restart it after a failure, and cancel it at the end.

    The end does not wait for the task: its group does.

    Args:
        tasks: group of the task.
        work: function that starts the work.
        what: name of the task and subject of its log lines.
        may_end: whether the work may return (see `restarting`).
    """
    task = tasks.create_task(restarting(work, what, may_end=may_end), name=what)
    try:
        yield task
    finally:
        task.cancel()


def named[T](work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task that has the coroutine's name. The caller waits for it and cancels it."""
    return asyncio.create_task(work, name=getattr(work, "__qualname__", repr(work)))


@asynccontextmanager
async def side_by_side(*works: Coroutine[Any, Any, Any]) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Run `works` as tasks for as long as the context lasts, and cancel them at its end.

    If a task fails while the caller waits for another one, its PilotError is dropped; any other error is logged as a
    defect of k8spilot.
    """
    tasks = [named(work) for work in works]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            error = None if task.cancelled() else task.exception()
            if error is not None and not isinstance(error, PilotError):
                logger.error("%s failed; this is a defect of k8spilot.", task.get_name(), exc_info=error)


async def completed[T](work: Coroutine[Any, Any, T]) -> T:
    """Complete `work`, even if the caller is cancelled meanwhile; its result or failure is dropped then."""
    task = named(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await shielded(task)


async def shielded[T](future: asyncio.Future[T]) -> T:
    """Wait for `future`, which goes on if the caller is cancelled.

    asyncio.shield logs an error of the future as an exception that nobody has handled (since Python 3.14), although
    only the waiting caller was cancelled.
    """
    await asyncio.wait([future])
    return future.result()


async def first_of(*futures: asyncio.Future[Any], seconds: float | None = None) -> None:
    """Wait until one of `futures` is done, or `seconds` have passed."""
    await asyncio.wait(futures, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)


async def is_set_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait until `event` is set, or `seconds` have passed; None is no limit. Return whether it is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


async def readable(descriptor: int) -> None:
    """Wait until a descriptor is readable, and close it. A pidfd becomes so when its process ends (pidfd_open(2))."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, event.set)
    try:
        await event.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def is_set(future: asyncio.Future[Any]) -> bool:
    """Return whether `future` is done and not cancelled: it has a result or an exception."""
    return future.done() and not future.cancelled()


def set_once[T](future: "asyncio.Future[T]", value: T) -> bool:
    """Set a result, and return whether there was none before."""
    if future.done():
        return False
    future.set_result(value)
    return True


async def output_of(process: asyncio.subprocess.Process) -> bytes:
    """Return a program's output once it has ended. A cancellation, such as the caller's time limit, kills it."""
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return output


async def close_server(server: asyncio.Server) -> None:
    """Stop listening. A connection that the event loop has accepted has its protocol when this returns.

    The loop makes the transport of a connection one iteration after it accepts the connection, and calls
    `connection_made` another iteration later. A `Server.close` before that leaves the connection to the garbage
    collector: the client gets no answer until then (CPython, asyncio: `BaseSelectorEventLoop._accept_connection2` drops
    the error of `Server._attach`).
    """
    loop = asyncio.get_running_loop()
    for listener in server.sockets:
        loop.remove_reader(listener)
    try:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    finally:  # a second cancellation must not leave the port taken
        server.close()
