"""A job that uses more disk than it may is ended and held, before the kubelet would evict the pod."""

import asyncio
import logging
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from k8spilot.engine import slots
from k8spilot.model import disk
from k8spilot.payload import disk_meter, disk_watch
from k8spilot.payload.disk_meter import DiskMeter, InsideDiskMeter
from k8spilot.payload_init.install import TIDY
from tests.engine.client import Job
from tests.engine.rings import Simulated, eventually, simulated
from tests.simulator.programs import Programs

MIB = 2**20
SLOT = 64
"""MiB that the slot promises here."""


@pytest.fixture
async def slot(programs: Programs) -> AsyncIterator[Simulated]:
    """A slot with a limit, of which a fifth is headroom."""
    async with simulated(programs, payload_disk_mb=80, disk_headroom_percent=20.0) as engine:
        yield engine


@pytest.fixture
async def watched_inside(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Simulated]:
    """The same with payload-init as the meter, as where the engine is not root; it looks often and waits shortly."""
    meter = InsideDiskMeter(Path("/k8spilot/bin/slow"), [Path("/tmp")], lambda: ["/tmp", "/var/tmp"])
    monkeypatch.setattr(slots, "build_disk_meter", lambda *_, **__: meter)
    monkeypatch.setattr(disk, "LONGEST_SECONDS", 0.3)
    monkeypatch.setattr(disk_meter, "_MEASURE_SECONDS", 1)
    monkeypatch.setattr(disk_meter, "_END_SECONDS", 1.0)
    monkeypatch.setattr(disk_watch, "_AGAIN_SECONDS", 0.1)
    async with simulated(programs, payload_disk_mb=80, disk_headroom_percent=20.0) as engine:
        program = engine.cluster.volumes.exchange / "bin/slow"  # as with many files
        program.write_text(f'#!/bin/sh\n/bin/sleep 0.2\nexec /k8spilot/{TIDY} "$@"\n')
        program.chmod(0o755)
        yield engine


async def begun(engine: Simulated, script: str, **options: Any) -> Job:
    """A job of HTCondor's, which has limits; other containers have none."""
    return await engine.begin_shell(engine.image("busybox"), script, Labels={"org.htcondorproject": "True"}, **options)


async def ended(engine: Simulated, script: str, **options: Any) -> tuple[str, int, str]:
    """Error and exit code as HTCondor reads them after a job, and what the job said."""
    job = await begun(engine, script, **options)
    result = await job.result()
    state = (await engine.inspect(job.name))["State"]
    return state["Error"], state["ExitCode"], result.stdout.decode()


def fill(path: str, mib: int) -> str:
    return f"dd if=/dev/zero of={path} bs=1M count={mib} 2>/dev/null"


@pytest.mark.parametrize("place", ["/tmp/big", "/var/tmp/big"])
async def test_a_job_that_uses_more_than_the_slot_has_is_ended_and_held(slot: Simulated, place: str) -> None:
    error, _, said = await ended(slot, f"{fill(place, SLOT + 8)}; sleep 60; echo late")
    assert re.match(rf"the job has used \d+ MiB of disk, and the slot has {SLOT} MiB; ", error), error
    assert "request_disk" in error
    assert said == ""


async def test_a_job_that_ends_before_the_watch_looks_is_held_as_well(
    slot: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_watch, "_TICK_SECONDS", 60.0)
    error, code, _ = await ended(slot, f"{fill('/tmp/big', SLOT + 8)}; exit 0")
    assert "and the slot has" in error
    assert code == 0  # that of the job itself, which HTCondor does not look at


@pytest.mark.slow
async def test_a_job_that_stays_below_its_limit_is_left_alone(slot: Simulated) -> None:
    script = f"for i in 1 2 3 4; do {fill('/tmp/big', SLOT - 8)}; sleep 0.4; rm /tmp/big; done; exit 3"
    assert await ended(slot, script) == ("", 3, "")


async def test_files_with_several_names_count_once(slot: Simulated) -> None:
    script = f"{fill('/tmp/a', SLOT // 2)}; for i in 1 2 3 4; do ln /tmp/a /tmp/a$i; done; sleep 1"
    assert await ended(slot, script) == ("", 0, "")


async def test_nothing_behind_a_link_counts(slot: Simulated, tmp_path: Path) -> None:
    script = "ln -s / /tmp/all; ln -s /bin /tmp/programs; sleep 1"
    assert await ended(slot, script) == ("", 0, "")


