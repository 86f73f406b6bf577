"""The cluster fails in the ways that clusters do."""

import asyncio
from contextlib import suppress

import pytest

from k8spilot.common.errors import ClusterError
from k8spilot.engine import components
from k8spilot.kube.own_pod import Sidecar
from k8spilot.payload import listeners, run
from k8spilot.payload.listeners import SlotListener
from k8spilot.payload_init.channel import Channel
from k8spilot.payload_init.server import PayloadInitServer
from k8spilot.settings import Settings
from k8spilot.settings.slots import BIND
from tests.engine.rings import Engine, Simulated, simulated
from tests.simulator.cluster import simulate
from tests.simulator.pod import payload_image, payload_status
from tests.simulator.programs import Programs


@pytest.mark.slow
async def test_a_watch_that_breaks_during_a_bind_does_not_matter(simulator: Simulated) -> None:
    await simulator.pull(simulator.image("busybox"))
    simulator.cluster.server.drop_watches()
    assert (await simulator.shell(simulator.image("busybox"), "exit 3")).code == 3


async def test_a_watch_that_expires_is_begun_anew(simulator: Simulated) -> None:
    server = simulator.cluster.server
    await server.expire()
    assert (await simulator.shell(simulator.image("busybox"), "exit 3")).code == 3
    assert server.requests["list"] == 2


@pytest.mark.slow
async def test_a_watch_that_ends_in_time_goes_on_where_it_was(programs: Programs) -> None:
    async with simulated(programs) as simulator:
        server = simulator.cluster.server
        server.watch_seconds = 0.05
        server.drop_watches()
        for _ in range(3):
            assert (await simulator.shell(simulator.image("busybox"), "sleep 0.1; exit 2")).code == 2
        assert server.requests["watch"] >= 4
        assert server.requests["list"] <= 2


async def test_an_api_server_that_is_away_for_a_moment_delays_a_bind(simulator: Simulated) -> None:
    server = simulator.cluster.server
    async with server.away():
        creating = asyncio.create_task(simulator.create(simulator.image("busybox"), "sh", "-c", "exit 4"))
        await asyncio.sleep(0.3)
        assert not creating.done()
    assert (await (await simulator.start(await creating)).result()).code == 4


async def test_an_api_server_that_goes_away_after_the_patch_delays_the_start(simulator: Simulated) -> None:
    server = simulator.cluster.server
    await simulator.pull(simulator.image("busybox"))
    await server.until(lambda pod: "/busybox:" in payload_image(pod))
    async with server.away():
        name = await simulator.create(simulator.image("busybox"), "sh", "-c", "exit 4")
    assert (await (await simulator.start(name)).result()).code == 4


async def test_an_api_server_that_is_away_does_not_disturb_a_running_job(simulator: Simulated) -> None:
    job = await simulator.begin_shell(simulator.image("busybox"), "echo ready; sleep 0.3; exit 5")
    await job.until_output(b"ready")
    async with simulator.cluster.server.away():
        assert (await job.result()).code == 5
        await simulator.remove(job.name)
    assert (await simulator.shell(simulator.image("busybox"), "exit 6")).code == 6


async def test_a_refused_patch_fails_create_in_the_servers_words(simulator: Simulated) -> None:
    server = simulator.cluster.server
    server.refusal = (403, "pods is forbidden: no image for you")
    answer = await simulator.ask("POST", "/containers/create", {"Image": simulator.image("busybox"), "Cmd": ["true"]})
    assert answer.status == 500
    assert "no image for you" in answer.message
    server.refusal = None
    assert (await simulator.shell(simulator.image("busybox"), "exit 1")).code == 1


async def test_an_image_that_only_the_kubelet_cannot_pull_fails_create_in_the_runtimes_words(
    simulator: Simulated,
) -> None:
    words = "failed to pull and unpack image: unexpected status from HEAD request: 401 Unauthorized"
    simulator.cluster.kubelet.fail_pulls("registry.test:5000/debian", words)
    answer = await simulator.ask("POST", "/containers/create", {"Image": simulator.image("debian"), "Cmd": ["true"]})
    assert answer.status == 500
    assert f"ErrImagePull: {words}" in answer.message
    assert (await simulator.shell(simulator.image("busybox"), "exit 2")).code == 2
    again = await simulator.ask("POST", "/containers/create", {"Image": simulator.image("debian"), "Cmd": ["true"]})
    assert words in again.message


