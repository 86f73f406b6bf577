"""Client of the pool: one query at a time, by a worker process that is replaced if it hangs."""

import asyncio
import logging
import multiprocessing
import tempfile
import time
from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from k8spilot.common.errors import PilotError
from k8spilot.provisioner.pool import worker
from k8spilot.provisioner.pool.access_points import AccessPoints, access_point_in
from k8spilot.provisioner.pool.configuration import TOKENS, PoolConfiguration
from k8spilot.provisioner.pool.query import PoolQuery, PoolView

logger = logging.getLogger(__name__)

_QUERY_SECONDS: Final = 90.0
"""Limit of a query: two requests to the collector, and some to access points (query_runner.py)."""
_SUSPECT_SECONDS: Final = 3600.0
"""Time for which a user's jobs are left out: their expressions made a worker hang or exceed its memory."""


class PoolAway(PilotError):
    """Raised when the pool's collector does not answer. That says nothing of the demand."""


class PoolClient:
    """The central manager and the access points of a pool."""

    def __init__(self, configuration: PoolConfiguration) -> None:
        self._configuration = configuration
        self._worker: ProcessPoolExecutor | None = None
        self._suspects: dict[str, float] = {}
        """Users whose jobs are left out, and until when (time.monotonic)."""
        self._access_points = AccessPoints()

    async def run(self, query: PoolQuery) -> PoolView:
        """Return the pool's idle jobs and the slots of the pilots.

        Raises:
            PoolAway: its collector does not answer.
        """
        try:
            if self._configuration.refresh():
                self.close()  # HTCondor's library reads its configuration once
        except OSError as error:
            raise PoolAway(f"the pool's tokens cannot be read ({error})") from None
        if self._worker is None:
            self._worker = ProcessPoolExecutor(
                max_workers=1,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=worker.set_up,
                initargs=(str(self._configuration.file), str(self._configuration.suspect)),
            )
        try:
            async with asyncio.timeout(_QUERY_SECONDS):
                asked = replace(query, suspects=self._left_out(), access_points=self._access_points)
                view = await asyncio.get_running_loop().run_in_executor(self._worker, worker.run, asked)
                self._access_points = view.access_points
                return view
        except TimeoutError:
            self.close()
            raise PoolAway(f"the pool did not answer within {_QUERY_SECONDS:.0f} s{self._blame()}") from None
        except BrokenProcessPool:
            self.close()
            raise PoolAway(f"the process that queries the pool has ended, and starts again{self._blame()}") from None
        except RuntimeError as error:
            raise PoolAway(" ".join(str(error).split())) from None
        except Exception as error:
            logger.exception("The answer of the pool cannot be read.")
            raise PoolAway(f"the answer of the pool cannot be read ({type(error).__name__})") from None

    def _left_out(self) -> dict[str, str]:
        now = time.monotonic()
        self._suspects = {user: until for user, until in self._suspects.items() if now < until}
        reason = "an expression of this user's jobs took too much memory or time; they are left out for an hour"
        return dict.fromkeys(self._suspects, reason)

    def _blame(self) -> str:
        """Leave out the suspect of a worker that died or hung; return words about that."""
        user = worker.suspect_in(self._configuration.suspect)
        if not user:
            return ""
        if name := access_point_in(user):
            return f"; {self._access_points.leave_out_large(name, 'memory or time')}"
        self._suspects[user] = time.monotonic() + _SUSPECT_SECONDS
        return f"; an expression of the jobs of {user} took too much memory or time, and they are left out for an hour"

    def close(self) -> None:
        """End the worker, whatever it is doing."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill_workers()


@asynccontextmanager
async def pool_of(condor_host: str, tokens: Path = TOKENS) -> AsyncIterator[PoolClient]:
    """Yield the pool of a central manager."""
    with tempfile.TemporaryDirectory(prefix="k8spilot-pool-") as folder:
        pool = PoolClient(PoolConfiguration(Path(folder), condor_host, tokens))
        try:
            yield pool
        finally:
            pool.close()
