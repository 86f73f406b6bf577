"""Names and lives of containers: create, rm, prune, and one at a time."""

import asyncio
import json

import pytest

from k8spilot.docker.container import Container
from k8spilot.model.payload_state import PayloadEvent
from k8spilot.payload.run import Run
from k8spilot.payload.state_machine import PayloadMachine
from tests.engine.client import unique_name
from tests.engine.rings import SANDBOX, Engine, Simulated, eventually, is_starting

LABEL = "org.htcondorproject=True"


async def test_pull_answers_as_a_stream_and_begins_the_bind(simulator: Simulated) -> None:
    image = simulator.image("busybox")
    lines = await simulator.pull(image)
    assert [set(line) for line in lines] == [{"status"}, {"status"}]
    await simulator.cluster.server.until(lambda _: simulator.cluster.kubelet.starts[-1].startswith(f"{image}-"))


async def test_create_settles_what_pull_began(simulator: Simulated) -> None:
    await simulator.pull(simulator.image("busybox"))
    await simulator.create(simulator.image("busybox"), "true")
    assert len(simulator.cluster.kubelet.starts) == 2  # the idle image, and this
    assert simulator.cluster.server.requests["patch"] == 1


async def test_create_binds_without_a_pull(engine: Engine) -> None:
    name = await engine.create(engine.image("busybox"), "sh", "-c", "exit 12")
    assert (await (await engine.start(name)).result()).code == 12


async def test_the_last_image_that_was_pulled_or_created_counts(engine: Engine) -> None:
    await engine.pull(engine.image("busybox"))
    await engine.pull(engine.image("debian"))
    await engine.pull(engine.image("debian"))
    result = await engine.run(engine.image("hello"), "/hello", "3")
    assert result.code == 3


async def test_an_image_that_was_bound_can_be_inspected_and_tagged(engine: Engine) -> None:
    image = engine.image("busybox")
    await engine.create(image, "true")
    await engine.call("POST", f"/images/{image}/tag", params={"repo": "htcondor.org/alice_at_x/busybox", "tag": "1"})
    for name in (image, "htcondor.org/alice_at_x/busybox:1"):
        found = (await engine.call("GET", f"/images/{name}/json")).json
        assert found["Architecture"] == "amd64"
        assert found["Id"].startswith("sha256:")
    await engine.call("DELETE", "/images/htcondor.org/alice_at_x/busybox:1")
    assert (await engine.ask("GET", "/images/htcondor.org/alice_at_x/busybox:1/json")).status == 404


async def test_a_second_job_while_one_has_the_slot_is_refused(engine: Engine) -> None:
    first = await engine.begin_shell(engine.image("busybox"), "echo ready; sleep 0.5; exit 8")
    await first.until_output(b"ready")
    assert await engine.pull(engine.image("debian"))  # told by create
    answer = await engine.ask("POST", "/containers/create", {"Image": engine.image("debian"), "Cmd": ["true"]})
    assert answer.status == 409
    assert "one job at a time" in answer.message
    assert (await first.result()).code == 8


async def test_a_second_job_while_one_is_created_is_refused(engine: Engine) -> None:
    name = await engine.create(engine.image("busybox"), "sh", "-c", "exit 9")
    answer = await engine.ask("POST", "/containers/create", {"Image": engine.image("busybox"), "Cmd": ["true"]})
    assert answer.status == 409
    assert (await (await engine.start(name)).result()).code == 9


async def test_a_name_in_use_is_refused(engine: Engine) -> None:
    name = await engine.create(engine.image("busybox"), "true")
    answer = await engine.ask("POST", "/containers/create", {"Image": engine.image("busybox")}, {"name": name})
    assert answer.status == 409
    assert f"{name} is in use" in answer.message


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a b", "-x", "x/y", "ü", "x"])
async def test_what_is_no_name_is_refused(engine: Engine, name: str) -> None:
    answer = await engine.ask("POST", "/containers/create", {"Image": engine.image("busybox")}, {"name": name})
    assert answer.status in (400, 409)
    assert "container name" in answer.message


async def test_a_container_is_found_by_name_id_and_the_beginning_of_its_id(engine: Engine) -> None:
    name = await engine.create(engine.image("busybox"), "true")
    identifier = (await engine.inspect(name))["Id"]
    assert (await engine.inspect(identifier))["Name"] == f"/{name}"
    assert (await engine.inspect(identifier[:12]))["Id"] == identifier


