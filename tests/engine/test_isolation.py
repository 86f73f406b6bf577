"""Jobs are hostile: what one does to its container, or leaves behind, harms no other, and forges no result."""

import asyncio

import pytest

from tests.engine.client import Failed, Job
from tests.engine.rings import Engine, Simulated, eventually, simulated
from tests.simulator.kubelet import Kubelet
from tests.simulator.pod import payload_image
from tests.simulator.programs import Programs

FORGE = """
use Socket;
socket(my $pilot, AF_UNIX, SOCK_SEQPACKET, 0) or die "socket: $!";
connect($pilot, sockaddr_un("/k8spilot/payload.sock")) or die "connect: $!";
send($pilot, "hello 4 fresh scoped -", MSG_NOSIGNAL);
send($pilot, "exit 0", MSG_NOSIGNAL);
recv($pilot, my $answer, 100, 0);
print length($answer // "") ? "heard" : "turned away";
"""

LEAVE = """
for folder in /tmp /var/tmp; do
    mkdir -p $folder/of-the-last/deep && echo secret > $folder/of-the-last/deep/file && ln -s /etc $folder/link
    echo hidden > $folder/.hidden; mkfifo $folder/pipe; chmod 000 $folder/of-the-last
done
echo secret > /dev/shm/of-the-last
perl -e 'defined shmget(0, 100, 0600 | 01000) or die $!; defined semget(0, 1, 0600 | 01000) or die $!;
         defined msgget(0, 0600 | 01000) or die $!'
"""

LOOK = """
find /tmp /var/tmp /dev/shm -mindepth 1 -user $(id -u) 2>/dev/null
perl -e 'for (["shm", 7], ["sem", 4], ["msg", 7]) {
    open my $table, "<", "/proc/sysvipc/$_->[0]" or die $!;
    while (my $row = <$table>) { print "$_->[0] $row" if (split " ", $row)[$_->[1]] eq $<; }
}'
true
"""


async def _is_lost(engine: Engine, job: Job) -> None:
    """Nothing says that the job has a result."""
    result = await job.result()
    assert "no result" in result.error
    answer = await engine.ask("GET", f"/containers/{job.name}/json")
    assert answer.status == 500
    assert "no result" in answer.message
    await engine.remove(job.name)


async def _next_job_is_fine(engine: Engine) -> None:
    assert (await engine.shell(engine.image("debian"), "echo fine; exit 3")).stdout == b"fine\n"


async def test_what_runs_on_in_the_background_is_dead_before_wait_answers(engine: Engine) -> None:
    script = "(trap '' TERM HUP INT; exec sleep 31557) & setsid sleep 31557 & echo done; exit 3"
    result = await asyncio.wait_for(engine.shell(engine.image("debian"), script), 20)
    assert (result.code, result.stdout) == (3, b"done\n")
    assert await engine.processes() == []


async def test_a_fork_that_never_stops_ends_with_its_job(engine: Engine) -> None:
    script = "spawn() { sleep 0.01; spawn & }; spawn & sleep 0.3; exit 5"
    result = await asyncio.wait_for(engine.shell(engine.image("busybox"), script), 30)
    assert result.code == 5
    assert await engine.processes() == []


async def test_a_job_that_kills_payload_init_has_no_result(engine: Engine) -> None:
    job = await engine.begin_attack(engine.image("busybox"), "kill -KILL $PPID; sleep 60; exit 0")
    await _is_lost(engine, job)
    await _next_job_is_fine(engine)


async def test_a_job_that_kills_payload_init_before_it_can_report_is_lost_and_not_held(engine: Engine) -> None:
    """HTCondor would hold a job for any text in State.Error, and takes any exit code for the job's."""
    name = await engine.create(engine.image("busybox"), "sh", "-c", "kill -KILL $PPID; sleep 60")
    started = await engine.ask("POST", f"/containers/{name}/start")
    assert started.status in (204, 500)  # as the race went
    ended = (await (await engine.begin_wait(name))).json
    assert "no result" in ended["Error"]["Message"]
    inspected = await engine.ask("GET", f"/containers/{name}/json")
    assert inspected.status == 500
    assert "no result" in inspected.message
    await engine.remove(name)
    await _next_job_is_fine(engine)


