"""Background tasks whose failures do not end the pilot, and with it a running job.

The first failure of a task in asyncio.TaskGroup cancels all of its tasks. Here it is a result for the task's waiter.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from k8spilot.common import logs
from k8spilot.common.errors import PilotError

logger = logging.getLogger(__name__)


class Background:
    """Starts tasks, and keeps at most one delayed task."""

    def __init__(self, of: str, tasks: asyncio.TaskGroup, subject: Callable[[], logs.Subject] = logs.subject) -> None:
        """Initialize.

        Args:
            of: owner, which begins the tasks' names.
            tasks: group in which the tasks run.
            subject: returns the subject of a new task's log lines; without it, that of the caller.
        """
        self._of = of
        self._tasks = tasks
        self._subject = subject
        self._later: asyncio.Future[None] | None = None

    def start[T](self, work: Callable[[], Coroutine[Any, Any, T]], name: str) -> asyncio.Future[T]:
        """Start a task. Its failure becomes the future's exception and does not end the pilot."""
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
                    future.exception()  # mark it as retrieved: there may be no waiter
            except Exception as error:
                logger.exception("%s failed; this is a defect of k8spilot.", name)
                if not future.done():
                    future.set_exception(
                        PilotError(f"the pilot failed with an internal error ({error!r}); its log has the details")
                    )
                    future.exception()
            else:
                if not future.done():
                    future.set_result(result)

        task = self._tasks.create_task(guard(), name=f"{self._of}: {name}")
        future.add_done_callback(lambda done: task.cancel() if done.cancelled() else None)
        return future

    def start_later(self, seconds: float, name: str, action: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `action` after a delay, in place of an earlier one. `drop_later` cancels it, even while it runs."""
        self.drop_later()

        async def act() -> None:
            await asyncio.sleep(seconds)
            await action()

        self._later = self.start(act, name)

    def drop_later(self) -> None:
        """Cancel the delayed task."""
        if self._later is not None:
            self._later.cancel()
        self._later = None

    def keep_later(self) -> None:
        """Let the running delayed task complete: `drop_later` no longer cancels it. The task itself calls this."""
        self._later = None
