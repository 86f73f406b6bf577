"""Output of jobs: attached clients get all of it, each stream by itself, in order."""

import asyncio

import psutil
import pytest

from k8spilot.payload.scrub.from_pilot import Leftovers
from tests.engine.rings import SANDBOX, Engine, Simulated, eventually, is_starting, patched

MEGABYTE = 1 << 20


async def test_stdout_and_stderr_come_apart(engine: Engine) -> None:
    result = await engine.shell(engine.image("busybox"), "echo out; echo err >&2; echo more")
    assert (result.stdout, result.stderr) == (b"out\nmore\n", b"err\n")


async def test_bytes_of_any_kind_come_as_they_are(engine: Engine) -> None:
    octal = "".join(f"\\{number:03o}" for number in range(256))
    result = await engine.run(engine.image("busybox"), "printf", octal)
    assert result.stdout == bytes(range(256))


async def test_output_without_a_newline_comes_at_once(engine: Engine) -> None:
    job = await engine.begin_shell(engine.image("busybox"), "printf prompt; exec sleep 60")
    assert await job.until_output(b"prompt") == b"prompt"
    await job.kill("KILL")
    await job.result()


async def test_there_is_no_input(engine: Engine) -> None:
    result = await engine.shell(engine.image("busybox"), "cat; echo end")
    assert result.stdout == b"end\n"


async def test_megabytes_on_both_streams_come_whole(engine: Engine) -> None:
    script = "dd if=/dev/zero bs=65536 count=320 2>/dev/null & dd if=/dev/zero bs=65536 count=160 >&2 2>/dev/null; wait"
    result = await engine.shell(engine.image("busybox"), script)
    assert result.code == 0
    assert len(result.stdout) == 20 * MEGABYTE
    assert len(result.stderr) == 10 * MEGABYTE


async def test_the_order_of_lines_is_kept(engine: Engine) -> None:
    result = await engine.shell(engine.image("busybox"), "i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done")
    assert result.stdout.split() == [str(number).encode() for number in range(20000)]


async def test_the_last_bytes_come_before_wait_answers(engine: Engine) -> None:
    name = await engine.create(engine.image("busybox"), "sh", "-c", "echo first; printf last")
    attached = await engine.attach(name)
    waiting = await engine.begin_wait(name)
    await engine.call("POST", f"/containers/{name}/start")
    assert (await waiting).json["StatusCode"] == 0
    async with asyncio.timeout(5):
        assert await attached.output() == (b"first\nlast", b"")
    await attached.close()


async def test_nobody_attached_does_not_stop_the_job(engine: Engine) -> None:
    name = await engine.create(engine.image("busybox"), "dd", "if=/dev/zero", "bs=65536", "count=320")
    waiting = await engine.begin_wait(name)
    await engine.call("POST", f"/containers/{name}/start")
    assert (await waiting).json["StatusCode"] == 0


async def test_who_hangs_up_does_not_stop_the_job(engine: Engine) -> None:
    if not engine.tells_of_hang_ups:
        pytest.skip("kubectl exec does not tell the pod that its client has gone")
    script = "echo ready; dd if=/dev/zero bs=65536 count=320 2>/dev/null; exit 5"
    job = await engine.begin_shell(engine.image("busybox"), script)
    await job.until_output(b"ready")
    await job.attached.close()
    assert (await job.waiting).json["StatusCode"] == 5


async def test_a_job_of_htcondor_whose_client_dies_has_no_result(engine: Engine) -> None:
    if not engine.tells_of_hang_ups:
        pytest.skip("kubectl exec does not tell the pod that its client has gone")
    labels = {"org.htcondorproject": "True"}
    job = await engine.begin_shell(engine.image("busybox"), "echo ready; sleep 300", Labels=labels)
    await job.until_output(b"ready")
    await job.attached.close()
    assert "goes back to the queue" in (await job.waiting).json["Error"]["Message"]
    assert (await engine.ask("GET", f"/containers/{job.name}/json")).status == 500