async def test_rm_of_a_running_container_ends_the_job_and_frees_the_name_at_once(engine: Engine) -> None:
    job = await engine.begin_shell(engine.image("busybox"), "trap '' TERM; echo ready; while :; do sleep 0.1; done")
    await job.until_output(b"ready")
    await engine.remove(job.name)
    assert (await engine.ask("GET", f"/containers/{job.name}/json")).status == 404
    assert await engine.processes() == []
    again = await engine.begin_shell(engine.image("busybox"), "exit 5", name=job.name)
    assert (await again.result()).code == 5


async def test_rm_without_force_leaves_a_running_container_alone(engine: Engine) -> None:
    job = await engine.begin_shell(engine.image("busybox"), "exec sleep 60")
    answer = await engine.ask("DELETE", f"/containers/{job.name}")
    assert answer.status == 409
    assert (await engine.inspect(job.name))["State"]["Running"]


async def test_rm_of_a_created_container_frees_the_slot(engine: Engine) -> None:
    await engine.remove(await engine.create(engine.image("busybox"), "true"))
    assert (await engine.shell(engine.image("busybox"), "exit 2")).code == 2


async def test_rm_ends_whoever_waits(engine: Engine) -> None:
    name = await engine.create(engine.image("busybox"), "true")
    attached, waiting = await engine.attach(name), await engine.begin_wait(name)
    await engine.remove(name)
    async with asyncio.timeout(5):
        assert await attached.output() == (b"", b"")
        assert (await waiting).status == 200


async def test_prune_removes_what_does_not_run_and_has_the_label(engine: Engine) -> None:
    labels = {"org.htcondorproject": "True"}
    job = await engine.begin_shell(engine.image("busybox"), "read x < /dev/null; exit 1", Labels=labels)
    await job.result()
    for filters, left in (({"label": ["other=True"]}, 1), ({"label": [LABEL]}, 0)):
        await engine.call("POST", "/containers/prune", params={"filters": json.dumps(filters)})
        assert len(await engine.containers()) == left


async def test_prune_takes_labels_as_the_docker_cli_sends_them(engine: Engine) -> None:
    name = await engine.create(engine.image("busybox"), "true", Labels={"org.htcondorproject": "True"})
    filters = json.dumps({"label": {LABEL: True}})
    answer = await engine.call("POST", "/containers/prune", params={"filters": filters})
    assert len(answer.json["ContainersDeleted"]) == 1
    assert (await engine.ask("GET", f"/containers/{name}/json")).status == 404


async def test_prune_leaves_running_containers_alone(engine: Engine) -> None:
    job = await engine.begin_shell(engine.image("busybox"), "exec sleep 60", Labels={"org.htcondorproject": "True"})
    await engine.call("POST", "/containers/prune", params={"filters": json.dumps({"label": [LABEL]})})
    assert (await engine.inspect(job.name))["State"]["Running"]


@pytest.mark.parametrize("call", ["start", "kill", "wait", "attach"])
async def test_an_unknown_container_is_not_found(engine: Engine, call: str) -> None:
    answer = await engine.ask("POST", f"/containers/nobody/{call}")
    assert answer.status == 404
    assert "No such container: nobody" in answer.message
    assert (await engine.ask("DELETE", "/containers/nobody")).status == 404


async def test_an_unknown_image_fails_create_in_the_registrys_words_and_the_slot_is_free(engine: Engine) -> None:
    image = engine.image("no-such-image")
    assert await engine.pull(image)
    answer = await engine.ask("POST", "/containers/create", {"Image": image, "Cmd": ["true"]})
    assert answer.status == 500
    assert "manifest unknown" in answer.message
    assert "no-such-image" in answer.message
    assert (await engine.shell(engine.image("busybox"), "exit 3")).code == 3


async def test_an_invalid_reference_fails_create_and_says_how_to_write_it(engine: Engine) -> None:
    await engine.pull("registry.test:5000/Upper:latest")
    answer = await engine.ask(
        "POST", "/containers/create", {"Image": "registry.test:5000/Upper:latest", "Cmd": ["true"]}
    )
    assert answer.status == 500
    assert "[registry/]repository[:tag][@digest]" in answer.message


async def test_no_image_is_refused(engine: Engine) -> None:
    assert "the job names no image" in (await engine.ask("POST", "/containers/create", {})).message


