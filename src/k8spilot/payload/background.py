"""What goes on in the background for one payload container: tasks whose failures are their own."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from k8spilot.common import logs
from k8spilot.common.errors import PilotError

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Background:
    """Starts tasks, and keeps the one that is to be done later, of which there is one at most."""

    def __init__(self, of: str, tasks: asyncio.TaskGroup, subject: Callable[[], logs.Subject]) -> None:
        self._of = of
        self._tasks = tasks
        self._subject = subject
        """Whom what is logged is about, at the moment."""
        self._later: asyncio.Future[None] | None = None

    def start(self, work: Callable[[], Coroutine[Any, Any, T]], name: str) -> asyncio.Future[T]:
        """Start a task whose failure is its future's and not the whole pilot's."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        subject = self._subject()

        async def guard() -> None:
            logs.about(subject)
            try:
                result = await work()
            except asyncio.CancelledError:
                future.cancel()
                raise
            except PilotError as error:
                if not future.done():
                    future.set_exception(error)
                    future.exception()  # who waits for it raises it; nobody may
            except Exception as error:
                logger.exception("%s failed; this is a fault of k8spilot.", name)
                if not future.done():
                    future.set_exception(PilotError(f"the pilot itself failed ({error!r}); its log has the details"))
                    future.exception()
            else:
                if not future.done():
                    future.set_result(result)

        task = self._tasks.create_task(guard(), name=f"{self._of}: {name}")
        future.add_done_callback(lambda done: task.cancel() if done.cancelled() else None)
        return future

    def start_later(self, seconds: float, name: str, action: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do something after a time, unless it is dropped: also in the middle of it."""

        async def act() -> None:
            await asyncio.sleep(seconds)
            await action()

        self._later = self.start(act, name)

    def drop_later(self) -> None:
        """Give up what was to be done later."""
        if self._later is not None:
            self._later.cancel()
        self._later = None

    def keep_later(self) -> None:
        """Let what is being done go on to its end, whatever comes: it says so of itself."""
        self._later = None
