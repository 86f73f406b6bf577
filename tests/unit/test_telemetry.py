"""Events, metrics and probes of a pilot: their number, their readers and their words."""

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from k8spilot.common import aio, logs
from k8spilot.common.errors import (
    BindError,
    ClusterError,
    ClusterRefused,
    Displaced,
    ImageError,
    ImageNotHere,
    ImageNotNow,
    PilotError,
    Refused,
    Untimely,
)
from k8spilot.common.http_limits import ConnectionLimiter
from k8spilot.model.event_reasons import EVENTS, EventReason
from k8spilot.model.outcome import Outcome
from k8spilot.model.payload_state import PayloadState
from k8spilot.model.reference import Reference
from k8spilot.telemetry import exporter as door
from k8spilot.telemetry import health
from k8spilot.telemetry.event_recorder import EventRecorder
from k8spilot.telemetry.metrics import Metrics, Now, NowOfSlot
from k8spilot.telemetry.slot_recorder import SlotRecorder

if TYPE_CHECKING:
    from k8spilot.kube.events import Events


class Api:
    """In the place of Events: what the API would have."""

    def __init__(self) -> None:
        self.requests = 0
        self.events: dict[tuple[str, str], tuple[str, str, int]] = {}

    async def publish(self, reason: EventReason, message: str, *, key: str = "", count: int = 1) -> int:
        assert reason in EVENTS
        self.requests += 1
        _, first, before = self.events.get((reason, key or message), (reason, message, 0))
        self.events[reason, key or message] = (reason, first, before + count)
        return before + count

    async def publish_again(self, reason: EventReason, message: str, count: int, *, key: str = "") -> bool:
        self.requests += 1
        if (reason, key or message) not in self.events:
            return False
        self.events[reason, key or message] = (reason, self.events[reason, key or message][1], count)
        return True


class Told:
    """A teller, what it made, and what it did not."""

    def __init__(self) -> None:
        self.api = Api()
        self.suppressed = 0
        self.event_recorder = EventRecorder(cast("Events", self.api), self._suppress)

    def _suppress(self) -> None:
        self.suppressed += 1

    async def all(self) -> list[tuple[str, str, int]]:
        work = asyncio.create_task(self.event_recorder.run())
        await self.event_recorder.flush()
        work.cancel()
        return list(self.api.events.values())


async def test_an_event_that_the_api_server_has_forgotten_is_made_anew() -> None:
    told = Told()
    told.event_recorder.record("JobLost", "Job 1.0 was lost.")
    await told.all()
    told.api.events.clear()
    told.event_recorder.record("JobLost", "Job 1.0 was lost.")
    assert await told.all() == [("JobLost", "Job 1.0 was lost.", 1)]


async def test_what_goes_on_beside_the_jobs_begins_again_when_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aio, "_RESTART_SECONDS", 0.01)
    done: list[int] = []

    async def work() -> None:
        done.append(len(done))
        if len(done) < 3:
            raise ValueError

    await aio.restarting(work, "this", may_end=True)
    assert done == [0, 1, 2]


async def test_what_goes_on_beside_the_jobs_and_ends_by_itself_is_a_fault_and_begins_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(aio, "_RESTART_SECONDS", 0.01)
    begun: asyncio.Queue[None] = asyncio.Queue()

    async def work() -> None:
        begun.put_nowait(None)

    going_on = asyncio.create_task(aio.restarting(work, "this"))
    for _ in range(3):
        await begun.get()
    going_on.cancel()
    assert caplog.text.count("This ended by itself; this is a defect of k8spilot.") >= 2


async def test_a_flood_makes_ten_events_and_no_more() -> None:
    told = Told()
    for number in range(1000):
        told.event_recorder.record("JobRefused", f"Job {number} asks for nonsense.")
        await asyncio.sleep(0)
    assert len(await told.all()) == 10
    assert told.suppressed == 990


async def test_the_same_is_counted_in_one_event() -> None:
    told = Told()
    for _ in range(5):
        told.event_recorder.record("ImageRefused", "There is no such image.")
        await told.all()
    assert await told.all() == [("ImageRefused", "There is no such image.", 5)]


