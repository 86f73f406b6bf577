"""K8SPILOT_REUSE: the next job of a claim has the container of the last one, if nothing of that job is left in it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import psutil
import pytest

from k8spilot.condor.ads.agent_link import RemoteStartdAd
from k8spilot.payload import reuse
from tests.engine.client import Client, Job, Result
from tests.engine.rings import Simulated, eventually, set_image, several_slots, simulated
from tests.simulator.cluster import Idle
from tests.simulator.images import REGISTRY
from tests.simulator.pod import PAYLOAD, payload_image, payload_status
from tests.simulator.programs import Programs

LABELS: Final = {"org.htcondorproject": "True"}
READ_ONLY: Final = Idle(read_only=True)


@dataclass
class Slot:
    """A slot whose startd tells whose job it has, and HTCondor's door to its engine."""

    simulator: Simulated
    door: Client
    name: str = "slot1"
    container: str = PAYLOAD
    claim: str = "<192.0.2.1:9618>#1#1#..."
    user: str = "alice@pool"
    job: int = 0
    starts: list[str] = field(default_factory=list)
    """Container ids of the jobs."""

    @property
    def container_name(self) -> str:
        """Docker's name of the present job's container, as HTCondor makes it."""
        return f"HTCJob{self.job}_0_{self.name}_PID{self.job}"

    async def look(self, _attributes: Sequence[str]) -> list[dict[str, Any]]:
        """Answer as the startd does."""
        other = {"Name": "slot2@pod", "PublicClaimId": "<192.0.2.1:9618>#1#9#...", "JobId": "7.7"}
        own = {"Name": f"{self.name}@pod", "PublicClaimId": self.claim, "JobId": f"{self.job}.0"}
        users = {"RemoteUser": self.user, "RemoteOwner": self.user}
        return [other | users, own | users]

    async def announce(self) -> None:
        """HTCondor has started the starter of the next job."""
        self.job += 1
        answer = await self.simulator.ask("GET", "/k8spilot/next-job", version="")
        assert answer.status == 200, answer.body

    async def shell(self, script: str, image: str = "busybox") -> Result:
        """Run a job of the slot's present tenant."""
        await self.announce()
        return await self.unannounced(script, image)

    async def unannounced(self, script: str, image: str = "busybox", job: int | None = None, **options: Any) -> Result:
        """Run a job for which no starter has come."""
        name = self.container_name if job is None else f"HTCJob{job}_0_{self.name}_PID{self.job}"
        result = await self.door.shell(self.simulator.image(image), script, name=name, Labels=LABELS, **options)
        self.note()
        return result

    async def begin(self, script: str, **options: Any) -> Job:
        """Start a job of the slot's present tenant."""
        await self.announce()
        image, name = self.simulator.image("busybox"), self.container_name
        return await self.door.begin_shell(image, script, name=name, Labels=LABELS, **options)

    def note(self) -> None:
        """Remember the container that runs."""
        self.starts.append(payload_status(self.simulator.cluster.server.pod, self.container)["containerID"])

    async def user_nanoseconds(self, name: str) -> int:
        """Processor time of a job, as HTCondor asks for it."""
        answer = await self.door.call("GET", f"/containers/{name}/stats", params={"stream": "0"})
        return int(answer.json["cpu_stats"]["cpu_usage"]["usage_in_usermode"])

    @property
    def containers(self) -> int:
        """Number of containers that the jobs had."""
        return len(set(self.starts))