async def test_a_job_that_kills_everything_it_can_has_no_result(engine: Engine) -> None:
    job = await engine.begin_attack(engine.image("busybox"), "trap '' TERM; kill -KILL -1; exit 0")
    await _is_lost(engine, job)
    await _next_job_is_fine(engine)


@pytest.mark.slow
async def test_a_job_that_stops_payload_init_can_be_removed(engine: Engine) -> None:
    job = await engine.begin_stopping(engine.image("busybox"))
    async with asyncio.timeout(15):
        await engine.remove(job.name)
    await _next_job_is_fine(engine)


async def test_a_job_that_stops_payload_init_at_once_can_be_removed(engine: Engine) -> None:
    """Perhaps before payload-init can say that it runs: then `start` does not answer before the end."""
    name = await engine.create(engine.image("busybox"), "sh", "-c", "kill -STOP $PPID; exec sleep 60")
    starting = asyncio.create_task(engine.ask("POST", f"/containers/{name}/start"))
    await asyncio.wait([starting], timeout=3)
    async with asyncio.timeout(15):
        await engine.remove(name)
        await starting
    await _next_job_is_fine(engine)


@pytest.mark.slow
async def test_a_job_that_stops_payload_init_and_ends_has_no_result_once_it_is_killed(engine: Engine) -> None:
    job = await engine.begin_stopping(engine.image("busybox"), then="exit 0")
    await job.kill("KILL")
    async with asyncio.timeout(15):
        assert (await job.result()).error
    await engine.remove(job.name)
    await _next_job_is_fine(engine)


@pytest.mark.parametrize("limit", [0, 8])
async def test_a_job_that_lowers_payload_inits_limit_of_files_keeps_its_own_result(engine: Engine, limit: int) -> None:
    """The limit is that of another process of the same uid (prlimit(2)), and no privilege is needed to lower it."""
    script = (
        f"trap 'exit 4' TERM; prlimit --pid $PPID --nofile={limit}:{limit} && echo lowered; while :; do sleep 0.1; done"
    )
    job = await engine.begin_shell(engine.image("debian"), script)
    await job.until_output(b"lowered")
    beside = await engine.exec(job.name, "true")
    assert beside.code == 126
    assert b"the job has lowered the limit of its open files" in beside.stdout + beside.stderr
    _, terminal = await engine.begin_exec(job.name, "true", Tty=True)
    assert (
        b"k8spilot: the container has no terminal for this session (Too many open files)"
        in await terminal.reader.read()
    )
    await job.kill("TERM")
    assert (await job.result()).code == 4
    await engine.remove(job.name)
    await _next_job_is_fine(engine)


async def test_a_forged_connection_is_turned_away_and_changes_nothing(engine: Engine) -> None:
    result = await engine.run(engine.image("debian"), "perl", "-e", FORGE + "exit 4;")
    assert (result.code, result.stdout) == (4, b"turned away")
    await _next_job_is_fine(engine)


async def test_a_forged_connection_in_place_of_a_killed_payload_init_is_no_result(engine: Engine) -> None:
    script = "kill KILL => $ARGV[0];" + FORGE + "exit 0;"
    job = await engine.begin_attack(engine.image("debian"), f"exec perl -e '{script}' $PPID")
    await _is_lost(engine, job)
    await _next_job_is_fine(engine)


async def test_nothing_that_a_job_leaves_is_there_for_the_next(engine: Engine) -> None:
    assert (await engine.shell(engine.image("debian"), LEAVE)).code == 0
    result = await engine.shell(engine.image("debian"), LOOK)
    assert (result.stdout, result.stderr) == (b"", b"")


async def test_links_that_a_job_leaves_lead_the_cleaning_nowhere(simulator: Simulated) -> None:
    outside = simulator.cluster.volumes.execute / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    script = f"ln -s {outside} /tmp/link; ln -s {outside}/kept /var/tmp/link; mkdir /tmp/a; ln -s {outside} /tmp/a/b"
    assert (await simulator.shell(simulator.image("busybox"), script)).code == 0
    assert (await simulator.shell(simulator.image("busybox"), "ls -A /tmp /var/tmp | grep -v :; true")).code == 0
    assert (outside / "kept").read_text() == "kept"
    assert list(simulator.cluster.volumes.tmp.iterdir()) == []


