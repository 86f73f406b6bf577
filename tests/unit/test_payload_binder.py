"""Conditions for which a change of the image waits, side by side."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from k8spilot.common.aio import first_of, side_by_side
from k8spilot.common.errors import BindError, ClusterError
from k8spilot.kube.own_pod import Sidecar
from k8spilot.model.image import Image
from k8spilot.model.reference import Reference
from k8spilot.payload.binding.binder import Binder
from k8spilot.payload.binding.image_change import ImageChange
from k8spilot.payload.binding.image_requests import ImageRequests
from k8spilot.payload_init.channel import Channel

_REFERENCE = Reference.parse("registry.test/image:1")


async def _never(*_: object) -> NoReturn:
    await asyncio.Event().wait()
    raise AssertionError


def _binder() -> Binder:
    """One whose pod never changes, and whose API server is never away."""
    pod = SimpleNamespace(until=_never, connectivity=SimpleNamespace(lasting=_never))
    return Binder(
        Sidecar("payload", "k8spilot/bind"),
        cast("Any", pod),
        cast("Any", None),
        cast("Any", None),
        lambda: "",
        frozenset,
    )


def _change() -> ImageChange:
    return ImageChange(
        image=Image(_REFERENCE, None), wanted="wanted", name="name", before=cast("Any", None), last=None, requested=0.0
    )


async def test_an_arrival_that_failed_is_not_taken_for_an_arrival() -> None:
    async def fail() -> None:
        raise ClusterError("the pod has no such container")

    with pytest.raises(ClusterError, match="no such container"):
        await _binder()._arrive(_change(), _never(), fail())


async def test_what_waits_beside_an_arrival_has_ended_with_it(caplog: pytest.LogCaptureFixture) -> None:
    """Also what fails at the same moment: asyncio would log that nobody has asked for its exception."""
    before = asyncio.all_tasks()

    async def refuse() -> BindError:
        raise ClusterError("at the same moment")

    async def arrive() -> None:
        pass

    await _binder()._arrive(_change(), refuse(), arrive())
    assert asyncio.all_tasks() == before
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


async def test_what_is_cancelled_at_the_end_of_a_context_has_ended_by_then() -> None:
    ended: list[str] = []

    async def slow() -> None:
        try:
            await _never()
        finally:
            await asyncio.sleep(0)
            ended.append("slow")

    async with side_by_side(slow(), asyncio.sleep(0)) as tasks:
        await first_of(*tasks)
    assert ended == ["slow"]


async def test_a_fault_beside_what_is_waited_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fault() -> None:
        raise KeyError("x")

    async with side_by_side(fault(), asyncio.sleep(0.01)) as tasks:
        await tasks[1]
    assert "defect of k8spilot" in caplog.text


def _channel(*, is_open: bool = True) -> Channel:
    return cast("Channel", SimpleNamespace(still_open=lambda: is_open))


def test_a_container_of_an_image_that_was_asked_for_may_come_late_until_another_one_is_replaced() -> None:
    requests, first, second = ImageRequests(), _channel(), _channel()
    assert not requests.may_come_late("sha256:1", first)
    requests.add("a@sha256:1", first)
    requests.add("a@sha256:2", first)
    assert requests.may_come_late("sha256:1", first)
    assert not requests.may_come_late("sha256:3", first)
    requests.add("a@sha256:3", second)  # its container has come: that of an earlier one cannot any more
    assert not requests.may_come_late("sha256:1", second)


def test_a_container_that_ended_by_itself_may_come_once_more() -> None:
    assert ImageRequests().may_come_late("sha256:1", None)
    assert ImageRequests().may_come_late("sha256:1", _channel(is_open=False))


def test_words_about_an_earlier_request_are_of_another() -> None:
    requests = ImageRequests()
    requests.add("a@sha256:1", None)
    requests.add("a@sha256:2", None)
    assert requests.is_of_another("cannot pull a@sha256:1", "a@sha256:2")
    assert not requests.is_of_another("cannot pull a@sha256:2", "a@sha256:2")
    assert not requests.is_of_another("cannot start", "a@sha256:2")
    assert requests.is_recent("a@sha256:1")
    assert not requests.is_recent("by-hand")


def test_the_kubelet_is_heard_of_until_it_is_asked_again() -> None:
    requests = ImageRequests()
    requests.add("a@sha256:1", None)
    assert requests.unacknowledged
    requests.acknowledge()
    assert not requests.unacknowledged
