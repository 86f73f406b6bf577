"""The tenant of a slot, and whether its next job may run in the same container."""

from dataclasses import replace
from typing import Any

import pytest

from k8spilot.model.reuse import TENANT, Tenant, tenant_of

FIRST = Tenant("<192.0.2.1:9618>#1#1#...", "alice@pool", "alice@pool", "7.0")
AD: dict[str, Any] = dict(zip(TENANT, ("slot1@pod", FIRST.claim, FIRST.user, FIRST.owner, FIRST.job), strict=True))


def test_the_next_job_of_a_claim_may_follow_the_last() -> None:
    assert replace(FIRST, job="7.1").may_follow(FIRST)


@pytest.mark.parametrize("name", ["claim", "user", "owner"])
def test_a_job_of_another_claim_user_or_owner_may_not(name: str) -> None:
    assert not replace(FIRST, **{name: "another"}).may_follow(FIRST)


def test_the_tenant_is_that_of_the_slot() -> None:
    others = [{**AD, "Name": f"{name}@pod", "JobId": "9.9"} for name in ("slot1_1", "slot10", "slot2")]
    assert tenant_of([*others, AD], "slot1") == FIRST


@pytest.mark.parametrize("name", TENANT)
@pytest.mark.parametrize("value", [None, "", 7, ["x"]])
def test_a_slot_without_all_of_it_has_no_known_tenant(name: str, value: object) -> None:
    assert tenant_of([{**AD, name: value}], "slot1") is None


def test_a_startd_without_slots_tells_none() -> None:
    assert tenant_of([], "slot1") is None
