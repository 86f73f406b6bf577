"""A pod that is deleted with too little time hurries."""

import asyncio
from typing import Any

import pytest

from k8spilot.kube.client import Access, Api
from k8spilot.kube.deletion import watch_deletion
from k8spilot.kube.own_pod import OwnPod


@pytest.mark.parametrize(("grace", "hurries"), [(0, True), (1, True), (99, False), (100, False)])
async def test_only_a_grace_period_that_is_too_short_makes_haste(grace: int, hurries: bool) -> None:
    acted: list[float] = []
    loop = asyncio.get_running_loop()

    def deleted(version: int, grace: int) -> dict[str, Any]:
        metadata = {"name": "pilot", "resourceVersion": str(version), "deletionTimestamp": "2026-11-21T00:00:00Z"}
        return {"metadata": {**metadata, "deletionGracePeriodSeconds": grace}}

    async with Api(Access("http://127.0.0.1:1")) as api:
        pod = OwnPod(api, "pilots", "pilot")
        task = asyncio.create_task(watch_deletion(pod, enough=99, last=4.8, act=lambda: acted.append(loop.time())))
        await pod._store({"metadata": {"name": "pilot", "resourceVersion": "1"}})
        await asyncio.sleep(0.05)
        assert not acted
        began = loop.time()
        await pod._store(deleted(2, grace))
        await asyncio.sleep(0.3)
        if not hurries:
            assert not acted
            began, grace = loop.time(), 5
            await pod._store(deleted(3, grace))  # by somebody who does not wait
        async with asyncio.timeout(20):
            await task
    assert -0.01 <= acted[0] - began - max(0, grace - 4.8) < 4
