"""The engine finds the pod's GPUs, once, before any job: against the lab's NVML in a simulated payload container."""

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from k8spilot.cli import status
from k8spilot.common import unix_http
from k8spilot.common.pilot_api import INVENTORY
from k8spilot.gpu.discovery.claims import NVIDIA
from k8spilot.gpu.discovery.record import FILE
from k8spilot.payload import gpu_discovery
from lab.gpu import nvml
from tests.engine.observed import events, told
from tests.engine.rings import SANDBOX, Simulated, eventually, simulated
from tests.simulator.cluster import Idle
from tests.simulator.pod import CLAIM
from tests.simulator.programs import CHECKOUT, Programs

A, B, C = (f"GPU-{letter * 8}-1111-2222-3333-444455556666" for letter in "abc")
ALL = ("null", 1, 3), ("nvidiactl", 195, 255), ("nvidia0", 195, 0), ("nvidia1", 195, 1)

Start = Callable[..., AbstractAsyncContextManager[Simulated]]


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> nvml.Stub:
    folder = tmp_path_factory.mktemp("nvml")
    for one in (folder, *folder.parents[:2]):
        one.chmod(0o755)  # for the payload's uid
    return nvml.Stub.make(folder, two())


def two() -> nvml.Driver:
    return nvml.Driver([nvml.h200(0, A), nvml.h200(1, B)])


