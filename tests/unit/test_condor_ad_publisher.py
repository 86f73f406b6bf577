"""Reasons that keep jobs away from the slot: several, each of which is withdrawn by itself."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from k8spilot.common import logs
from k8spilot.common.errors import ClusterRefused, ImageNotHere, ImageNotNow, NotHere
from k8spilot.condor.ads.publisher import AdPublisher, PublishedAds
from k8spilot.condor.ads.startd_ad import StartdAd, Value
from k8spilot.model import avoided_images
from k8spilot.model.reference import Reference


class Ad(StartdAd):
    """In the place of a startd's."""

    def __init__(self) -> None:
        self.told: dict[str, Value] = {}
        self.changed = asyncio.Event()

    @property
    def is_connected(self) -> bool:
        return True

    @property
    def expected(self) -> bool:
        return True

    async def set(self, attributes: Mapping[str, Value]) -> bool:
        self.told.update(attributes)
        self.changed.set()
        return True

    async def query(self, attributes: Sequence[str]) -> list[dict[str, Any]] | None:
        return None

    @property
    def seconds(self) -> float:
        """For how long no job is taken."""
        return self.number("K8SApiAwayUntil") - time.time() if self.told["K8SApiAwayUntil"] else 0

    def number(self, name: str) -> float:
        """A number that was told."""
        value = self.told[name]
        assert isinstance(value, int)
        return value


def publisher(ad: Ad, number: int = 1) -> AdPublisher:
    """The publisher of a slot."""
    return AdPublisher(PublishedAds(ad, cast("Any", None)), number)


async def test_the_slot_is_closed_for_as_long_as_any_reason_lasts() -> None:
    ad = Ad()
    listener = publisher(ad)
    await listener.away("pull", 100)
    assert 98 < ad.seconds <= 100
    await listener.away("pull", 10)
    assert ad.seconds > 98
    await listener.away("api", 50)
    assert ad.seconds > 98
    await listener.back("pull")
    assert 48 < ad.seconds <= 50
    await listener.back("api")
    assert ad.told == {"K8SApiAwayUntil": None}


async def test_a_reason_that_nobody_takes_back_ends_by_itself() -> None:
    ad = Ad()
    listener = publisher(ad)
    await listener.away("remains", -1)
    assert ad.told == {"K8SApiAwayUntil": None}
    await listener.back("api")
    assert ad.told == {"K8SApiAwayUntil": None}


@pytest.mark.parametrize(
    ("error", "avoided"),
    [
        (ImageNotNow("no answer", "registry"), "registry.example:5000"),
        (ImageNotNow("no room"), "registry.example:5000/a/b:1"),
        (ImageNotHere("no such host", "registry"), "registry.example:5000"),
        (ImageNotHere("no password", "repository"), "registry.example:5000/a/b"),
        (ClusterRefused("a policy"), "registry.example:5000/a/b:1"),
    ],
)
async def test_what_was_not_available_is_avoided_and_no_more_than_that(
    error: NotHere | ImageNotNow, avoided: str
) -> None:
    ad, image = Ad(), Reference.parse("registry.example:5000/a/b:1")
    listener = publisher(ad)
    await (listener.left(image, error) if isinstance(error, NotHere) else listener.unavailable(image, error))
    assert ad.told["K8SAvoidedImages"] == avoided
    assert 598 < ad.number("K8SAvoidUntil") - time.time() <= 600


async def test_several_are_avoided_at_a_time() -> None:
    ad = Ad()
    listener = publisher(ad)
    for name in ("a.example/x", "b.example/x", "a.example/x"):
        await listener.unavailable(Reference.parse(name), ImageNotNow("no answer", "registry"))
    assert ad.told["K8SAvoidedImages"] == "b.example,a.example"


async def test_a_name_whose_time_is_over_is_withdrawn_while_another_is_avoided(monkeypatch: pytest.MonkeyPatch) -> None:
    ad = Ad()
    ads = PublishedAds(ad, cast("Any", None))
    listener = AdPublisher(ads, 1)
    withdrawing = asyncio.create_task(ads.withdraw_avoided())
    monkeypatch.setattr(avoided_images, "_FIRST_SECONDS", 0.5)
    await listener.unavailable(Reference.parse("a.example/x"), ImageNotNow("no answer", "registry"))
    monkeypatch.setattr(avoided_images, "_FIRST_SECONDS", 2.0)
    await listener.unavailable(Reference.parse("b.example/x"), ImageNotNow("no answer", "registry"))
    found: list[Value] = []
    async with asyncio.timeout(20):
        while not found or found[-1] is not None:
            ad.changed.clear()
            found.append(ad.told["K8SAvoidedImages"])
            if found[-1] is not None:
                await ad.changed.wait()
    assert found == ["a.example,b.example", "b.example", None]
    assert ad.told["K8SAvoidUntil"] is None
    withdrawing.cancel()


async def test_a_black_hole_is_told_until_when_it_is_one() -> None:
    ad = Ad()
    await publisher(ad).black_hole(600, "jobs fail")
    assert 598 < ad.number("K8SBlackHoleUntil") - time.time() <= 600


async def test_a_job_that_uses_too_much_disk_is_named_in_its_slot_until_it_is_gone() -> None:
    ad = Ad()
    ads = PublishedAds(ad, cast("Any", None))
    slots = {number: AdPublisher(ads, number) for number in (1, 2)}
    for number, slot in slots.items():
        logs.about(logs.Subject(job=f"7.{number}", slot=f"slot{number}"))
        await slot.excess("it wrote too much")
    told = cast("dict[str, dict[str, Any]]", ad.told["K8SSlots"])
    assert [(told[name]["HoldJob"], told[name]["HoldReason"]) for name in ("c1", "c2")] == [
        ("7.1", "it wrote too much"), ("7.2", "it wrote too much")
    ]  # fmt: skip
    assert all(abs(one["HoldSince"] - time.time()) < 3 for one in told.values())
    await slots[1].excess("")
    assert told["c1"] == {"HoldJob": None, "HoldReason": None, "HoldSince": None}
    assert told["c2"]["HoldJob"] == "7.2"


async def test_a_slot_whose_reason_is_over_does_not_open_what_another_closes() -> None:
    ad = Ad()
    ads = PublishedAds(ad, cast("Any", None))
    slots = {number: AdPublisher(ads, number) for number in (1, 2)}
    for slot in slots.values():
        await slot.away("pull", 100)
    await slots[1].back("pull")
    assert ad.seconds > 98
    await slots[2].back("pull")
    assert ad.seconds == 0


async def test_a_report_that_ends_late_does_not_withdraw_that_of_the_next_pull() -> None:
    ad = Ad()
    listener = publisher(ad)
    await listener.pulling(Reference.parse("busybox"))
    await listener.pulling(Reference.parse("debian"))
    await listener.pulled()
    assert "pulling docker.io/library/debian" in str(ad.told["K8SSlots"])
    await listener.pulled()
    assert "pulling" not in str(ad.told["K8SSlots"])