async def test_what_matters_is_told_however_much_was_told_before() -> None:
    told = Told()
    for number in range(20):
        told.event_recorder.record("JobRefused", str(number))
    told.event_recorder.record("Draining", "It ends.", always=True)
    assert ("Draining", "It ends.", 1) in await told.all()


async def test_normal_binds_are_told_once_for_each_image() -> None:
    told = Told()
    for _ in range(3):
        for image in ("a", "b"):
            told.event_recorder.record_once("Bound", f"Image {image} runs.", image)
            await told.all()
    assert [(reason, count) for reason, _, count in await told.all()] == [("Bound", 1), ("Bound", 1)]
    assert told.api.requests == 2


async def test_an_event_that_cannot_be_made_does_not_stop_the_next(caplog: pytest.LogCaptureFixture) -> None:
    told = Told()
    publish, told.api.publish = told.api.publish, None  # type: ignore[method-assign, assignment]
    told.event_recorder.record("Draining", "one")
    await told.all()
    told.api.publish = publish  # type: ignore[method-assign]
    told.event_recorder.record("Drained", "two")
    assert await told.all() == [("Drained", "two", 1)]
    assert "Draining" in caplog.text


def now(**other: Any) -> Now:
    return Now(**{"version": "1.2", "slots": [NowOfSlot("payload", PayloadState.IDLE)], "restarts": 0, **other})


async def recorder() -> tuple[SlotRecorder, Told, Callable[[], str]]:
    told, metrics = Told(), Metrics()
    return SlotRecorder(metrics, told.event_recorder), told, lambda: metrics.text(now()).decode()


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (None, "bound"),
        (ImageError("no such image"), "refused"),
        (ImageNotNow("away"), "unavailable"),
        (ImageNotHere("no password"), "left"),
        (BindError("cannot be run"), "failed"),
        (ClusterRefused("no right"), "api"),
        (ClusterError("away"), "api"),
        (Displaced("somebody else"), "displaced"),
        (asyncio.CancelledError(), "given_up"),
        (ValueError("a fault"), "failed"),
    ],
)
async def test_binds_are_counted_by_their_result(error: BaseException | None, result: str) -> None:
    book, _, text = await recorder()
    book.bind_ended(Reference.parse("busybox"), 0.3, error)
    assert f'k8spilot_binds_total{{result="{result}"}} 1.0' in text()
    assert f"k8spilot_bind_duration_seconds_count {float(error is None)}" in text()


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        (ImageError("no such image"), "image_refused", "ImageRefused"),
        (ImageNotHere("no password"), "image_refused", "ImageRefused"),
        (BindError("cannot be run"), "image_failed", "ImageRefused"),
        (Refused("not here"), "not_supported", "JobRefused"),
        (ClusterRefused("no right"), "api", "JobRefused"),
        (Untimely("another has it"), "untimely", None),
        (PilotError("whatever"), "fault", "JobRefused"),
    ],
)
async def test_holds_are_counted_by_their_class(error: PilotError, kind: str, reason: str | None) -> None:
    book, told, text = await recorder()
    logs.about(logs.Subject(job="12.0", slot="slot1"))
    book.held(error, "create")
    assert f'k8spilot_holds_total{{class="{kind}"}} 1.0' in text()
    expected = [] if reason is None else [(reason, f"Job 12.0 will be held: {error}.", 1)]
    assert await told.all() == expected


async def test_a_job_that_is_left_to_other_sites_is_an_event_of_its_repository() -> None:
    book, told, text = await recorder()
    logs.about(logs.Subject(job="12.0", slot="slot1"))
    for tag in ("1", "2"):
        await book.left(Reference.parse(f"docker.io/a/b:{tag}"), ImageNotHere(f"no password for {tag}", "repository"))
    assert await told.all() == [("ImageLeft", "Job 12.0 is left to other sites: no password for 1.", 2)]
    assert book.faults[-1].words == "Job 12.0 is left to other sites: no password for 2."
    assert "k8spilot_holds_total{" in text()
    assert not re.search(r"k8spilot_holds_total\{.*\} [1-9]", text())


async def test_a_slot_that_is_closed_because_jobs_fail_is_an_event_and_a_metric() -> None:
    book, told, _ = await recorder()
    await book.black_hole(600, "the last jobs of 3 users failed")
    assert await told.all() == [("BlackHole", "The last jobs of 3 users failed.", 1)]
    assert book.closure is not None
    assert book.closure.lasts
    text = Metrics().text(now(closed_until=datetime(2027, 1, 15, 8, tzinfo=UTC))).decode()
    assert "k8spilot_black_hole_until_timestamp_seconds 1.8e+09" in text
    await book.black_hole(-1, "it is over")
    assert not book.closure.lasts


