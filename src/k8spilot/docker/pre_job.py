"""Preparation of the slot for the next job: the request of HTCondor's starter before it transfers the job's files.

All jobs of a slot have the same user, one after the other. So no process of that user may be left when the next job's
files arrive, which is before HTCondor requests a container: neither in the payload container nor in this one, where
HTCondor runs a user's transfer plugins and sessions (condor/scripts/starter.sh makes the request).
"""

from aiohttp import web

from k8spilot.common.errors import Untimely
from k8spilot.docker.removal import clear_slot
from k8spilot.docker.store import store_of


async def next_job(request: web.Request) -> web.Response:
    """Answer when all processes and files of earlier jobs and of manual sessions are removed."""
    store = store_of(request)
    await clear_slot(store)
    if not store.payload.free:  # another client was faster, and must not see the files that arrive now
        raise Untimely(f"payload container {store.payload.name} is {store.payload.state.value}; no job can start in it")
    store.payload.reuse.expect()
    await store.payload.scrub_runner.before_files()
    await store.payload.scrub_runner.remove_sandboxes()
    return web.Response(text="nothing is left of earlier jobs\n")