@pytest.fixture
def start(programs: Programs, stub: nvml.Stub, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Start:
    """Starts a pod that asks for GPUs; `visible` is what the device plugin says."""
    caplog.set_level(logging.INFO)
    stub.write(two())
    (tmp_path / "dev").mkdir()
    for name, major, minor in ALL:
        os.mknod(tmp_path / "dev" / name, 0o20666, os.makedev(major, minor))
        (tmp_path / "dev" / name).chmod(0o666)
    (tmp_path / "dev/shm").mkdir()
    home = [
        f"{one}:{one}:ro"
        for one in {Path(sys.prefix), Path(sys.base_prefix), CHECKOUT / "src"}
        if not one.is_relative_to("/usr")
    ]
    mounts = [*home, f"{stub.library.parent}:/nvml:ro", f"{tmp_path}/dev:/dev"]

    @asynccontextmanager
    async def begin(
        visible: str | None = f"{A},{B}",
        count: int = 2,
        driver: bool = True,
        groups: tuple[int, ...] = (),
        claim: dict[str, Any] | None = None,
        refusals: Sequence[tuple[int, str]] = (),
        **more: Any,
    ) -> AsyncIterator[Simulated]:
        variables = {"LD_LIBRARY_PATH": "/nvml", "NVML_STUB_SETTINGS": "/nvml/settings/settings"} if driver else {}
        variables |= {"NVIDIA_VISIBLE_DEVICES": visible} if visible is not None else {}
        limits = {"nvidia.com/gpu": str(count)} if count else {}
        own = Idle(mounts, variables, limits, groups, claim=claim, claim_refusals=refusals)
        async with simulated(programs, idle=own, **more) as engine:
            yield engine

    return begin


async def asked(engine: Simulated, path: str) -> Any:
    return json.loads(await asyncio.to_thread(unix_http.get, str(engine.path), path, 10))


async def inventory(engine: Simulated) -> str:
    return (await asyncio.to_thread(unix_http.get, str(engine.path), INVENTORY, 10)).decode()


async def state(engine: Simulated) -> dict[str, Any]:
    return await asyncio.to_thread(status.query, str(engine.path))


@pytest.mark.slow
async def test_gpus_are_found_before_the_first_job_and_told_to_htcondor(start: Start) -> None:
    async with start() as engine:
        said = await inventory(engine)
        assert said.startswith('DetectedGPUs="GPU-aaaaaaaa, GPU-bbbbbbbb"\n')
        assert 'DeviceName="NVIDIA H200"' in said
        found = await asked(engine, "/k8spilot/gpus")
        assert (found["strategy"], found["usable"], found["problem"]) == ("variable", [A, B], None)
        shown = await state(engine)
        assert shown["fit"], shown["problems"]
        assert "2 x NVIDIA H200" in status.text(shown)
        assert "GpuMismatch" not in events(engine)
        record = engine.cluster.settings.exchange / FILE
        assert record.stat().st_mode & 0o777 == 0o644
        assert record.stat().st_uid == os.geteuid()


async def test_a_disagreement_is_told_everywhere_and_the_doubtful_is_given_to_nobody(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    async with start(visible=f"{A},{C}") as engine:
        assert (await inventory(engine)).startswith('DetectedGPUs="GPU-aaaaaaaa"\n')
        words = f"the payload container does not see {C} and the payload container sees {B} without a request"
        assert words in (await told(engine, "GpuMismatch"))["message"]
        shown = await state(engine)
        assert not shown["fit"]
        assert words in status.text(shown)
        assert any(words in one.getMessage() for one in caplog.records if one.levelno == logging.WARNING)


@pytest.mark.parametrize(("visible", "words"), [("all", "every GPU of the node"), (C, "does not see")])
async def test_where_nobody_can_tell_whose_gpus_they_are_there_are_none(start: Start, visible: str, words: str) -> None:
    async with start(visible=visible) as engine:
        assert await inventory(engine) == "DetectedGPUs=0\n"
        assert words in (await state(engine))["problems"][0]


@pytest.mark.slow
async def test_what_was_found_stays_as_it_was_whatever_runs_later(start: Start, stub: nvml.Stub) -> None:
    async with start() as engine:
        before = await inventory(engine)
        await engine.shell(engine.image("busybox"), "exit 0")
        with stub.change() as driver:
            driver.gpus.append(nvml.h200(2, C))
        await engine.cluster.restart_pilot()
        assert await inventory(engine) == before


async def test_a_disagreement_is_no_event_again_when_the_engine_starts_again(start: Start) -> None:
    async with start(visible=C) as engine:
        await told(engine, "GpuMismatch")
        await engine.cluster.restart_pilot()
        assert not (await state(engine))["fit"]
        assert [one for one in engine.cluster.server.told.values() if one["reason"] == "GpuMismatch"] == [
            events(engine)["GpuMismatch"]
        ]
        assert events(engine)["GpuMismatch"]["count"] == 1


async def test_an_engine_that_ended_before_it_was_sure_looks_again(start: Start) -> None:
    async with start() as engine:
        before = await inventory(engine)
        (engine.cluster.settings.exchange / FILE).unlink()
        await engine.cluster.restart_pilot()
        assert await inventory(engine) == before


@pytest.mark.slow
async def test_a_container_in_which_others_have_run_is_not_believed(start: Start) -> None:
    async with start() as engine:
        await engine.shell(engine.image("busybox"), "exit 0")
        (engine.cluster.settings.exchange / FILE).unlink()
        await engine.cluster.restart_pilot()
        assert await inventory(engine) == "DetectedGPUs=0\n"
        assert "has changed since the pod's start" in (await state(engine))["problems"][0]


async def test_a_record_that_cannot_be_read_is_no_reason_to_look_again(start: Start) -> None:
    async with start() as engine:
        (engine.cluster.settings.exchange / FILE).write_text("{")
        await engine.cluster.restart_pilot()
        assert await inventory(engine) == "DetectedGPUs=0\n"


@pytest.mark.parametrize("probed", [True, False])
async def test_without_gpus_and_without_a_promise_nothing_is_said(
    start: Start, programs: Programs, tmp_path: Path, caplog: pytest.LogCaptureFixture, probed: bool
) -> None:
    for node in (tmp_path / "dev").glob("nvidia*"):
        node.unlink()
    pod = start(visible=None, count=0, driver=False) if probed else simulated(programs)  # that image has no probe
    async with pod as engine:
        assert await inventory(engine) == "DetectedGPUs=0\n"
        assert ("is missing" in str((await state(engine))["gpus"]["reasons"])) == probed
        shown = await state(engine)
        assert shown["fit"]
        assert "GPUs" not in status.text(shown)
        assert "GpuMismatch" not in events(engine)
    assert not [one for one in caplog.records if "GPU" in one.getMessage() and one.levelno > logging.INFO]


async def test_an_idle_image_without_the_probe_is_told_where_gpus_are_promised(programs: Programs) -> None:
    async with simulated(programs, idle=Idle(limits={"nvidia.com/gpu": "1"})) as engine:
        assert await inventory(engine) == "DetectedGPUs=0\n"
        words = (await told(engine, "GpuMismatch"))["message"]
        assert "the pod requests nvidia.com/gpu, but the probe failed" in words
        assert (await engine.shell(engine.image("busybox"), "exit 4")).code == 4


async def test_a_probe_that_hangs_is_killed_and_there_are_no_gpus(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_discovery, "PROBE", ("-c", "import time; time.sleep(600)"))
    monkeypatch.setattr(gpu_discovery, "_PROBE_SECONDS", 0.5)
    async with start() as engine:
        assert await inventory(engine) == "DetectedGPUs=0\n"
        assert "the probe has not ended" in (await state(engine))["problems"][0]

        async def nothing_is_left() -> bool:
            return not await engine.processes()

        await eventually(nothing_is_left)
        assert (await engine.shell(engine.image("busybox"), "exit 4")).code == 4


@pytest.mark.parametrize("nonsense", ["print(3)", "print('{')", "print('x' * 3_000_000)", "import sys; sys.exit('no')"])
async def test_nonsense_is_no_evidence(start: Start, monkeypatch: pytest.MonkeyPatch, nonsense: str) -> None:
    monkeypatch.setattr(gpu_discovery, "PROBE", ("-c", nonsense))
    async with start() as engine:
        assert await inventory(engine) == "DetectedGPUs=0\n"
        assert "the probe failed" in (await state(engine))["problems"][0]


JOB = {"org.htcondorproject": "True"}
ENVIRONMENT = [f"CUDA_VISIBLE_DEVICES={A},{B}", f"NVIDIA_VISIBLE_DEVICES={A},{B}"]


@pytest.mark.slow
@pytest.mark.parametrize(("ad", "cuda"), [("RequestGPUs = 1\n", A), ("RequestGPUs = 2\n", f"{A},{B}"), ("", "10000")])
async def test_a_job_sees_as_many_gpus_as_it_asked_for(start: Start, ad: str, cuda: str) -> None:
    async with start() as engine:
        sandbox = Path(SANDBOX) / f"dir_{os.getpid()}"
        sandbox.mkdir(parents=True, exist_ok=True)
        try:
            (sandbox / ".job.ad").write_text(ad)
            got = await engine.run(
                engine.image("busybox"),
                "sh", "-c", "echo $CUDA_VISIBLE_DEVICES",
                Labels=JOB,
                Env=[*ENVIRONMENT, f"_CONDOR_SCRATCH_DIR={sandbox}"],
                HostConfig={"Devices": [{"PathOnHost": f"/dev/nvidia{one}"} for one in ("ctl", "-uvm", "0")]},
            )  # fmt: skip
            assert got.stdout == f"{cuda}\n".encode()
        finally:
            (sandbox / ".job.ad").unlink()
            sandbox.rmdir()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "cuda"), [("1", A), ("2", f"{A},{B}"), ("0", "10000"), ("", f"{A},{B}"), ("-1", f"{A},{B}")]
)
async def test_where_the_engine_has_no_sandboxes_it_is_told_how_many(start: Start, count: str, cuda: str) -> None:
    async with start() as engine:
        got = await engine.run(
            engine.image("busybox"),
            "sh", "-c", "echo $CUDA_VISIBLE_DEVICES",
            Labels={**JOB, "k8spilot.gpus": count},
            Env=ENVIRONMENT,
        )  # fmt: skip
        assert got.stdout == f"{cuda}\n".encode()


