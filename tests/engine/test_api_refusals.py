"""The API server takes what the pilot asks for badly, or the pilot itself: policies, rights, certificates, tokens."""

import asyncio
from pathlib import Path

import pytest

from lab.faulty import Fault
from tests.engine.faulty import JOB, NO_RIGHT, Place, faulty_simulator, lost, so
from tests.engine.rings import eventually, simulated
from tests.simulator.pod import payload_image
from tests.simulator.programs import Programs

POLICIES = {
    "policy": (422, "Invalid", "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: images of x only"),
    "webhook": (400, "BadRequest", 'admission webhook "images.example.org" denied the request: no such images here'),
    "plugin": (403, "Forbidden", 'pods "pilot" is forbidden: image policy webhook backend denied one or more images'),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", POLICIES)
async def test_a_policy_that_refuses_the_image_gives_the_job_back_with_its_words(place: Place, case: str) -> None:
    status, reason, words = POLICIES[case]
    engine = place.simulator
    place.api.fails(Fault(verb="patch", status=status, error=(reason, words)))
    name = await engine.create(engine.image("busybox"), "true", name="HTCJob1_0_slot1_PID1", **JOB)
    assert words in await lost(engine, name)
    await engine.remove(name)
    # It refuses the idle image, too: so it is not about this job, and the next ones had better go elsewhere.
    async with asyncio.timeout(10):
        await engine.cluster.pilot.pod.connectivity.lasting(0)
    place.is_well()
    assert (await engine.shell(engine.image("busybox"), "exit 4", **JOB)).code == 4
    assert not engine.cluster.pilot.pod.connectivity.fault


async def test_a_policy_that_refuses_the_idle_image_on_the_way_to_another_holds_no_job(programs: Programs) -> None:
    async with simulated(programs, idle_after_seconds=60, patience_seconds=1.0) as engine:
        kubelet, server = engine.cluster.kubelet, engine.cluster.server
        kubelet.fail_pulls("registry.test:5000/debian", "manifest unknown")
        pulled = kubelet.hold("registry.test:5000/debian")
        body = {"Image": engine.image("debian"), "Cmd": ["true"], **JOB}
        creating = asyncio.create_task(engine.ask("POST", "/containers/create", body))
        await server.until(lambda pod: payload_image(pod).startswith("registry.test:5000/debian"))
        server.refusal = (422, "images of x only")  # before the pilot has a reason to return to the idle image
        pulled.set()
        assert (await creating).status == 500
        assert "images of x only" in await lost(engine, await engine.create(engine.image("busybox"), "true", **JOB))
        server.refusal = None


async def test_a_policy_that_refuses_only_one_image_closes_nothing(place: Place) -> None:
    engine = place.simulator
    # Tried once more without what no job needs: who manages the pod's fields.
    place.api.fails(Fault(verb="patch", status=403, error=("Forbidden", "not that one"), times=2))
    assert "not that one" in await lost(engine, await engine.create(engine.image("busybox"), "true", **JOB))
    await eventually(lambda: so(engine.cluster.server.requests["patch"] == 1))
    assert not engine.cluster.pilot.pod.connectivity.fault


@pytest.mark.parametrize("words", [NO_RIGHT[1], 'pods "pilot" is forbidden: not yet ready to handle request'])
async def test_a_right_that_the_pilot_has_lost_is_no_reason_to_hold_a_job(
    short: None, programs: Programs, tmp_path: Path, words: str
) -> None:
    async with faulty_simulator(programs, tmp_path, patience_seconds=0.5) as place:
        engine = place.simulator
        place.api.fails(Fault(verb="patch", status=403, error=("Forbidden", words)))
        name = await engine.create(engine.image("busybox"), "true", **JOB)
        assert words in await lost(engine, name)
        assert words in engine.cluster.pilot.pod.connectivity.fault


# --- certificates and tokens ---


async def test_a_token_that_was_renewed_is_used_at_once(place: Place) -> None:
    engine = place.simulator
    place.api.fails(Fault(status=401, error=("Unauthorized", "Unauthorized"), token="old"))  # noqa: S106 -- no secret
    place.api.cuts()
    (place.own / "token").write_text("new")
    assert (await engine.shell(engine.image("busybox"), "exit 4", **JOB)).code == 4


async def test_an_authority_that_was_renewed_is_trusted_at_once(place: Place) -> None:
    engine = place.simulator
    place.api.presents(place.strangers / "apiserver.crt", place.strangers / "apiserver.key")
    place.api.cuts()
    await eventually(lambda: so("certificate" in engine.cluster.pilot.pod.connectivity.fault))
    (place.strangers / "ca.crt").replace(place.own / "ca.crt")
    assert (await engine.shell(engine.image("busybox"), "exit 4", **JOB)).code == 4
    async with asyncio.timeout(20):
        await engine.cluster.pilot.pod.connectivity.over()