@pytest.mark.slow
@pytest.mark.parametrize("what", ["", "config"])
@pytest.mark.parametrize("pinned", [False, True])
async def test_an_image_of_which_only_the_node_is_told_runs_no_job(programs: Programs, what: str, pinned: bool) -> None:
    """Its entrypoint would be left out, and its volumes would lie where it likes: a registry may be the job's own."""
    async with simulated(programs, patience_seconds=0.5) as simulator:
        image = simulator.cluster.images.add("odd:1", entrypoint=["sh", "-c", "exit 9"], volumes=["/k8spilot/evil"])
        named = f"{image.repository}@{image.digest}" if pinned else image.reference
        simulator.cluster.images.set_reachable(reachable=False, what=what)
        answer = await simulator.ask("POST", "/containers/create", {"Image": named, "Cmd": ["true"]})
        assert answer.status == 500
        assert "the job is not at fault: the registry of image" in answer.message
        assert not [one for one in simulator.cluster.kubelet.starts if "odd" in one]
        simulator.cluster.images.set_reachable(reachable=True, what=what)
        assert (await simulator.shell(simulator.image("busybox"), "exit 4")).code == 4


async def test_a_registry_that_is_away_for_longer_than_a_bind_may_take_holds_no_job(programs: Programs) -> None:
    async with simulated(programs, patience_seconds=0.8, bind_timeout_seconds=0.2) as simulator:
        simulator.cluster.images.set_reachable(reachable=False)
        body = {"Image": simulator.image("busybox"), "Cmd": ["true"]}
        answer = await simulator.ask("POST", "/containers/create", body)
        assert "the job is not at fault: the registry of image" in answer.message


async def test_an_image_that_the_pod_has_had_runs_while_its_registry_is_away(simulator: Simulated) -> None:
    image = simulator.cluster.images.add("wrapped:1", entrypoint=["sh", "-c", "exit 9"]).reference
    assert (await simulator.run(image, "true")).code == 9
    simulator.cluster.images.set_reachable(reachable=False)
    assert (await simulator.run(image, "true")).code == 9


async def test_an_image_by_digest_is_bound_by_it(simulator: Simulated) -> None:
    image = simulator.cluster.images.find(simulator.image("busybox"))
    assert image is not None
    assert (await simulator.shell(f"{image.repository}@{image.digest}", "exit 7")).code == 7
    assert simulator.cluster.kubelet.starts[-1].endswith(image.digest)


async def test_a_tag_that_moves_binds_the_new_image(simulator: Simulated) -> None:
    images = simulator.cluster.images
    for version in ("one", "two"):
        image = images.add("moving:latest", environment={"VERSION": version})
        result = await simulator.shell(image.reference, "echo $VERSION")
        assert result.stdout.decode() == f"{version}\n"


@pytest.mark.slow
async def test_a_bind_that_takes_too_long_is_given_up(programs: Programs) -> None:
    async with simulated(programs, bind_timeout_seconds=3) as simulator:
        pulled = simulator.cluster.kubelet.hold("registry.test:5000/debian")
        body = {"Image": simulator.image("debian"), "Cmd": ["true"]}
        answer = await simulator.ask("POST", "/containers/create", body)
        assert answer.status == 500
        assert "does not run after 3 s; it may be too large for the node" in answer.message
        pulled.set()
        assert (await simulator.shell(simulator.image("busybox"), "exit 2")).code == 2


async def test_out_of_memory_is_told_when_the_kernel_killed_the_job_alone(simulator: Simulated) -> None:
    job = await simulator.begin_shell(simulator.image("busybox"), "echo ready; exec sleep 60")
    await job.until_output(b"ready")
    assert simulator.cluster.kubelet.container is not None
    simulator.cluster.kubelet.container.count_oom_kill()
    await job.kill("KILL")
    assert (await job.result()).code == 137
    assert (await simulator.inspect(job.name))["State"]["OOMKilled"] is True


async def test_out_of_memory_is_told_when_the_kernel_killed_the_whole_container(simulator: Simulated) -> None:
    job = await simulator.begin_shell(simulator.image("busybox"), "echo ready; exec sleep 60")
    await job.until_output(b"ready")
    assert simulator.cluster.kubelet.container is not None
    simulator.cluster.kubelet.container.out_of_memory = True
    simulator.cluster.kubelet.container.kill_first()
    result = await job.result()
    assert (result.code, result.error) == (137, "")
    assert (await simulator.inspect(job.name))["State"]["OOMKilled"] is True
    await simulator.remove(job.name)
    assert (await simulator.shell(simulator.image("busybox"), "exit 2")).code == 2


@pytest.mark.cluster
@pytest.mark.node
async def test_a_job_that_eats_all_memory_is_out_of_memory_on_the_node(node: Engine) -> None:
    job = await node.begin(node.image("debian"), "perl", "-e", 'my @all; while (1) { push @all, "x" x 10_000_000; }')
    await job.result()
    state = (await node.inspect(job.name))["State"]
    assert (state["OOMKilled"], state["ExitCode"]) == (True, 137)
    await node.remove(job.name)
    assert (await node.shell(node.image("busybox"), "exit 2")).code == 2


