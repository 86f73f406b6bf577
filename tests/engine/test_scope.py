"""The scope of a payload container: abstract sockets and processes outside of it, and what it must not cost a job."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from k8spilot.cli import status
from k8spilot.model.command import Command
from k8spilot.payload.command.exec_session import ExecSession
from k8spilot.payload.command.stdio import Stdio
from tests.engine.payload_inits import build_scoped, containers
from tests.engine.rings import Engine, Simulated
from tests.simulator.programs import Programs

NOT_SCOPED = 64
LAYERS = 16
"""Number of domains that the kernel puts into one another (landlock(7))."""
KINDS = {"SOCK_STREAM": socket.SOCK_STREAM, "SOCK_SEQPACKET": socket.SOCK_SEQPACKET, "SOCK_DGRAM": socket.SOCK_DGRAM}

REACH = """
use Socket;
for my $kind (SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM) {
    socket(my $one, AF_UNIX, $kind, 0) or die "socket: $!";
    my $name = pack_sockaddr_un("\\0$ARGV[0]-$kind");
    print connect($one, $name) ? "reached" : 0 + $!, " ";
    socket(my $other, AF_UNIX, $kind, 0) or die "socket: $!";
    print send($other, "x", MSG_NOSIGNAL, $name) ? "sent" : 0 + $!, " " if $kind == SOCK_DGRAM;
}
"""
SERVE = """
use Socket;
my @held;
for my $kind (SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM) {
    socket(my $one, AF_UNIX, $kind, 0) or die "socket: $!";
    bind($one, pack_sockaddr_un("\\0$ARGV[0]-$kind")) or die "bind: $!";
    listen($one, 5);
    push @held, $one;
}
$| = 1; print "ready\\n"; sleep 60;
"""


@pytest.fixture(scope="module")
def scoped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that runs another in a scope."""
    program = build_scoped(tmp_path_factory.mktemp("scoped"))
    if subprocess.run([program, "true"], check=False).returncode == NOT_SCOPED:
        pytest.skip("the kernel has no such scope: it is older than Linux 6.12, or has no Landlock")
    return program


@pytest.fixture
def served() -> Iterator[str]:
    """Abstract sockets of all kinds, of this process; how their names begin."""
    name = f"k8spilot-test-{id(object()):x}"
    with ExitStack() as sockets:
        for kind in KINDS.values():
            one = sockets.enter_context(socket.socket(socket.AF_UNIX, kind))
            one.bind(f"\0{name}-{int(kind)}")
            if kind is not socket.SOCK_DGRAM:
                one.listen()
        yield name


async def test_a_job_reaches_no_abstract_socket_outside_of_its_container(
    simulator: Simulated, scoped: Path, served: str
) -> None:
    outside = await asyncio.create_subprocess_exec("perl", "-e", REACH, served, stdout=-1)
    assert (await outside.communicate())[0] == b"reached reached reached sent "
    result = await simulator.run(simulator.image("debian"), "perl", "-e", REACH, served)
    assert result.stdout == b"1 1 1 1 ", result  # EPERM
    found = await asyncio.to_thread(status.query, str(simulator.cluster.settings.socket))
    assert found["slots"][0]["payload_scoped"] is True


async def test_a_job_and_what_runs_beside_it_reach_each_others_abstract_sockets(engine: Engine) -> None:
    job = await engine.begin_shell(engine.image("debian"), f"exec perl -e '{SERVE}' of-the-job")
    await job.until_output(b"ready")
    result = await engine.exec(job.name, "perl", "-e", REACH, "of-the-job")
    assert result.stdout == b"reached reached reached sent "
    _, session = await engine.begin_exec(job.name, "perl", "-e", SERVE, "of-the-session")
    await session.until(b"ready")
    assert (
        await engine.exec(job.name, "perl", "-e", REACH, "of-the-session")
    ).stdout == b"reached reached reached sent "


def test_a_sandbox_in_a_job_can_mount_as_before(scoped: Path) -> None:
    """As apptainer does where nobody is root: in a domain with a right to files, mount(2) is refused."""
    script = "mount -t tmpfs none /mnt && mount --bind /mnt /media && umount /media && echo mounted"
    inside = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]
    plain = subprocess.run(inside, capture_output=True, check=False)
    if plain.stdout != b"mounted\n":
        pytest.skip(f"nobody can do that here: {plain.stderr.decode()}")
    assert subprocess.run([scoped, *inside], capture_output=True, check=False).stdout == b"mounted\n"


def test_a_debugger_in_a_job_traces_what_is_in_the_job_and_nothing_else(scoped: Path) -> None:
    program = (
        "import ctypes, os, sys, time\n"
        "if (own := os.fork()) == 0: time.sleep(60)\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "for pid in (own, int(sys.argv[1])): print(libc.ptrace(0x4206, pid, None, None), ctypes.get_errno())\n"
        "os.kill(own, 9)\n"
        "open(f'/proc/{sys.argv[1]}/mem')\n"
    )
    with subprocess.Popen(["sleep", "60"]) as other:
        done = subprocess.run(
            [scoped, sys.executable, "-c", program, str(other.pid)], capture_output=True, check=False, text=True
        )
        other.kill()
    assert done.stdout.splitlines() == ["0 0", "-1 1"]
    assert "PermissionError" in done.stderr


async def test_without_a_scope_payload_init_works_and_says_so_and_it_is_logged_once(
    programs: Programs, scoped: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with containers(programs) as place:
        for _ in range(2):
            container, channel = await place.start([scoped] * LAYERS)  # the kernel refuses one more
            assert channel.scoped is False
            stdio = Stdio()
            session = ExecSession(channel, 1, Command((b"/hello",), directory=b"/"), stdio)
            await session.follow()
            assert session.ended.result().code == 0
            await container.kill()
            await asyncio.wait_for(channel.gone, 5)
        assert sum("reach abstract Unix sockets" in one for one in caplog.messages) == 1
        _, channel = await place.start()
        assert channel.scoped is True
