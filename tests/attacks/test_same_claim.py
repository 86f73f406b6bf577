"""Attacks on the next job of the same claim, which has the same container (K8SPILOT_REUSE)."""

import json
from collections.abc import Mapping

import pytest

from lab.jobs import BAD_NEWS
from tests.attacks.arsenal import ATTACKS
from tests.attacks.ground import ARSENAL, MARK, RESTRICTED, WITNESS, Ground, packed, python

pytestmark = [pytest.mark.landing, RESTRICTED]

EMPTY: Mapping[str, bytes] = {}

LEAVE = python(
    f"""
import ctypes, os, signal, socket, subprocess
MARK = "{MARK}"
for folder in ("/tmp", "/var/tmp", "/dev/shm"):
    with open(f"{{folder}}/{{MARK}}", "w") as file:
        file.write(MARK)
open(f"/dev/mqueue/{{MARK}}", "w").close()  # a queue
os.makedirs(f"/tmp/.{{MARK}}/deep", mode=0o000, exist_ok=True)
os.mkfifo(f"/var/tmp/fifo-{{MARK}}")
libc = ctypes.CDLL(None)
for call in (lambda: libc.shmget(0x1337, 4096, 0o1666), lambda: libc.msgget(0x1337, 0o1666)):
    assert call() >= 0
assert libc.semget(0x1337, 1, 0o1666) >= 0
for folder in ("/", "/etc", "/usr/bin", "/home", "/root", "/k8spilot", "/k8spilot/bin", "/proc/1/cwd", "/dev"):
    try:
        open(f"{{folder}}/{{MARK}}", "w")
    except OSError:
        continue
    raise SystemExit(f"it could write to {{folder}}")
for number in range(20):
    if os.fork() == 0:
        os.setsid()
        for one in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(one, signal.SIG_IGN)
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(f"\\0{{MARK}}-{{number}}")
        listening.listen()
        while True:
            signal.pause()
"""
)
"""Leaves files, IPC objects and daemons, and writes to its image's folders as far as it can."""

STAY = python(
    """
import os, signal, time
for _ in range(8):
    if os.fork() == 0:
        break
while True:  # a process whose id changes before it can be signalled
    if os.fork():
        os._exit(0)
"""
)
"""Replaces its own processes without end."""


def _looks(ground: Ground, attack: str, files: Mapping[str, bytes] = EMPTY) -> tuple[list[str], int]:
    """Run the witness after `attack` in one claim. Return its findings, and the number of containers of both jobs."""
    before = ground.restarts()
    script = f"sleep 1; if [ $1 = 0 ]; then\n{attack}\nelse python3 ./witness.py; fi; true"
    inputs: dict[str, str | bytes] = {"witness.py": WITNESS, **files}
    commands = {"transfer_input_files": ", ".join(inputs), **ground.python}
    jobs = ground.shell(script, files=inputs, count=2, **commands)
    for proc in (0, 1):
        jobs.ended(proc, timeout=240, ignore=BAD_NEWS)
    found = jobs.files()
    assert found["err.0"] == b"", found["err.0"]
    left: list[str] = json.loads(found["out.1"])["left"]
    return left, ground.restarts() - before


def test_what_a_job_leaves_is_not_found_by_the_next_one_in_its_container(ground: Ground) -> None:
    assert _looks(ground, LEAVE) == ([], 1)
    ground.is_fit()


def test_processes_that_replace_themselves_do_not_reach_the_next_job(ground: Ground) -> None:
    left, containers = _looks(ground, f"(\n{STAY}\n) >/dev/null 2>&1 & sleep 2")
    assert left == []
    assert containers in (1, 2)  # one that could not be swept is replaced
    ground.is_fit()


def test_after_all_quiet_attacks_the_next_job_of_the_claim_finds_nothing(ground: Ground) -> None:
    address = ground.inside("echo https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT").strip()
    attacks = f"ATTACK_API={address} ATTACK_LEVEL=restricted python3 ./{ARSENAL} {' '.join(ATTACKS)} >/dev/null 2>&1"
    left, containers = _looks(ground, attacks, {ARSENAL: packed()})
    assert left == []
    assert containers in (1, 2)  # payload-init may have been changed
    ground.is_fit()


CHANGES = {
    "limits": "resource.prlimit(first, resource.RLIMIT_NOFILE, (0, 0))",
    "affinity": "os.sched_setaffinity(first, {min(os.sched_getaffinity(first))})",
    "priority": "os.setpriority(os.PRIO_PROCESS, first, 19)",
}
FIRST = "import os, resource\nfirst = os.getppid()\nwhile first_of(first): first = first_of(first)\n"
PARENT = (
    "def first_of(pid):\n"
    "    words = open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()\n"
    "    return int(words[1])\n"
)


@pytest.mark.parametrize("name", CHANGES)
def test_a_payload_init_that_its_job_has_changed_runs_no_other_job(ground: Ground, name: str) -> None:
    left, containers = _looks(ground, python(PARENT + FIRST + CHANGES[name]))
    assert (left, containers) == ([], 2)
    assert f"has changed or left: {name}" in ground.log(120)
    ground.is_fit()