async def test_a_container_that_somebody_makes_by_hand_holds_no_job() -> None:
    book, told, text = await recorder()
    logs.about(logs.Subject(job="mine"))
    book.held(Refused("not here"), "create")
    assert 'class="not_supported"} 0.0' in text()
    assert await told.all() == []


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Outcome.of(3 << 8), "exited"),
        (Outcome.of(137 << 8), "exited"),
        (Outcome.of(9), "signalled"),
        (Outcome.of(9, out_of_memory=True), "out_of_memory"),
        (Outcome.killed_for_memory(), "out_of_memory"),
    ],
)
async def test_ends_are_counted_by_their_reason_and_are_no_events(outcome: Outcome, reason: str) -> None:
    book, told, text = await recorder()
    book.ended(outcome)
    assert f'k8spilot_payload_exits_total{{reason="{reason}"}} 1.0' in text()
    assert await told.all() == []


async def test_what_users_and_registries_say_stays_on_one_line() -> None:
    book, told, _ = await recorder()
    book.lost("so\nsays\x1b[2J it")
    ((_, message, _),) = await told.all()
    assert message.isprintable()


def test_requests_are_read_where_they_are_counted() -> None:
    text = Metrics().text(now(requests={("patch", "200"): 3, ("watch", "none"): 1})).decode()
    assert 'k8spilot_api_requests_total{code="200",verb="patch"} 3.0' in text
    assert 'k8spilot_api_requests_total{code="none",verb="watch"} 1.0' in text


def test_a_job_that_runs_has_its_beginning_there() -> None:
    began = datetime(2026, 11, 21, tzinfo=UTC)
    running = Metrics().text(now(slots=[NowOfSlot("payload", PayloadState.RUNNING, began)])).decode()
    assert '\nk8spilot_job_start_timestamp_seconds{container="payload"} 1.7952192e+09\n' in running
    assert "\nk8spilot_job_start_timestamp_seconds{" not in Metrics().text(now()).decode()


def test_one_address_gets_a_few_connections_and_all_together_some_more() -> None:
    entrance = ConnectionLimiter(32, 4)
    assert [entrance.enter("a") for _ in range(5)] == [True] * 4 + [False]
    others = [entrance.enter(f"b{number}") for number in range(40)]
    assert others == [True] * 28 + [False] * 12
    entrance.leave("a")
    assert entrance.enter("a")
    assert not entrance.enter("a")


@pytest.mark.parametrize(
    ("peer", "own", "who"),
    [
        (("127.0.0.1", 5), ("127.0.0.1", 9), "the pod"),
        (("127.7.7.7", 5), ("127.0.0.1", 9), "the pod"),
        (("10.0.0.5", 5), ("10.0.0.5", 9), "the pod"),
        (("::1", 5, 0, 0), ("::1", 9, 0, 0), "the pod"),
        (("10.0.0.1", 5), ("10.0.0.5", 9), "10.0.0.1"),
        (None, None, "the pod"),
    ],
)
def test_what_is_in_the_pod_counts_as_one_address(peer: Any, own: Any, who: str) -> None:
    assert door._origin(peer, own) == who


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nOK", ""),
        (b"HTTP/1.1 500 Internal Server Error\r\n\r\n", "500"),
        (b"", "does not answer"),
        (None, "does not answer"),
    ],
)
async def test_an_engine_is_alive_if_its_socket_is_answered(
    answer: bytes | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_PING_SECONDS", 0.2)

    asked, closed = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        if answer is None:
            await asked.wait()
        writer.write(answer or b"")
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        closed.set()

    path = tmp_path / "docker.sock"
    async with await asyncio.start_unix_server(serve, path), asyncio.timeout(10):
        found = await health.dead(path)
        asked.set()
        await closed.wait()
    assert (words in found) if words else not found


async def test_an_engine_that_does_not_listen_is_dead(tmp_path: Path) -> None:
    assert "No such file" in await health.dead(tmp_path / "docker.sock")
