"""One job's turn after another's: what HTCondor's starter asks before it brings the next job's files.

All jobs of a slot have the same user, one after the other. So nothing that runs as that user may be left when the next
job's files come, which is before HTCondor asks for a container: neither in the payload container nor in this one, where
HTCondor runs a user's transfer plugins and sessions (condor/scripts/starter.sh asks).
"""

from aiohttp import web

from k8spilot.common.errors import Untimely
from k8spilot.docker.removal import clear_slot
from k8spilot.docker.store import STORE


async def next_job(request: web.Request) -> web.Response:
    """Answer when nothing of earlier jobs is left, nor of what people have run by hand."""
    engine = request.app[STORE]
    await clear_slot(engine)
    if not engine.payload.free:  # somebody was faster, and must not see the files that come now
        raise Untimely(
            f"payload container {engine.payload.name} is {engine.payload.state.value}; no job can begin in it"
        )
    await engine.payload.scrubbing.before_files()
    await engine.payload.scrubbing.remove_sandboxes()
    return web.Response(text="nothing is left of earlier jobs\n")