@pytest.mark.slow
async def test_a_job_whose_client_dies_before_it_is_released_never_runs(
    simulator: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubelet, proof = simulator.cluster.kubelet, simulator.cluster.volumes.execute / "it-ran"
    script, labels = f"touch {SANDBOX}/{proof.name}", {"org.htcondorproject": "True"}
    show_running = kubelet._show_running
    with monkeypatch.context() as withheld:
        withheld.setattr(kubelet, "_show_running", lambda: None)  # which a job waits for before its release
        name = await simulator.create(simulator.image("busybox"), "sh", "-c", script, Labels=labels)
        attached = await simulator.attach(name)
        starting = asyncio.create_task(simulator.ask("POST", f"/containers/{name}/start"))
        await eventually(lambda: is_starting(simulator))
        await attached.close()
        async with asyncio.timeout(30):  # a start that goes on waits for a minute
            assert (await starting).status != 204
    show_running()  # this releases it no more
    assert (await simulator.ask("GET", f"/containers/{name}/json")).status == 500
    await simulator.remove(name)
    assert (await simulator.shell(simulator.image("busybox"), "exit 3", Labels=labels)).code == 3
    assert not proof.exists()


async def test_the_next_job_of_htcondor_takes_the_place_of_one_that_it_has_lost(engine: Engine) -> None:
    labels = {"org.htcondorproject": "True"}
    lost = await engine.begin_shell(engine.image("busybox"), "echo ready; sleep 300", Labels=labels)
    await lost.until_output(b"ready")
    assert (await engine.shell(engine.image("busybox"), "exit 3", Labels=labels)).code == 3
    assert (await engine.ask("GET", f"/containers/{lost.name}/json")).status == 404


@pytest.mark.parametrize("label", ["True", "False"])
async def test_nothing_is_left_in_the_slot_when_the_next_job_brings_its_files(engine: Engine, label: str) -> None:
    """All that runs there has the same user: a job that HTCondor has lost, and what somebody has started by hand."""
    labels = {"org.htcondorproject": label}
    lost = await engine.begin_shell(engine.image("busybox"), "echo ready; sleep 300", Labels=labels)
    await lost.until_output(b"ready")
    assert (await engine.ask("GET", "/k8spilot/next-job", version="")).status == 200
    assert (await engine.ask("GET", f"/containers/{lost.name}/json")).status == 404
    assert await engine.processes() == []


@pytest.mark.slow
async def test_what_somebody_begins_by_hand_gives_way_to_a_job_while_its_image_is_bound(simulator: Simulated) -> None:
    image = simulator.image("debian")
    pulled = simulator.cluster.kubelet.hold(image.rpartition(":")[0])
    by_hand = asyncio.create_task(simulator.ask("POST", "/containers/create", {"Image": image}, {"name": "by-hand"}))
    await eventually(lambda: patched(simulator))
    assert (await simulator.ask("GET", "/k8spilot/next-job", version="")).status == 200
    assert (await by_hand).status == 201
    assert (await simulator.ask("GET", "/containers/by-hand/json")).status == 404
    pulled.set()
    assert (await simulator.run(simulator.image("busybox"), "true")).code == 0


async def test_sandboxes_that_are_left_go_before_a_jobs_files_come_whatever_somebody_runs_by_hand(
    simulator: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[Leftovers] = []

    def note(one: Leftovers) -> None:
        removed.append(one)

    monkeypatch.setattr(Leftovers, "remove_sandboxes", note)
    own = await simulator.begin_shell(simulator.image("busybox"), "echo ready; read word", OpenStdin=True)
    await own.until_output(b"ready")
    assert removed == [], "there may be a job's by then"
    assert (await simulator.ask("GET", "/k8spilot/next-job", version="")).status == 200
    assert len(removed) == 1


async def test_attached_twice_is_served_twice(engine: Engine) -> None:
    name = await engine.create(engine.image("busybox"), "echo", "for both")
    first, second = await engine.attach(name), await engine.attach(name)
    waiting = await engine.begin_wait(name)
    await engine.call("POST", f"/containers/{name}/start")
    await waiting
    for attached in (first, second):
        assert await attached.output() == (b"for both\n", b"")
        await attached.close()


async def test_a_slow_reader_loses_nothing(engine: Engine) -> None:
    job = await engine.begin_shell(engine.image("busybox"), "dd if=/dev/zero bs=65536 count=512 2>/dev/null; exit 2")
    length = 0
    while (found := await job.attached.frame()) is not None:
        if length < 4 * MEGABYTE:
            await asyncio.sleep(0.02)
        length += len(found[1])
    assert length == 32 * MEGABYTE
    assert (await job.waiting).json["StatusCode"] == 2


async def test_a_reader_that_stops_slows_the_job_and_not_the_pilot(simulator: Simulated) -> None:
    script = (
        "while :; do dd if=/dev/zero bs=65536 count=16 2>/dev/null; echo >> /var/lib/condor/execute/megabytes; done"
    )
    progress = simulator.cluster.volumes.execute / "megabytes"
    job = await simulator.begin_shell(simulator.image("busybox"), script)
    before = psutil.Process().memory_info().rss
    written = -1
    while not progress.exists() or written != progress.stat().st_size:
        written = progress.stat().st_size if progress.exists() else -1
        await asyncio.sleep(0.3)
    assert written < 16, "the job wrote on although nobody read"
    assert psutil.Process().memory_info().rss - before < 32 * MEGABYTE
    await job.kill("KILL")
    assert (await job.result()).code == 137