async def test_a_device_that_the_pod_has_not_is_refused(start: Start) -> None:
    async with start() as engine:
        body = {"Image": engine.image("busybox"), "HostConfig": {"Devices": [{"PathOnHost": "/dev/nvidia2"}]}}
        answer = await engine.ask("POST", "/containers/create", body)
        assert answer.status == 409
        assert "the pod does not have the device /dev/nvidia2" in answer.message


async def test_htcondors_program_waits_for_an_engine_that_comes_later(
    start: Start, programs: Programs, tmp_path: Path
) -> None:
    path = tmp_path / "later.sock"
    program = await asyncio.create_subprocess_exec(
        programs.engine_get, "get", str(path), INVENTORY, "20", stdout=subprocess.PIPE
    )
    async with start(socket=path):
        said, _ = await asyncio.wait_for(program.communicate(), 20)
    assert said.startswith(b'DetectedGPUs="GPU-aaaaaaaa')


async def test_groups_that_come_with_the_devices_are_the_nodes_and_not_an_images(start: Start) -> None:
    async with start(groups=(44,)) as engine:
        images = engine.cluster.images
        given, brought = (images.add(f"groups:{one}", groups=[one]).reference for one in (44, 101))
        assert b"44" in (await engine.run(given, "id", "-G")).stdout.split()
        answer = await engine.ask("POST", "/containers/create", {"Image": brought, "Cmd": ["true"]})
        assert "adds its jobs to other groups (101)" in answer.message


