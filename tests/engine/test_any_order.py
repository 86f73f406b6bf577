"""Requests of HTCondor and accidents of the node, in any order: the slot has one job at a time, and is free in the end.

The state tables (model/payload_state.py, model/container_state.py) raise for a move that they do not have, which the
engine logs as a fault of its own. hypothesis draws the orders, the same ones in each run; K8SPILOT_TEST_ORDERS says how
many, for a longer one.
"""

import asyncio
import logging
import os
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any, Final, cast

import psutil
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from k8spilot.common import pilot_api
from tests.engine.client import Failed, Job, unique_name
from tests.engine.rings import Simulated, eventually, simulated
from tests.runner import ORDERS
from tests.simulator.node import Timing
from tests.simulator.programs import Programs

JOB: Final[dict[str, Any]] = {"Labels": {"org.htcondorproject": "True"}}
NOBODY: Final = "HTCJob0_0_slot1_PID1"
"""A job that HTCondor signals while its image is pulled, and which never comes."""
PAUSES: Final = st.sampled_from([0.0, 0.01, 0.05, 0.2])
"""Seconds that a step leaves to what is under way; a bind takes about 0.2 s here."""
IMAGES: Final = st.sampled_from(["busybox", "debian"])
SCRIPTS: Final = st.sampled_from(["exit 3", "sleep 60; exit 4"])
REST_SECONDS: Final = 0.5


class Faults(logging.Handler):
    """Keeps what the pilot logs as a fault of its own."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(f"{record.getMessage()} {record.exc_info and record.exc_info[1]!r}")


class Ground:
    """A simulated pod, and its event loop, which turns only while something is waited for."""

    def __init__(self, programs: Programs) -> None:
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self.faults = Faults()
        logging.getLogger().addHandler(self.faults)
        self.engine: Simulated = self.run(
            self._stack.enter_async_context(
                # A container that is lost twice comes back late, here as on a node; that is not the point.
                simulated(programs, timing=Timing(back_off=0.1), idle_after_seconds=0.05, patience_seconds=5.0)
            )
        )

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    def close(self) -> None:
        try:
            self.run(self._stack.aclose())
        finally:
            logging.getLogger().removeHandler(self.faults)
            self._runner.close()


class Grounds:
    """One pod serves all orders, until one of them has done it harm."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._ground: Ground | None = None

    def take(self) -> Ground:
        if self._ground is None:
            self._ground = Ground(self._programs)
        return self._ground

    def drop(self) -> None:
        if self._ground is not None:
            ground, self._ground = self._ground, None
            ground.close()


