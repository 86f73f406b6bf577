"""Private names of aiohttp on which the limits of connections rely: an upgrade that removes one has to fail here."""

import asyncio

from aiohttp import web

from k8spilot.common.http_limits import ConnectionLimiter, LimitedRequestHandler


async def test_aiohttp_has_the_private_names_by_which_a_connection_is_busy() -> None:
    async def handle(_request: web.BaseRequest) -> web.StreamResponse:
        raise NotImplementedError

    plain = web.RequestHandler(web.Server(handle), loop=asyncio.get_running_loop())
    assert plain._request_in_progress is False
    assert not plain._messages
    assert plain._upgraded is False

    limited = LimitedRequestHandler(ConnectionLimiter(1, 1), {}, web.Server(handle), loop=asyncio.get_running_loop())
    assert not limited.busy
    found = []
    for name in ("_request_in_progress", "_upgraded"):
        setattr(limited, name, True)
        found.append(limited.busy)
        setattr(limited, name, False)
    assert found == [True, True]


def test_the_methods_that_are_overridden_are_those_of_aiohttp() -> None:
    overridden = {"connection_made", "connection_lost", "data_received", "finish_response", "handle_error"}
    overridden |= {"pause_writing", "resume_writing"}
    assert overridden <= set(vars(LimitedRequestHandler))
    assert all(callable(getattr(web.RequestHandler, name, None)) for name in overridden)