def claim(*devices: str, driver: str = NVIDIA) -> dict[str, Any]:
    """Return the settings of a simulated pod with a ResourceClaim.

    The variable has positions: it says how many devices there are, and not which, as with CDI. A container of the
    simulator that has no variable may use every device of the machine.
    """
    results = [{"request": "gpu", "driver": driver, "pool": "node", "device": device} for device in devices]
    return {
        "visible": "0,1",
        "count": 0,
        "claim": {"status": {"allocation": {"devices": {"results": results}}, "reservedFor": []}},
    }


async def test_gpus_of_a_claim_are_those_that_it_has(start: Start) -> None:
    async with start(**claim("gpu-0", "gpu-1")) as engine:
        found = await asked(engine, "/k8spilot/gpus")
        assert (found["strategy"], found["usable"], found["problem"]) == ("variable", [A, B], None)
        assert found["requested"] == "claim gpu: 2"
        assert (await state(engine))["fit"]


async def test_more_gpus_than_the_claim_has_are_given_to_nobody(start: Start) -> None:
    async with start(**claim("gpu-0")) as engine:
        assert await inventory(engine) == "DetectedGPUs=0\n"
        words = "2 GPUs are named, but the pod requests 1 (claim gpu: 1)"
        assert words in (await told(engine, "GpuMismatch"))["message"]
        assert not (await state(engine))["fit"]


async def test_a_claim_for_other_devices_explains_no_gpus(start: Start) -> None:
    async with start(**claim("channel-0", driver="compute-domain.nvidia.com")) as engine:
        assert await inventory(engine) == "DetectedGPUs=0\n"
        assert "do not explain" in (await state(engine))["problems"][0]


async def test_without_the_right_to_read_the_claim_the_visible_gpus_are_believed(start: Start) -> None:
    async with start(**claim("gpu-0"), refusals=[(403, "resourceclaims is forbidden")]) as engine:
        found = await asked(engine, "/k8spilot/gpus")
        assert (found["usable"], found["requested"]) == ([A, B], "claim gpu")
        assert (await state(engine))["fit"]


async def test_an_api_server_that_fails_for_a_moment_is_asked_for_the_claim_again(start: Start) -> None:
    async with start(**claim("gpu-0"), refusals=[(503, "later"), (500, "later")]) as engine:
        assert await inventory(engine) == "DetectedGPUs=0\n"
        assert engine.cluster.server.requests["claim"] == 3


async def test_a_record_of_a_claim_is_not_made_again(start: Start) -> None:
    async with start(**claim("gpu-0", "gpu-1")) as engine:
        before = await asked(engine, "/k8spilot/gpus")
        engine.cluster.server.claims[CLAIM]["status"]["allocation"]["devices"]["results"].pop()
        await engine.cluster.restart_pilot()
        assert await asked(engine, "/k8spilot/gpus") == before
        assert engine.cluster.server.requests["claim"] == 1