async def test_the_job_has_no_way_to_the_pilots_volumes_and_descriptors(engine: Engine) -> None:
    script = """
        touch /k8spilot/x 2>/dev/null && echo wrote; ls /k8spilot
        ls /var/run/secrets/kubernetes.io 2>/dev/null
        for one in /proc/$PPID/fd/[0-9]*; do [ -e "$one" ] && echo "$one"; done
        ls /proc/self/fd | tr '\\n' ' '
    """
    result = await engine.shell(engine.image("busybox"), script)
    lines = result.stdout.decode().splitlines()
    assert lines[:3] == ["bin", "gpus.json", "payload.sock"]  # what GPUs its own container has is no secret
    assert lines[3].split() == ["0", "1", "2", "3"]  # and ls's own


async def test_a_job_cannot_gain_privileges(engine: Engine) -> None:
    result = await engine.shell(engine.image("debian"), "grep -E '^(Cap(Eff|Prm)|NoNewPrivs)' /proc/self/status; id -u")
    *status, uid = result.stdout.decode().split("\n")[:-1]
    assert [line.split()[1] for line in status] == ["0" * 16, "0" * 16, "1"]
    assert int(uid) > 0


async def test_what_a_lost_job_left_is_gone_for_the_next(engine: Engine) -> None:
    script = f"trap 'kill -KILL $PPID' TERM\n{LEAVE}\necho ready; while :; do sleep 0.05; done"
    job = await engine.begin_shell(engine.image("debian"), script)
    await job.until_output(b"ready")
    await job.kill("TERM")
    await _is_lost(engine, job)
    result = await engine.shell(engine.image("debian"), LOOK)
    assert result.stdout == b""


@pytest.mark.slow
@pytest.mark.parametrize("rests", [False, True])
async def test_a_container_that_the_kubelet_starts_again_late_is_not_taken_for_the_next_jobs(
    programs: Programs, rests: bool
) -> None:
    """Both jobs have the same image, and a status tells no more: the kubelet would end it under the next job."""
    async with simulated(programs, idle_after_seconds=0.1 if rests else 60) as simulator:
        job = await simulator.begin_shell(simulator.image("debian"), "echo ready; exec sleep 60")
        await job.until_output(b"ready")
        kubelet, server = simulator.cluster.kubelet, simulator.cluster.server
        started_again = kubelet.hold("registry.test:5000/debian")
        of_job = payload_image(server.pod)
        assert kubelet.container is not None
        kubelet.container.kill_first()
        await _is_begun(kubelet)
        await _is_lost(simulator, job)
        if rests:
            await server.until(lambda pod: payload_image(pod) != of_job)
        asked = payload_image(server.pod)
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(simulator.shell(simulator.image("debian"), "sleep 0.5; echo fine"))
            await server.until(lambda pod: payload_image(pod) != asked)
            started_again.set()
        assert following.result().stdout == b"fine\n"
        assert kubelet.starts.count(of_job) == 2
        assert "/k8spilot:" in kubelet.starts[-2]


async def test_a_container_of_a_bind_that_was_given_up_is_not_taken_for_the_next_jobs(programs: Programs) -> None:
    async with simulated(programs, idle_after_seconds=60) as simulator:
        kubelet, server = simulator.cluster.kubelet, simulator.cluster.server
        started = kubelet.hold("registry.test:5000/debian")
        given_up = await _give_up(simulator, "debian")
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(simulator.shell(simulator.image("debian"), "sleep 0.5; echo fine"))
            await server.until(lambda pod: payload_image(pod) != given_up)
            started.set()
        assert following.result().stdout == b"fine\n"
        assert given_up in kubelet.starts
        assert "/k8spilot:" in kubelet.starts[-2]


async def _is_begun(kubelet: Kubelet) -> None:
    """The kubelet has ended the container before, or seen its end, and is about to pull."""

    async def is_begun() -> bool:
        return kubelet.container is None

    await eventually(is_begun)


