"""Attacks by how a job ends, or does not: it kills, stops or uses up what tells of its end, and speaks in its place."""

import pytest

from lab.errors import LabError
from lab.jobs import BAD_NEWS
from tests.attacks.ground import BASELINE_FIRST, RESTRICTED_FIRST, Ground, python
from tests.e2e.pool import WAITS, collect, runs, until

pytestmark = pytest.mark.timeout(400)  # some of the jobs wait for HTCondor's own patience

ENDS_BADLY = {
    "kills payload-init and speaks in its place": python(
        "import os, signal, socket, time\n"
        "os.setsid()\n"
        "os.kill(os.getppid(), 0)\n"
        "init = next(int(p) for p in os.listdir('/proc') if p.isdecimal() and\n"
        "            open(f'/proc/{p}/comm').read().strip() == 'payload-init')\n"
        "os.kill(init, signal.SIGKILL)\n"
        "for _ in range(2000):\n"
        "    one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); one.settimeout(0.1)\n"
        "    try:\n"
        "        one.connect('/k8spilot/payload.sock')\n"
        "        for word in (b'hello 4 fresh scoped -', b'started 0 1', b'exit 0 0', b'swept'): one.send(word)\n"
        "    except OSError: pass\n"
    ),
    "kills all that it can": "trap '' TERM; kill -KILL -1; sleep 60",
    "stops payload-init, and ends it": (
        "for p in /proc/[0-9]*; do grep -qs payload-init $p/comm && i=${p#/proc/}; done; kill -STOP $i; "
        "echo x >stopped; sleep 2; kill -KILL $i; sleep 60"
    ),
}


@pytest.mark.parametrize("name", ENDS_BADLY)
def test_no_end_is_forged_by_a_job_that(ground: Ground, name: str) -> None:
    attack = ENDS_BADLY[name]
    script = f"if grep -qi '^NumJobStarts = 0' $_CONDOR_JOB_AD; then {attack}\nfi\n{WAITS}echo again; exit 5"
    jobs = ground.alice(script)
    done = collect(jobs, jobs.ended(timeout=120, ignore=BAD_NEWS))
    assert (done.code, done.text) == (5, "again\n")
    assert sum(event.kind == "ExecuteEvent" for event in jobs.events) == 2
    ground.is_fit()


@RESTRICTED_FIRST
def test_a_job_that_stops_payload_init_for_good_is_removed(ground: Ground) -> None:
    jobs = ground.alice("kill -STOP $PPID; exec sleep 601")
    jobs.wait("ExecuteEvent")
    runs(ground, "sleep 601")
    jobs.command("condor_rm")
    ground.is_fit()


@pytest.mark.cluster
@BASELINE_FIRST
def test_memory_without_end_is_a_hold(ground: Ground) -> None:
    script = python("data = []\nwhile True: data.append(bytearray(1 << 24))")
    jobs = ground.alice(script)
    assert "memory" in jobs.held(timeout=120).attributes["HoldReason"]
    ground.is_fit()


BOMB = python(
    "import os, signal, time\n"
    "for number in (1, 2, 15): signal.signal(number, signal.SIG_IGN)\n"
    "end = time.monotonic() + {seconds}\n"
    "for _ in range(5): os.fork()\n"
    "while time.monotonic() < end:\n"  # what each of them makes is small, or all of them would be out of memory first
    "    try: os.posix_spawn('/bin/sleep', ['sleep', '600'], os.environ, setsid=True)\n"
    "    except OSError: time.sleep(0.5)\n"
)
MANY = 500
"""Processes after which a fork bomb is under way; the lab's kubelet allows a pod 1000 (podPidsLimit)."""


ENDS, IS_REMOVED = "that ends", "that is removed"
BY_THEMSELVES = (ENDS, "kills payload-init and speaks in its place", "kills all that it can")
STANDING_STILL = (IS_REMOVED, "stops payload-init, and ends it")
NIGHTLY = {("restricted", name) for name in BY_THEMSELVES} | {("baseline", name) for name in STANDING_STILL}
"""Without root, the end of what stands still is another one: it is told at that level."""


@pytest.mark.parametrize("name", [ENDS, IS_REMOVED])
def test_a_fork_bomb(ground: Ground, name: str) -> None:
    is_removed = name == IS_REMOVED
    jobs = ground.alice(BOMB.replace("{seconds}", "600" if is_removed else "4"))
    if is_removed:
        until(lambda: _count(ground) > MANY, "it is under way", 60)
        jobs.command("condor_rm")
        jobs.wait("JobAbortedEvent", timeout=150, ignore=BAD_NEWS)
    else:
        jobs.ended(timeout=120)
    ground.is_fit(timeout=240)


_LEAVE_A_SANDBOX = """
cd /var/lib/condor/execute/slot && mkdir -p dir_99/scratch/locked && echo x >dir_99/scratch/leftover-of-alice
if [ $(id -u) = 0 ]; then chown -R 65534 dir_99 && chmod 000 dir_99/scratch/locked dir_99/scratch; fi
"""


def test_a_sandbox_that_htcondor_could_not_remove_is_gone_for_the_next_job(ground: Ground) -> None:
    ground.inside(_LEAVE_A_SANDBOX)
    ground.is_fit()


def _count(ground: Ground) -> int:
    """Processes in the pod; kubectl exec needs one itself."""
    try:
        return int(ground.inside("ls -d /proc/[0-9]* | wc -l"))
    except LabError:
        return 1_000_000
