"""The pauses between watches of a pod."""

import pytest

from k8spilot.common.errors import ClusterError
from k8spilot.kube.backoff import SPREAD_SECONDS
from k8spilot.kube.client import ApiRefusal
from k8spilot.kube.watch_pace import WatchPace

LONG, SHORT, CALM, BUSY = 240.0, 0.1, 600.0, 1.0
LOST = ClusterError("lost")
EXPIRED = ApiRefusal(410, "too old resource version")


@pytest.fixture(autouse=True)
def _delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delays without jitter; a spread of all pilots has its longest."""
    monkeypatch.setattr("random.uniform", lambda _low, high: high)


def test_a_watch_that_the_server_ends_after_a_while_is_followed_by_another_at_once() -> None:
    assert WatchPace().pause(None, lasted=LONG, since_change=CALM) == 0


def test_a_watch_that_ends_soon_again_and_again_is_followed_after_growing_pauses() -> None:
    pace = WatchPace()
    pauses = [
        pace.pause(fault, lasted=SHORT, since_change=CALM) for fault in (None, LOST, LOST, None, LOST, LOST, LOST)
    ]
    assert pauses == [1, 2, 4, 8, 16, 30, 30]


def test_a_steady_watch_that_is_lost_returns_at_a_random_time_unless_a_change_is_under_way() -> None:
    assert WatchPace().pause(LOST, lasted=LONG, since_change=CALM) == SPREAD_SECONDS
    assert WatchPace().pause(LOST, lasted=LONG, since_change=BUSY) == 1


def test_a_server_that_is_overloaded_is_given_the_time_that_it_asks_for() -> None:
    overloaded = ApiRefusal(429, "too many requests", 7.0)
    assert WatchPace().pause(overloaded, lasted=SHORT, since_change=CALM) == 7 + 1
    assert WatchPace().pause(overloaded, lasted=LONG, since_change=CALM) == 7 + SPREAD_SECONDS


def test_a_loss_soon_after_a_steady_watch_returns_at_a_random_time_too_and_only_the_first_one() -> None:
    pace = WatchPace()
    assert pace.pause(None, lasted=LONG, since_change=CALM) == 0
    assert pace.pause(LOST, lasted=SHORT, since_change=CALM) == SPREAD_SECONDS
    assert pace.pause(LOST, lasted=SHORT, since_change=CALM) == 30  # long pauses follow


def test_a_version_that_has_expired_shortens_the_pause_once() -> None:
    pace = WatchPace()
    for _ in range(6):
        pace.pause(LOST, lasted=SHORT, since_change=CALM)
    assert [pace.pause(EXPIRED, lasted=SHORT, since_change=CALM) for _ in range(3)] == [1, 2, 4]
    assert pace.pause(LOST, lasted=SHORT, since_change=CALM) == 8


def test_an_expired_version_of_a_steady_watch_is_no_reason_to_wait_for_other_pilots() -> None:
    assert WatchPace().pause(EXPIRED, lasted=LONG, since_change=CALM) == 1