async def _give_up(simulator: Simulated, image: str) -> str:
    """Begin to bind an image for a job that is removed before it came; the reference that was asked for."""
    server = simulator.cluster.server
    before = payload_image(server.pod)
    pull = asyncio.create_task(simulator.pull(simulator.image(image)))
    asked = payload_image(await server.until(lambda pod: payload_image(pod) != before))
    await _is_begun(simulator.cluster.kubelet)
    await simulator.ask("POST", "/containers/HTCJob7_0_slot1_PID7/kill")  # as HTCondor, of a job that it removes
    await asyncio.wait([pull], timeout=10)
    return asked


@pytest.mark.slow
@pytest.mark.parametrize(
    "message", ["hello 9 fresh -", "hello 4 fresh scoped - one-file", "exit -5", "nonsense", "started", ""]
)
async def test_a_stranger_at_the_socket_does_no_harm(simulator: Simulated, message: str) -> None:
    """The client has the job's uid, and payload-init is away: it is cut off, and the next container is served."""
    script = FORGE.replace("hello 4 fresh scoped -", message)
    job = await simulator.begin_shell(simulator.image("debian"), "echo ready; exec sleep 60")
    await job.until_output(b"ready")
    pulled = simulator.cluster.kubelet.hold("registry.test:5000/debian")  # no container comes after this one
    assert simulator.cluster.kubelet.container is not None
    simulator.cluster.kubelet.container.kill_first()
    assert (await job.result()).error
    uid = simulator.cluster.settings.payload_uid
    socket = str(simulator.cluster.settings.exchange / "payload.sock")
    stranger = await asyncio.create_subprocess_exec(
        "perl", "-e", script.replace("/k8spilot/payload.sock", socket), user=uid, group=uid, stdout=-1, extra_groups=[]
    )
    output, _ = await asyncio.wait_for(stranger.communicate(), 10)
    assert output == b"turned away"
    pulled.set()
    await simulator.remove(job.name)
    await _next_job_is_fine(simulator)


async def test_a_process_of_another_uid_is_turned_away(simulator: Simulated) -> None:
    job = await simulator.begin_shell(simulator.image("debian"), "echo ready; sleep 0.5; exit 6")
    await job.until_output(b"ready")
    socket = str(simulator.cluster.settings.exchange / "payload.sock")
    stranger = await asyncio.create_subprocess_exec(
        *("perl", "-e", FORGE.replace("/k8spilot/payload.sock", socket)),
        user=46999,
        group=46999,
        stdout=-1,
        extra_groups=[],
    )
    output, _ = await asyncio.wait_for(stranger.communicate(), 10)
    assert output == b"turned away"
    assert (await job.result()).code == 6


async def test_the_idle_container_comes_back_after_it_was_killed(simulator: Simulated) -> None:
    kubelet = simulator.cluster.kubelet
    assert kubelet.container is not None
    kubelet.container.kill_first()

    async def is_back() -> bool:
        return kubelet.restarts == 1

    await eventually(is_back)
    await _next_job_is_fine(simulator)


@pytest.mark.parametrize("volume", ["bin", "bin/", "", "bin/../bin/payload-init"])
async def test_an_image_that_brings_its_own_payload_init_is_refused(simulator: Simulated, volume: str) -> None:
    place = f"{simulator.cluster.settings.exchange}/{volume}"
    image = simulator.cluster.images.add("evil:1", volumes=[place]).reference
    with pytest.raises(Failed, match=r"declares a volume at .* which belongs to the execution point"):
        await simulator.shell(image, "exit 0")
    assert (await simulator.shell(simulator.image("busybox"), "exit 3")).code == 3


async def test_a_job_that_signals_all_that_it_can_does_not_end_its_container(engine: Engine) -> None:
    script = "trap '' TERM INT HUP USR1; for n in TERM INT HUP USR1 CONT; do kill -$n -1; kill -$n $PPID; done; exit 6"
    assert (await engine.shell(engine.image("busybox"), script)).code == 6


async def test_a_job_that_connects_without_end_costs_the_pilot_little(simulator: Simulated) -> None:
    script = (
        "import socket, time\n"
        "count, end = 0, time.monotonic() + 1\n"
        "while time.monotonic() < end:\n"
        "    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:\n"
        "        one.connect('/k8spilot/payload.sock')\n"
        "    count += 1\n"
        "print(count)\n"
    )
    result = await simulator.run(simulator.image("debian"), "python3", "-c", script)
    assert int(result.stdout) < 150, result
