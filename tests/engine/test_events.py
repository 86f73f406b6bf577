"""Events of a pilot's pod: what an operator sees with `kubectl describe`."""

import pytest

from tests.engine.observed import events, metrics, observed, told
from tests.engine.rings import Simulated, eventually, simulated
from tests.simulator.programs import Programs


async def test_normal_jobs_make_one_event_for_an_image(simulator: Simulated) -> None:
    for _ in range(3):
        await simulator.shell(simulator.image("busybox"), "exit 0")
    await told(simulator, "Bound")
    await simulator.shell(simulator.image("busybox"), "exit 0")
    assert [one["reason"] for one in simulator.cluster.server.told.values()] == ["Bound"]
    assert simulator.cluster.server.requests["event"] == 1


async def test_an_image_that_is_refused_again_is_counted_in_one_event(simulator: Simulated) -> None:
    body = {"Image": "registry.test:5000/none:latest", "Cmd": ["true"]}
    for number in range(3):
        name = f"HTCJob7_{number}_slot1_PID1"
        assert (await simulator.ask("POST", "/containers/create", body, {"name": name})).status == 500

    async def is_counted() -> bool:
        return events(simulator).get("ImageRefused", {}).get("count") == 3

    await eventually(is_counted)
    event = events(simulator)["ImageRefused"]
    assert event["message"].startswith("Job 7.0 will be held: ")
    assert event["involvedObject"]["name"] == "pilot"
    assert len(simulator.cluster.server.told) == 1


@pytest.mark.parametrize("architecture", ["arm64", "unknown"])
async def test_an_image_for_another_machine_is_refused_with_an_event_before_the_pod_is_changed(
    simulator: Simulated, architecture: str
) -> None:
    """Also one without an index, of which HTCondor asks only after the pull."""
    server = simulator.cluster.server
    image = simulator.cluster.images.add("other:1", architecture=architecture).reference
    before = server.requests["patch"]
    await simulator.ask("POST", "/images/create", params={"fromImage": image.removesuffix(":1"), "tag": "1"})
    inspected = await simulator.ask("GET", f"/images/{image}/json")
    assert inspected.status != 200 or inspected.json["Architecture"] == "amd64"  # create tells why
    body = {"Image": image, "Cmd": ["true"]}
    answer = await simulator.ask("POST", "/containers/create", body, {"name": "HTCJob7_0_slot1_PID1"})
    assert answer.status == 500
    assert f"image {image} cannot run here: it " in answer.message
    assert answer.message in (await told(simulator, "ImageRefused"))["message"]
    assert server.requests["patch"] == before


async def test_an_event_that_has_expired_is_made_anew_without_a_word(
    simulator: Simulated, caplog: pytest.LogCaptureFixture
) -> None:
    body = {"Image": "registry.test:5000/none:latest", "Cmd": ["true"]}
    for number in range(2):
        await simulator.ask("POST", "/containers/create", body, {"name": f"HTCJob7_{number}_slot1_PID1"})
        await told(simulator, "ImageRefused")
        simulator.cluster.server.told.clear()
    assert "Event" not in caplog.text


async def test_what_a_pod_cannot_do_is_told_as_an_event(simulator: Simulated) -> None:
    body = {"Image": simulator.image("busybox"), "Cmd": ["true"], "HostConfig": {"Privileged": True}}
    answer = await simulator.ask("POST", "/containers/create", body, {"name": "HTCJob7_0_slot1_PID1"})
    assert answer.status == 409
    assert answer.message in (await told(simulator, "JobRefused"))["message"]


async def test_a_pilot_that_may_not_make_events_says_so_once(
    simulator: Simulated, caplog: pytest.LogCaptureFixture
) -> None:
    simulator.cluster.server.events_allowed = False
    for image in ("busybox", "debian"):
        assert (await simulator.shell(simulator.image(image), "exit 4")).code == 4
    assert simulator.cluster.server.requests["event"] == 1
    assert len([one for one in caplog.records if "cannot be created" in one.getMessage()]) == 1


async def test_an_engine_that_is_not_the_first_says_so(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K8SPILOT_ENGINE_DEATHS", "2")
    async with observed(programs) as (engine, address):
        assert "for the 2nd time" in (await told(engine, "Recovered"))["message"]
        assert (await metrics(address))["k8spilot_engine_restarts_total"] == 2


async def test_the_end_of_an_engine_is_told(programs: Programs) -> None:
    async with simulated(programs) as engine:
        await engine.cluster.restart_pilot()
        assert "Drained" in events(engine)
