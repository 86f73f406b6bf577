"""Failures of the watch of the own pod, and their reports: neither the API server nor an operator is flooded."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from k8spilot.kube import backoff, watch_pace
from k8spilot.payload import listeners
from lab.faulty import Fault
from tests.engine.faulty import Place, so
from tests.engine.rings import eventually
from tests.simulator.cluster import simulate
from tests.simulator.programs import Programs


async def _ends_watches(place: Place) -> None:
    place.simulator.cluster.server.watch_seconds = 0.001


async def _expires(place: Place) -> None:
    place.api.fails(Fault(verb="watch", status=410, error=("Expired", "too old resource version")))


async def _refuses_watches(place: Place) -> None:
    place.api.fails(Fault(verb="watch", status=500))


async def _refuses_lists(place: Place) -> None:
    place.api.fails(Fault(verb="list", status=503), Fault(verb="watch", status=410))


async def _answers_nonsense(place: Place) -> None:
    place.api.fails(Fault(verb="list", status=200), Fault(verb="watch", status=200))


@pytest.mark.slow
@pytest.mark.parametrize("fault", [_ends_watches, _expires, _refuses_watches, _refuses_lists, _answers_nonsense])
async def test_a_watch_that_fails_again_and_again_is_tried_later_and_later(
    place: Place, fault: Callable[[Place], Awaitable[None]]
) -> None:
    await fault(place)
    before = place.api.count()
    place.api.cuts()
    await asyncio.sleep(5)
    asked = place.api.count() - before
    assert 2 <= asked <= 24  # pauses of at most 1, 2, 4 s, the least a tenth of that; two requests a try


@pytest.mark.slow
async def test_a_server_that_comes_back_without_its_memory_is_listed_soon(place: Place) -> None:
    place.api.goes_away()
    await asyncio.sleep(5)  # pauses are of 4 s and more by then
    place.api.fails(Fault(verb="watch", status=410, error=("Expired", "too old resource version"), times=1))
    before = place.api.count()
    place.api.comes_back()
    await eventually(lambda: so(place.api.count("list") > 0 and place.api.count() >= before + 3))
    forgotten, listed = [one.at for one in place.api.requests[before:] if one.verb in ("watch", "list")][:2]
    assert listed - forgotten < 1.5


@pytest.mark.slow
async def test_the_server_is_left_alone_for_as_long_as_it_asks(place: Place) -> None:
    place.api.fails(Fault(status=429, error=("TooManyRequests", "later"), headers={"Retry-After": "3"}))
    before = place.api.count()
    place.api.cuts()
    await asyncio.sleep(3.5)
    assert place.api.count() - before <= 2


@pytest.mark.slow
async def test_a_quiet_watch_of_a_server_without_bookmarks_is_no_outage(place: Place) -> None:
    cluster = place.simulator.cluster
    cluster.server.bookmarks = False
    await cluster.stop_pilot()
    before = place.api.count("watch")
    await cluster.start_pilot()
    await eventually(lambda: so(place.api.count("watch") > before))
    await asyncio.sleep(2.5)  # the limit of silence is 1 s where bookmarks come
    assert place.api.count("watch") == before + 1
    assert not place.simulator.cluster.pilot.pod.connectivity.fault


@pytest.mark.slow
async def test_a_silent_watch_of_a_server_with_bookmarks_is_opened_again(place: Place) -> None:
    before = place.api.count("watch")
    await asyncio.sleep(2.5)
    assert place.api.count("watch") > before


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch is a good one after a moment, and pilots come back over a time that no test waits for."""
    monkeypatch.setattr(watch_pace, "_STEADY_SECONDS", 0.2)
    monkeypatch.setattr(backoff, "SPREAD_SECONDS", 1e9)


@pytest.mark.slow
async def test_a_pilot_that_is_idle_comes_back_to_a_server_that_was_started_again_some_time_later(
    steady: None, place: Place
) -> None:
    await asyncio.sleep(0.5)
    before = place.api.count()
    place.api.goes_away()
    await asyncio.sleep(0.5)
    place.api.comes_back()
    await asyncio.sleep(4)
    assert place.api.count() == before


async def test_a_job_finds_a_server_that_the_watch_does_not_look_for_yet(steady: None, place: Place) -> None:
    await asyncio.sleep(0.5)
    place.api.goes_away()
    await asyncio.sleep(0.5)
    place.api.comes_back()
    engine = place.engine
    assert (await engine.shell(engine.image("busybox"), "exit 6")).code == 6
    assert not place.simulator.cluster.pilot.pod.connectivity.fault


async def test_a_pilot_that_has_just_changed_its_image_comes_back_soon(steady: None, place: Place) -> None:
    engine = place.engine
    assert (await engine.shell(engine.image("busybox"), "exit 6")).code == 6
    await asyncio.sleep(0.5)
    place.api.goes_away()
    await asyncio.sleep(0.5)
    place.api.comes_back()
    await eventually(lambda: so(not place.simulator.cluster.pilot.pod.connectivity.fault))


# --- what others are told ---


class Heard(listeners.SlotListener):
    """Remembers."""

    def __init__(self) -> None:
        self.said: list[str] = []

    async def away(self, why: listeners.Reason, seconds: float = listeners.CLOSED_SECONDS) -> None:
        self.said.append("away")

    async def back(self, why: listeners.Reason) -> None:
        self.said.append("back")


@pytest.mark.slow
async def test_an_outage_is_told_again_and_again_and_taken_back_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "_AWAY_SECONDS", 2.5)  # longer than a first pause before the next watch
    monkeypatch.setattr(listeners, "AGAIN_SECONDS", 0.5)
    heard = Heard()
    telling = asyncio.create_task(listeners.report_outages(place.simulator.cluster.pilot.pod, heard))
    place.api.cuts()  # over in a moment: not told
    await asyncio.sleep(3)
    assert heard.said == []
    place.api.goes_away()
    await eventually(lambda: so(heard.said == ["away"] * 3))
    place.is_well()
    await eventually(lambda: so(heard.said[-1:] == ["back"]))
    telling.cancel()
    assert heard.said.count("back") == 1


async def test_a_pod_that_was_deleted_in_an_outage_ends_the_pilot_after_it(programs: Programs) -> None:
    async with simulate(programs) as cluster:
        async with cluster.server.away():
            await cluster.server.delete()
        async with asyncio.timeout(20):
            await cluster.ended.wait()
