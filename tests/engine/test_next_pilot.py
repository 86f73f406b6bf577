"""payload-init between a pilot that was lost and the next one (lose_pilot in payload-init.c)."""

import asyncio

from k8spilot.model.command import Command
from k8spilot.payload.command.exec_session import ExecSession
from k8spilot.payload.command.stdio import Stdio
from tests.engine.payload_inits import containers
from tests.simulator.programs import Programs

_NAP = Command((b"sh", b"-c", b"sleep 0.5; exit 6"), (b"PATH=/usr/bin:/bin",), directory=b"/")


async def test_a_pause_ends_with_the_pilot_that_asked_for_it(programs: Programs) -> None:
    """A paused container stops its processes again and again, so a command of the next pilot would never end."""
    async with containers(programs) as place:
        _, lost = await place.start()
        lost.pause()
        lost.close()
        async with asyncio.timeout(10):
            following = await place.init_server.until(lambda channel: channel is not lost)
            session = ExecSession(following, 1, _NAP, Stdio())
            await session.follow()
        assert session.ended.result().code == 6