async def test_a_container_that_the_kubelet_stops_under_its_job_has_no_result(simulator: Simulated) -> None:
    job = await simulator.begin_shell(simulator.image("busybox"), "echo ready; exec sleep 60")
    await job.until_output(b"ready")
    await simulator.cluster.pilot.pod.set_image(
        Sidecar("payload", BIND), simulator.image("debian"), "0"
    )  # somebody with kubectl
    result = await job.result()
    assert "no result" in result.error
    await simulator.remove(job.name)
    assert (await simulator.shell(simulator.image("busybox"), "exit 2")).code == 2


async def test_a_container_whose_processes_do_not_die_is_killed_and_its_job_has_its_result(
    simulator: Simulated, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(run, "_SWEEP_SECONDS", 0.3)
    with monkeypatch.context() as nothing_dies:
        nothing_dies.setattr(Channel, "sweep", lambda _: None)
        assert (await simulator.shell(simulator.image("busybox"), "exit 7")).code == 7
    assert "killing its container" in caplog.text
    assert (await simulator.shell(simulator.image("busybox"), "exit 4")).code == 4


async def test_the_pilot_ends_with_its_pod(programs: Programs) -> None:
    async with simulate(programs) as cluster:
        await cluster.server.delete()
        await asyncio.wait_for(cluster.ended.wait(), 10)


@pytest.mark.parametrize("seen", [True, False])
async def test_a_pod_of_the_same_name_is_somebody_elses(programs: Programs, seen: bool) -> None:
    async with simulate(programs) as cluster:
        image = payload_image(cluster.server.pod)
        if not seen:  # its node was cut off meanwhile
            await cluster.server.expire()
            cluster.server.drop_watches()
        await cluster.server.replace("6f1f7e53-0000-4000-8000-000000000001")
        with suppress(ClusterError):
            await cluster.pilot.pod.set_image(Sidecar("payload", BIND), "registry.test:5000/debian:forky", "0")
        await asyncio.wait_for(cluster.ended.wait(), 10)
        assert payload_image(cluster.server.pod) == image


@pytest.mark.slow
@pytest.mark.parametrize("nonsense", [[1], {}, {"items": None}, {"items": [1]}, {"items": [{"metadata": {}}]}])
async def test_nonsense_of_the_api_server_holds_no_job_and_ends_no_pilot(programs: Programs, nonsense: object) -> None:
    # The pilot waits for up to a second before it requests the idle image again, and the next job waits for that.
    async with simulated(programs, idle_after_seconds=60, patience_seconds=1.2) as simulator:
        server = simulator.cluster.server
        server.nonsense, server.refusal = nonsense, (409, "the pod is to be listed")
        lost = await simulator.create(simulator.image("busybox"), "true", Labels={"org.htcondorproject": "True"})
        await simulator.remove(lost)
        server.nonsense, server.refusal = None, None
        assert (await simulator.shell(simulator.image("busybox"), "exit 4")).code == 4


@pytest.mark.slow
async def test_a_pilot_that_starts_again_takes_over_a_container_that_runs(programs: Programs) -> None:
    async with simulated(programs) as simulator:
        await simulator.shell(simulator.image("busybox"), "exit 0")
        status = payload_status(simulator.cluster.server.pod)
        await simulator.cluster.restart_pilot()
        assert payload_status(simulator.cluster.server.pod) == status
        assert (await simulator.shell(simulator.image("busybox"), "exit 5")).code == 5


async def test_a_pilot_that_starts_again_in_an_outage_ends_what_runs_and_closes_the_slot(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard, told = asyncio.Event(), asyncio.Event()

    class Told(SlotListener):
        async def away(self, why: listeners.Reason, seconds: float = listeners.CLOSED_SECONDS) -> None:
            told.set()

    async def hear(_settings: Settings, init_server: PayloadInitServer, _cgroup: str | None) -> bool:
        await init_server.until(lambda _: True)
        heard.set()
        return False

    monkeypatch.setattr(listeners, "_AWAY_SECONDS", 0.1)
    monkeypatch.setattr(components, "await_payload_init", hear)
    async with simulated(programs) as simulator:
        cluster = simulator.cluster
        await cluster.stop_pilot()
        monkeypatch.setattr(components, "Fanout", lambda _: Told())
        async with cluster.server.away():
            starting = asyncio.create_task(cluster.start_pilot())
            async with asyncio.timeout(5):
                await heard.wait()
                await told.wait()
            assert not cluster.pilot.serving.is_set()
        await starting


@pytest.mark.slow
async def test_a_job_whose_pilot_ended_does_not_go_on(programs: Programs) -> None:
    async with simulated(programs) as simulator:
        job = await simulator.begin_shell(simulator.image("busybox"), "echo ready; exec sleep 60")
        await job.until_output(b"ready")
        await simulator.cluster.restart_pilot()
        job.waiting.cancel()
        assert await simulator.containers() == []
        assert (await simulator.shell(simulator.image("busybox"), "exit 5")).code == 5
        assert await simulator.processes() == []