@pytest.mark.slow
async def test_what_a_job_locks_and_hides_counts(slot: Simulated) -> None:
    deep = "mkdir -p /tmp/.x/y; cd /tmp/.x/y; for i in $(seq 300); do mkdir d; cd d; done"
    error, _, _ = await ended(slot, f"{deep}; {fill('f', SLOT + 8)}; chmod 000 f /tmp/.x/y /tmp/.x; sleep 60")
    assert "and the slot has" in error


async def test_what_a_job_writes_to_its_image_counts_and_what_the_image_has_does_not(slot: Simulated) -> None:
    error, _, _ = await ended(slot, f"{fill('/srv/big', SLOT + 8)}; sleep 60")
    assert "and the slot has" in error


async def test_the_files_of_a_job_that_was_held_for_them_are_gone_at_its_removal(slot: Simulated) -> None:
    job = await begun(slot, f"{fill('/tmp/big', SLOT + 8)}; sleep 60")
    await job.result()
    await slot.remove(job.name)

    async def is_empty() -> bool:
        return not any(slot.cluster.volumes.tmp.iterdir())

    await eventually(is_empty)


@pytest.mark.parametrize(("ad", "requested"), [("RequestDisk = 16384\n", 16), ("RequestDisk = DiskUsage\n", None)])
async def test_a_job_may_use_what_it_requested_and_without_a_request_what_the_slot_has(
    programs: Programs, tmp_path: Path, ad: str, requested: int | None
) -> None:
    (tmp_path / "dir_1").mkdir()
    (tmp_path / "dir_1/.job.ad").write_text(ad)
    async with simulated(programs, payload_disk_mb=80, execute=tmp_path) as engine:
        sandbox = f"_CONDOR_SCRATCH_DIR={tmp_path}/dir_1"
        error, code, _ = await ended(engine, f"{fill('/tmp/big', 24)}; sleep 1; exit 4", Env=[sandbox])
    if requested is None:
        assert (error, code) == ("", 4)
    else:
        assert re.match(rf"the job has used \d+ MiB of disk, and requested {requested} MiB; ", error), error


async def test_what_a_job_writes_to_its_image_counts_while_others_release_as_much(
    slot: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "LONGEST_SECONDS", 0.3)
    monkeypatch.setattr(disk_watch, "_IMAGE_SECONDS", 0.5)
    monkeypatch.setattr(DiskMeter, "free", lambda *_: [2**40] * 3)  # of a disk that many share nobody can keep it so
    error, _, _ = await ended(slot, f"{fill('/srv/big', SLOT + 8)}; sleep 5; exit 3")
    assert "and the slot has" in error


@pytest.mark.slow
async def test_the_watch_rests_while_the_job_is_paused_and_goes_on_afterwards(
    watched_inside: Simulated, caplog: pytest.LogCaptureFixture
) -> None:
    slot = watched_inside
    job = await begun(slot, f"echo ready; sleep 1; echo more; {fill('/tmp/big', SLOT + 8)}; sleep 60")
    await job.until_output(b"ready")
    await slot.call("POST", f"/containers/{job.name}/pause")
    await asyncio.sleep(5)
    assert len([one for one in await slot.processes() if "measure" in one]) <= 1
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]
    await slot.call("POST", f"/containers/{job.name}/unpause")
    assert "and the slot has" in (await job.result()).error


async def test_a_job_that_is_killed_in_its_pause_is_measured_as_well(
    watched_inside: Simulated, caplog: pytest.LogCaptureFixture
) -> None:
    slot = watched_inside
    job = await begun(slot, f"{fill('/tmp/big', SLOT - 8)}; echo ready; sleep 60")
    await job.until_output(b"ready")
    await slot.call("POST", f"/containers/{job.name}/pause")
    await asyncio.sleep(0.5)
    await job.kill("9")
    assert (await job.result()).code == 137
    assert "was not measured" not in caplog.text


async def test_output_of_the_program_that_measures_without_end_is_no_figure_and_is_not_read_to_its_end(
    watched_inside: Simulated, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    endless = shutil.which("yes")
    assert endless is not None
    flooded = InsideDiskMeter(Path(endless), [Path("/tmp")], list)
    monkeypatch.setattr(slots, "build_disk_meter", lambda *_, **__: flooded)
    await watched_inside.cluster.restart_pilot()
    job = await begun(watched_inside, "sleep 60")

    async def is_seen() -> bool:
        return "cannot be measured" in caplog.text

    await eventually(is_seen)
    await job.kill("9")
    assert (await job.result()).code == 137
    assert "wrote more than its figures" in caplog.text
    assert "takes too long" not in caplog.text
