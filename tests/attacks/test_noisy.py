"""Attacks that use up, flood, lock or leave something: one job each, and the next user's after it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import pytest

from lab.api import Lab
from lab.errors import LabError
from lab.levels import Level
from tests.attacks.ground import MARK, Attack, Outcome, attacked, chosen, python
from tests.e2e.pool import Result

pytestmark = pytest.mark.timeout(900)  # the first test of a level is told them all


@dataclass(frozen=True)
class Story:
    """Script of a job, and the condition that its result must meet."""

    script: str
    holds: Callable[[Result], bool] = lambda done: done.code == 0
    commands: Mapping[str, str] = field(default_factory=dict)


STORIES = {
    "a flood of standard output and error": Story(
        "head -c 60000000 /dev/zero >&2 & tr '\\0' x </dev/zero | head -c 60000000; wait",
        lambda done: (len(done.stdout), len(done.stderr)) == (60_000_000, 60_000_000),
        {"request_disk": "1G"},
    ),
    "output that nobody ends": Story(
        # The pipes are held open by what runs on in the background, in a session of its own.
        f"(trap '' HUP TERM INT; exec setsid sh -c 'while :; do echo {MARK}; sleep 0.01; done') & echo done",
        lambda done: done.stdout.startswith(b"done\n") or MARK.encode() in done.stdout,
    ),
    "fifty thousand files": Story(
        python(
            "import os\n"
            "for top in ('/tmp/leftover-of-alice', 'leftover-of-alice'):\n"
            "    os.mkdir(top)\n"
            "    for n in range(25000): open(f'{top}/{n}', 'w').close()\n"
        ),
    ),
    "folders that nobody can name": Story(
        python(
            "import os\n"
            "for top in ('/tmp', '/var/tmp', '/dev/shm', os.getcwd()):\n"
            "    os.chdir(top)\n"
            "    for n in range(1500):\n"
            "        os.mkdir('leftover-of-alice' * 10); os.chdir('leftover-of-alice' * 10)\n"
            "    open('file', 'w').close(); os.chmod('.', 0)\n"
        ),
    ),
    "names that are none": Story(
        python(
            "import os\n"
            "names = [b'-rf', b'--', b'new\\nline', b'\\x1b[2J\\x1b]0;evil\\x07', b'\\xff\\xfe', b' ',\n"
            "         b'*', b'$(touch evil)',\n"
            "         b'`id`', b\"'\", b'\"', b'\\\\', b'%s%n', b'a' * 255, b'..x', b'{}', b';']\n"
            "for top in (b'/tmp', b'/var/tmp', b'/dev/shm', os.getcwdb()):\n"
            "    for name in names:\n"
            "        os.mkdir(top + b'/d' + name[:254]); open(top + b'/' + name, 'w').close()\n"
            "        os.symlink(b'/etc', top + b'/l' + name[:254])\n"
        ),
    ),
    "all that a process can leave": Story(
        python(
            "import ctypes, os, socket\n"
            "mark = 'leftover-of-alice'\n"
            "for top in ('/tmp', '/var/tmp', '/dev/shm', os.getcwd()):\n"
            "    path = f'{top}/{mark}'\n"
            "    open(path, 'w').write(mark); os.chmod(path, 0o4777)\n"
            "    try: os.setxattr(path, f'user.{mark}', b'x')\n"
            "    except OSError as error: print(error)\n"
            "    os.mkfifo(path + '.fifo'); os.symlink('/', path + '.link'); os.link(path, path + '.hard')\n"
            "    socket.socket(socket.AF_UNIX).bind(path + '.socket')\n"
            "    os.mkdir(path + '.locked'); os.chmod(path + '.locked', 0)\n"
            "libc = ctypes.CDLL(None)\n"
            "for n in range(60):\n"
            "    libc.shmget(n + 1, 4096, 0o1666); libc.semget(n + 1, 3, 0o1666); libc.msgget(n + 1, 0o1666)\n"
            "for n in range(8):\n"
            "    libc.mq_open(f'/{mark}{n}'.encode(), os.O_CREAT | os.O_RDWR, 0o666, None)\n"
            "if os.fork() == 0:\n"
            "    os.setsid()\n"
            "    for number in range(1, 65):\n"
            "        if number not in (9, 19, 32, 33): libc.signal(number, 1)\n"
            "    one = socket.socket(socket.AF_UNIX); one.bind('\\0' + mark); one.listen()\n"
            "    two = socket.socket(); two.bind(('', 45678)); two.listen()\n"
            "    os.execvp('sleep', [mark, '300'])\n"
        ),
    ),
    "a core": Story(
        "ulimit -c unlimited; cat /proc/sys/kernel/core_pattern; (kill -SEGV $(sh -c 'echo $PPID')); "
        f"cd /tmp; sh -c ': {MARK}; kill -SEGV $$'; true"
    ),
    "all of shared memory": Story(
        f"dd if=/dev/zero of=/dev/shm/{MARK} bs=1M 2>/dev/null; df /dev/shm | tail -1 | tr -s ' ' | cut -d' ' -f4",
        lambda done: done.text == "0\n",
    ),
    "all watches and queues": Story(
        python(
            "import ctypes, os, time\n"
            "libc, count = ctypes.CDLL(None), 0\n"
            "for _ in range(1000):\n"
            "    if (one := libc.inotify_init()) < 0: break\n"
            "    count += 1\n"
            "    libc.inotify_add_watch(one, b'/k8spilot', 0x180)\n"
            "print(count > 100)\n"
        ),
        lambda done: done.text == "True\n",
    ),
    "connections to payload.sock without end": Story(
        python(
            "import os, socket, time\n"
            "end, held = time.monotonic() + 4, []\n"
            "for _ in range(8): os.fork()\n"
            "while time.monotonic() < end:\n"
            "    one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); one.settimeout(0.2)\n"
            "    try: one.connect('/k8spilot/payload.sock'); one.send(b'x' * 1024)\n"
            "    except OSError: pass\n"
            "    held = held[-50:] + [one]\n"
        ),
    ),
    "connections to the metrics without end": Story(
        python(
            "import os, re, socket, time\n"
            "with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:\n"
            "    one.connect(('10.255.255.255', 1)); own = one.getsockname()[0]\n"
            "end, held = time.monotonic() + 4, []\n"
            "while time.monotonic() < end:\n"
            "    one = socket.socket(); one.settimeout(0.2)\n"
            "    try: one.connect((own, 9464)); one.send(b'GET /metrics HTTP/1.1\\r\\nX: ' + b'x' * 9000)\n"
            "    except OSError: pass\n"
            "    held = held[-500:] + [one]\n"
        ),
    ),
    "connections to HTCondor without end": Story(
        python(
            "import socket, time\n"
            "ports = [int(r.split()[1].split(':')[1], 16) for r in open('/proc/net/tcp').readlines()[1:]\n"
            "         if r.split()[3] == '0A' and ':2408' not in r]\n"
            "assert len(ports) > 2\n"
            "with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:\n"
            "    one.connect(('10.255.255.255', 1)); own = one.getsockname()[0]\n"
            "end, held = time.monotonic() + 4, []\n"
            "while time.monotonic() < end:\n"
            "    for port in ports:\n"
            "        one = socket.socket(); one.settimeout(0.1)\n"
            "        try: one.connect((own, port)); one.send(b'x' * 5000)\n"
            "        except OSError: pass\n"
            "        held = held[-200:] + [one]\n"
        ),
    ),
    "arguments for the pilot's shell and its log": Story(
        "exit 0",
        lambda done: done.code == 0,
        {"arguments": "\"0 '\x1b[2J evil' 'a''b' '$(touch /tmp/evil)' '`id`' ';reboot'\""},
    ),
    "an environment for the pilot's programs": Story(
        'echo "$DOCKER_HOST $LD_PRELOAD_WAS"',
        lambda done: done.text == "tcp://evil.example:1 x\n",
        {
            "environment": (
                '"DOCKER_HOST=tcp://evil.example:1 DOCKER_CONFIG=/tmp LD_PRELOAD_WAS=x ENV=/tmp/evil '
                "BASH_ENV=/tmp/evil PYTHONSTARTUP=/tmp/evil _CONDOR_START=False GLIDEIN_Site=evil "
                'K8SPILOT_PAYLOAD_UID=1 POD_NAME=evil"'
            )
        },
    ),
}  # fmt: skip


MORE_KIB = 40 * 1024
"""An engine that has withstood them may have so much more memory in use."""


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, lab: Lab, battlefield: str, level: Level) -> dict[str, Outcome | LabError]:
    """Outcome of each story: alice and bob run them in turn, and each job looks first for traces of the last one."""
    with attacked(lab.at(level), battlefield) as ground:
        told = chosen(request, test_the_pilot_withstands.__name__, "name", level)
        attacks = {name: Attack(one.script, one.commands) for name, one in STORIES.items() if name in told}
        found = ground.in_turn(attacks)
        ground.is_fit()
        return found


AT_BASELINE: Final = (
    "a flood of standard output and error",
    "all watches and queues",
    "connections to payload.sock without end",
    "connections to the metrics without end",
    "connections to HTCondor without end",
    "arguments for the pilot's shell and its log",
    "an environment for the pilot's programs",
)
"""Stories that leave nothing in the pod, and meet the same programs at both levels. Traces of the others are removed by
root at one level, and from within the payload container at the other."""
NIGHTLY: Final = {("restricted", name) for name in AT_BASELINE}


@pytest.mark.parametrize("name", STORIES)
def test_the_pilot_withstands(outcomes: dict[str, Outcome | LabError], name: str) -> None:
    found = outcomes[name]
    assert isinstance(found, Outcome), found
    done = found.done
    assert STORIES[name].holds(done), (done.code, done.stdout[-500:], done.stderr[-500:])
    assert found.left == ""
    assert found.after.lives == found.before.lives
    assert found.after.memory < found.before.memory + MORE_KIB