@asynccontextmanager
async def _slot(
    programs: Programs, monkeypatch: pytest.MonkeyPatch, idle: Idle = READ_ONLY, **settings: Any
) -> AsyncIterator[Slot]:
    async with AsyncExitStack() as ends:
        simulator = await ends.enter_async_context(simulated(programs, idle=idle, **{"reuse": True, **settings}))
        door = await ends.enter_async_context(Client(simulator.cluster.settings.slots[0].htcondor_socket))
        found = Slot(simulator, door)
        monkeypatch.setattr(RemoteStartdAd, "query", lambda _, attributes: found.look(attributes))
        yield found


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine, what answers takes longer than usual."""
    monkeypatch.setattr(reuse, "_RENEW_SECONDS", 60.0)
    monkeypatch.setattr(reuse, "_TENANT_SECONDS", 60.0)


@pytest.fixture
async def slot(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Slot]:
    """One whose containers are reused."""
    async with _slot(programs, monkeypatch) as found:
        yield found


async def test_jobs_of_one_claim_and_image_have_one_container_and_ask_for_one_change(slot: Slot) -> None:
    requests = slot.simulator.cluster.server.requests
    for number in range(5):
        result = await slot.shell(f"echo {number}; exit {number}")
        assert (result.code, result.stdout) == (number, f"{number}\n".encode())
    assert slot.containers == 1
    assert requests["patch"] == 1


async def test_each_has_the_environment_the_input_and_the_signals_of_its_own(slot: Slot) -> None:
    assert (await slot.shell("export LEFT=1; ulimit -n 100; umask 077; cd /tmp; exit 0")).code == 0
    assert (await slot.shell("echo ${LEFT-none} $(ulimit -n) $(umask) $PWD; kill -TERM $$")).code == 143
    assert slot.containers == 1


@pytest.mark.parametrize("change", ["claim", "user"])
async def test_a_job_of_another_claim_or_user_has_a_fresh_container(slot: Slot, change: str) -> None:
    await slot.shell("exit 0")
    setattr(slot, change, "another")
    await slot.shell("exit 0")
    assert slot.containers == 2
    await slot.shell("exit 0")
    assert slot.containers == 2


async def test_a_job_with_another_image_has_a_fresh_container(slot: Slot) -> None:
    for image in ("busybox", "debian", "busybox"):
        assert (await slot.shell("exit 4", image)).code == 4
    assert slot.containers == 3


async def test_a_container_that_nobody_announced_is_fresh_and_serves_nobody_after_it(slot: Slot) -> None:
    await slot.shell("exit 0")
    await slot.unannounced("exit 0")
    await slot.shell("exit 0")
    assert slot.containers == 3


async def test_another_job_than_the_startds_has_a_fresh_container(slot: Slot) -> None:
    await slot.shell("exit 0")
    await slot.announce()
    assert (await slot.unannounced("echo fine", job=99)).stdout == b"fine\n"
    assert slot.containers == 2
    await slot.shell("exit 0")
    assert slot.containers == 3


async def test_a_startd_that_does_not_answer_costs_fresh_containers_only(
    slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(*_: object) -> None:
        return None

    monkeypatch.setattr(RemoteStartdAd, "query", silent)
    for _ in range(2):
        assert (await slot.shell("exit 5")).code == 5
    assert slot.containers == 2


LEAVINGS: Final = {
    "a process": "(trap '' TERM HUP; sleep 60) >/dev/null 2>&1 & exit 0",
    "many processes": "for i in 1 2 3 4 5 6 7 8; do setsid sleep 60 >/dev/null 2>&1 & done; exit 0",
    "files": "echo secret >/tmp/left; mkfifo /tmp/fifo; echo x >/var/tmp/left; exit 0",
}


@pytest.mark.parametrize("left", LEAVINGS)
async def test_what_a_job_leaves_is_gone_before_the_next_one_of_its_claim(slot: Slot, left: str) -> None:
    await slot.shell(LEAVINGS[left])
    result = await slot.shell("ls -A /tmp /var/tmp | grep -v :; ps -o args | grep '[s]leep 60' || true")
    assert result.stdout.split() == []
    assert slot.containers == 1


CHANGES: Final = {
    "limits": "resource.prlimit(first, resource.RLIMIT_NOFILE, (64, 64))",
    "affinity": "os.sched_setaffinity(first, {max(os.sched_getaffinity(first))})",
    "priority": "os.setpriority(os.PRIO_PROCESS, first, 19)",
    "io-priority": "ctypes.CDLL(None).syscall(251, 1, first, 3 << 13)",  # ioprio_set(2) of x86-64
}
CHANGE: Final = "python3 -c 'import ctypes, os, resource, sys; first = int(sys.argv[1]); {}' $PPID; exit $?"


@pytest.mark.slow
@pytest.mark.parametrize("what", CHANGES)
async def test_a_container_whose_job_has_changed_payload_init_serves_no_other(
    slot: Slot, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert (await slot.shell(CHANGE.format(CHANGES[what]), "debian")).code == 0
    assert (await slot.shell("ulimit -n; exit 6", "debian")).code == 6
    assert slot.containers == 2
    assert f"has changed or left: {what}" in caplog.text


@pytest.mark.slow
async def test_a_container_whose_payload_init_was_stopped_is_replaced_after_its_job_was_ended(slot: Slot) -> None:
    await slot.announce()
    image, name = slot.simulator.image("busybox"), slot.container_name
    job = await slot.door.begin_stopping(image, name=name, Labels=LABELS)
    await job.kill("KILL")
    await job.result()
    await slot.door.remove(job.name)
    assert (await slot.shell("exit 7")).code == 7


@pytest.mark.slow
async def test_a_container_that_does_not_answer_a_renewal_in_time_is_replaced(
    slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reuse, "_RENEW_SECONDS", 0.2)
    await slot.shell("exit 0")
    container = slot.simulator.cluster.kubelet.container
    assert container is not None
    first = psutil.Process(container.pid)
    await slot.announce()
    first.suspend()
    try:
        assert (await slot.unannounced("exit 7")).code == 7
    finally:
        with suppress(psutil.NoSuchProcess):
            first.resume()
    assert slot.containers == 2


async def test_a_container_that_ends_after_its_renewal_counts_from_its_next_start(slot: Slot) -> None:
    await slot.shell("exit 0")
    await slot.announce()
    name = slot.container_name
    await slot.door.create(slot.simulator.image("busybox"), "sh", "-c", "exit 8", name=name, Labels=LABELS)
    container = slot.simulator.cluster.kubelet.container
    assert container is not None
    container.kill_first()

    async def has_ended() -> bool:
        return not container.running

    await eventually(has_ended)
    job = await slot.door.start(name)
    assert (await job.result()).code == 8
    assert await slot.user_nanoseconds(name) == 1_500_000_000
    await slot.door.remove(name)


async def test_usage_counts_from_the_jobs_own_start(slot: Slot) -> None:
    seen = []
    for _ in range(2):
        job = await slot.begin("exit 0")
        await job.result()
        seen.append(await slot.user_nanoseconds(job.name))
        await slot.door.remove(job.name)
    assert seen == [1_500_000_000, 0]  # the simulator's figures stand still


async def test_a_process_that_the_kernel_killed_for_memory_does_not_count_for_the_next_job(slot: Slot) -> None:
    job = await slot.begin("echo ready; read line; exit 0", OpenStdin=True, AttachStdin=True)
    await job.until_output(b"ready")
    container = slot.simulator.cluster.kubelet.container
    assert container is not None
    container.count_oom_kill()
    await job.kill("KILL")
    await job.result()
    assert (await slot.door.inspect(job.name))["State"]["OOMKilled"]
    await slot.door.remove(job.name)
    following = await slot.begin("exit 0")
    await following.result()
    assert not (await slot.door.inspect(following.name))["State"]["OOMKilled"]
    await slot.door.remove(following.name)


async def test_an_image_with_a_folder_that_is_a_volume_runs_each_job_in_a_fresh_container(slot: Slot) -> None:
    slot.simulator.cluster.images.add("volume:latest", command=["sh"], volumes=["/data"])
    for _ in range(2):
        assert (await slot.shell("exit 3", "volume")).code == 3
    assert slot.containers == 2


async def test_a_session_beside_a_job_has_an_end_and_a_number_of_its_own_in_each_job(slot: Slot) -> None:
    for number in range(2):
        job = await slot.begin("echo ready; exec sleep 60")
        await job.until_output(b"ready")
        found = await slot.door.exec(job.name, "sh", "-c", f"echo {number}; exit {number}")
        assert (found.code, found.stdout) == (number, f"{number}\n".encode())
        _, attached = await slot.door.begin_exec(job.name, "sh", "-c", "echo session; exec sleep 60")
        assert await attached.frame() == (1, b"session\n")
        await job.kill("KILL")
        assert (await job.result()).code == 137
        await slot.door.remove(job.name)
        slot.note()
    assert slot.containers == 1


async def test_an_image_that_somebody_else_has_set_ends_the_reuse(slot: Slot) -> None:
    await slot.shell("exit 0")
    server, other = slot.simulator.cluster.server, f"{REGISTRY}/debian:forky"
    await set_image(server, other)
    await server.until(lambda pod: payload_status(pod)["image"] == other)
    assert (await slot.shell("exit 4")).code == 4
    assert slot.containers == 2


async def test_the_idle_image_comes_as_ever_and_the_next_job_has_a_fresh_container(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _slot(programs, monkeypatch, idle_after_seconds=0.1) as slot:
        cluster = slot.simulator.cluster
        idle = payload_image(cluster.server.pod)
        await slot.shell("exit 0")
        await cluster.server.until(lambda pod: payload_image(pod).startswith(f"{idle}-"))
        assert (await slot.shell("exit 3")).code == 3
        assert slot.containers == 2
        assert cluster.kubelet.back_offs == 0


@pytest.mark.parametrize(
    ("reuse", "idle"), [(False, READ_ONLY), (True, Idle())], ids=["without the setting", "with a writable root"]
)
async def test_each_job_has_a_fresh_container(
    programs: Programs, monkeypatch: pytest.MonkeyPatch, reuse: bool, idle: Idle
) -> None:
    async with _slot(programs, monkeypatch, idle, reuse=reuse) as slot:
        for _ in range(3):
            await slot.shell("exit 0")
        assert slot.containers == 3


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "containers"), [((256, 256, 256), 1), ((256, 512), 1), ((512, 256), 2)])
async def test_jobs_of_a_partitionable_slot_have_one_container_unless_the_next_needs_less_memory(
    programs: Programs, monkeypatch: pytest.MonkeyPatch, sizes: Sequence[int], containers: int
) -> None:
    async with several_slots(programs, 2, slot_sizes="requested", reuse=True, idle=READ_ONLY) as simulators:
        simulator = simulators[1]
        async with Client(simulator.cluster.settings.slots[1].htcondor_socket) as door:
            slot = Slot(simulator, door, name="slot1_2", container="payload-2")
            monkeypatch.setattr(RemoteStartdAd, "query", lambda _, attributes: slot.look(attributes))
            for mebibytes in sizes:
                await slot.announce()
                size: dict[str, Any] = {"HostConfig": {"CpuShares": 100, "Memory": mebibytes << 20}}
                assert (await slot.unannounced("exit 9", **size)).code == 9
            assert slot.containers == containers