async def test_whoever_goes_away_while_create_waits_leaves_the_slot_free(simulator: Simulated) -> None:
    """HTCondor's startd kills a starter and its docker CLI, whose container nobody would ever remove."""
    pulled = simulator.cluster.kubelet.hold("registry.test:5000/debian")
    name = unique_name()
    body = {"Image": simulator.image("debian"), "Cmd": ["true"]}
    creating = asyncio.create_task(simulator.ask("POST", "/containers/create", body, {"name": name}))
    await simulator.cluster.server.until(lambda _: simulator.cluster.server.requests["patch"] == 1)
    creating.cancel()
    await asyncio.wait([creating])
    pulled.set()

    async def is_free() -> bool:
        body = {"Image": simulator.image("busybox"), "Cmd": ["true"]}
        return (await simulator.ask("POST", "/containers/create", body)).status == 201

    await eventually(is_free, seconds=5)
    assert len(await simulator.containers()) == 1


async def test_what_htcondor_sends_is_accepted(engine: Engine) -> None:
    """The request that docker 28 makes of the arguments that condor_starter 25 gives it."""
    folder = f"{SANDBOX}/slot/dir_4711"
    name = await engine.create(
        engine.image("busybox"),
        *("./condor_exec.exe", "1"),
        Hostname="alice-17.0-slot1_1.pilot",
        User="65534:65534",
        Env=["_CONDOR_SCRATCH_DIR=/x", "HOME=/var/lib/condor"],
        WorkingDir=folder,
        Labels={"org.htcondorproject": "True"},
        Tty=False,
        OpenStdin=False,
        StdinOnce=False,
        Volumes={},
        Entrypoint=None,
        OnBuild=None,
        HostConfig={
            "Binds": [f"{folder}:{folder}"],
            "LogConfig": {"Type": "none", "Config": {}},
            "NetworkMode": "default",
            "PortBindings": {},
            "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
            "CapAdd": ["SYS_PTRACE"],
            "CapDrop": ["all"],
            "Dns": [],
            "GroupAdd": ["65534"],
            "PidMode": "",
            "IpcMode": "",
            "Privileged": False,
            "PublishAllPorts": False,
            "ReadonlyRootfs": False,
            "SecurityOpt": ["no-new-privileges"],
            "ShmSize": 0,
            "Init": True,
            "CpuShares": 100,
            "Memory": 134217728,
            "MemorySwappiness": -1,
            "Devices": [],
            "DeviceRequests": None,
            "Ulimits": [],
            "ConsoleSize": [0, 0],
        },
        NetworkingConfig={"EndpointsConfig": {"default": {}}},
    )
    shown = await engine.inspect(name)
    assert shown["Config"]["WorkingDir"] == folder
    assert shown["NetworkSettings"]["Ports"] == {}


@pytest.mark.slow
async def test_rm_while_start_waits_ends_start(simulator: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as withheld:
        withheld.setattr(simulator.cluster.kubelet, "_show_running", lambda: None)  # which start waits for
        name = await simulator.create(simulator.image("busybox"), "true")
        starting = asyncio.create_task(simulator.ask("POST", f"/containers/{name}/start"))
        await eventually(lambda: is_starting(simulator))
        await simulator.begin_wait(name)
        await simulator.remove(name)
        assert "removed" in (await starting).message
    assert (await simulator.shell(simulator.image("busybox"), "exit 4")).code == 4


async def test_a_removal_at_the_moment_of_the_end_comes_after_the_end(
    simulator: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[Container] = []
    removing: list[asyncio.Future[bool]] = []
    release, advance = Container.release, PayloadMachine.advance

    def note(self: Container, run: Run) -> None:
        released.append(self)
        release(self, run)

    async def runs_when_removed(container: Container) -> bool:
        assert container.bind is not None
        await container.payload.remove(container.bind)
        return container.running

    def remove_at_the_end(self: PayloadMachine, event: PayloadEvent) -> None:
        advance(self, event)
        if event is PayloadEvent.SETTLED:  # whoever waits for the end is told in a later step of the loop
            removing.append(asyncio.ensure_future(runs_when_removed(released[0])))

    monkeypatch.setattr(Container, "release", note)
    monkeypatch.setattr(PayloadMachine, "advance", remove_at_the_end)
    assert (await simulator.shell(simulator.image("busybox"), "exit 3")).code == 3
    assert not await removing[0]