class AnyOrder(RuleBasedStateMachine):
    """Each rule begins something and does not wait for its end. There is one starter at a time, and its job."""

    def __init__(self, grounds: Grounds) -> None:
        super().__init__()
        self.grounds = grounds
        self.ground = grounds.take()
        self.engine = self.ground.engine
        self.begun: list[asyncio.Task[Any]] = []
        self.name = ""
        """Name of the job, from its `create` to its `rm`."""
        self.is_started = False
        self.jobs: dict[str, Job] = {}
        self.is_held = False

    def _begin(self, work: Coroutine[Any, Any, Any], pause: float) -> None:
        async def begin() -> None:
            self.begun.append(asyncio.create_task(work))
            await asyncio.sleep(pause)

        self.ground.run(begin())

    def _ask(self, pause: float, method: str, path: str, body: Any = None, **params: str) -> None:
        self._begin(self.engine.ask(method, path, body, params), pause)

    @precondition(lambda self: not self.name)
    @rule(pause=PAUSES)
    def come_to_the_next_job(self, pause: float) -> None:
        self._begin(self.engine.ask("GET", pilot_api.NEXT_JOB, version=""), pause)

    @precondition(lambda self: not self.name)
    @rule(image=IMAGES, pause=PAUSES)
    def pull(self, image: str, pause: float) -> None:
        self._begin(self.engine.pull(self.engine.image(image)), pause)

    @rule(image=IMAGES, script=SCRIPTS, pause=PAUSES)
    def create(self, image: str, script: str, pause: float) -> None:
        """Create the container of the next job; the last one may still be there."""
        self.name, self.is_started = unique_name(), False
        body = {"Image": self.engine.image(image), "Cmd": ["sh", "-c", f": {self.name}; {script}"], **JOB}
        self._ask(pause, "POST", "/containers/create", body, name=self.name)

    @precondition(lambda self: self.name and not self.is_started)
    @rule(pause=PAUSES)
    def start(self, pause: float) -> None:
        """As docker's client, after the answer to `create`."""
        name, creating = self.name, list(self.begun)
        self.is_started = True

        async def start() -> None:
            await asyncio.wait(creating)
            with suppress(Failed):
                self.jobs[name] = await self.engine.start(name)

        self._begin(start(), pause)

    @precondition(lambda self: not self.is_started)
    @rule(script=SCRIPTS, pause=PAUSES)
    def run_a_job(self, script: str, pause: float) -> None:
        """Until it begins, or all of `pause` later."""
        self.create("busybox", script, 0.0)
        self.start(0.0)
        name = self.name

        async def has_begun() -> bool:
            return name in self.jobs or all(one.done() for one in self.begun)

        with suppress(TimeoutError):
            self.ground.run(eventually(has_begun, REST_SECONDS))
        self.ground.run(asyncio.sleep(pause))

    @precondition(lambda self: self.name)
    @rule(signal=st.sampled_from(["TERM", "KILL"]), pause=PAUSES)
    def kill(self, signal: str, pause: float) -> None:
        self._ask(pause, "POST", f"/containers/{self.name}/kill", signal=signal)

    @precondition(lambda self: not self.name)
    @rule(pause=PAUSES)
    def kill_a_job_that_never_comes(self, pause: float) -> None:
        self._ask(pause, "POST", f"/containers/{NOBODY}/kill", signal="KILL")

    @precondition(lambda self: self.is_started)
    @rule(what=st.sampled_from(["pause", "unpause"]), pause=PAUSES)
    def pause(self, what: str, pause: float) -> None:
        self._ask(pause, "POST", f"/containers/{self.name}/{what}")

    @precondition(lambda self: self.name)
    @rule(pause=PAUSES)
    def remove(self, pause: float) -> None:
        name, self.name, self.is_started = self.name, "", False
        self._ask(pause, "DELETE", f"/containers/{name}", force="1")

    @precondition(lambda self: self.is_started)
    @rule(pause=PAUSES)
    def hang_up(self, pause: float) -> None:
        """The docker client of the starter dies."""
        name = self.name

        async def hang_up() -> None:
            if name in self.jobs:
                self.jobs[name].attached.abort()

        self._begin(hang_up(), pause)

    @rule(pause=PAUSES)
    def lose_the_container(self, pause: float) -> None:
        async def lose() -> None:
            container = self.engine.cluster.kubelet.container
            if container is not None and container.running:
                with suppress(psutil.NoSuchProcess, IndexError):  # its first process is not there yet, or not any more
                    container.kill_first()

        self._begin(lose(), pause)

    @precondition(lambda self: not self.name)
    @rule(image=IMAGES)
    def let_a_pull_fail(self, image: str) -> None:
        self.engine.cluster.kubelet.fail_pulls(f"registry.test:5000/{image}", "401 Unauthorized", times=1)

    @rule()
    def hold_pulls_or_let_them_go_on(self) -> None:
        (self._pulls().set if self.is_held else self._pulls().clear)()
        self.is_held = not self.is_held
        self.ground.run(asyncio.sleep(0))

    @rule()
    def rest(self) -> None:
        """Let all requests end, except those that wait for a job or for the registry."""

        async def rest() -> None:
            if going_on := [one for one in self.begun if not one.done()]:
                await asyncio.wait(going_on, timeout=REST_SECONDS)

        self.ground.run(rest())

    def _pulls(self) -> asyncio.Event:
        return self.engine.cluster.kubelet.hold("registry.test:5000/debian")

    @invariant()
    def there_is_no_fault_and_at_most_one_job(self) -> None:
        assert not self.ground.faults.seen, self.ground.faults.seen
        running = {word for line in self.engine.cluster.processes() for word in line.split() if "HTCJob" in word}
        assert len(running) <= 1, running

    def teardown(self) -> None:
        """All is removed: then the slot is free, and takes the next job."""
        is_well = False
        try:
            self._pulls().set()
            self.ground.run(self._end())
            self.there_is_no_fault_and_at_most_one_job()
            is_well = True
        finally:
            if not is_well:
                self.grounds.drop()

    async def _end(self) -> None:
        slot: dict[str, Any] = {}

        async def is_free() -> bool:
            await self.engine.remove_all()
            await self.engine.ask("POST", f"/containers/{NOBODY}/kill", params={"signal": "KILL"})  # ends a pull
            slot.update((await self.engine.ask("GET", pilot_api.STATUS, version="")).json["slots"][0])
            return bool(slot["state"] == "idle" and all(one.done() for one in self.begun))

        try:
            await eventually(is_free)
        except TimeoutError:
            going_on = [one for one in self.begun if not one.done()]
            raise AssertionError(f"the slot is not free: {slot}, {going_on}") from None
        for one in self.begun:
            one.result()
        for job in self.jobs.values():
            await job.waiting
            await job.attached.close()
        for image in ("busybox", "debian"):
            self.engine.cluster.kubelet.fail_pulls(f"registry.test:5000/{image}", "", times=0)
        assert (await self.engine.shell(self.engine.image("busybox"), "exit 5", **JOB)).code == 5


def test_the_slot_has_one_job_at_a_time_and_is_free_in_the_end_in_any_order(programs: Programs) -> None:
    grounds = Grounds(programs)
    try:
        run_state_machine_as_test(
            cast("type[AnyOrder]", partial(AnyOrder, grounds)),
            settings=settings(
                max_examples=int(os.environ.get(ORDERS, "25")),
                stateful_step_count=12,
                deadline=None,
                derandomize=True,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        grounds.drop()
