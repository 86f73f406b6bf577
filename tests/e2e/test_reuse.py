"""One pod, many jobs: nothing of one is left for the next."""

import re
import time

import pytest

from lab.settings import PILOT_NAMESPACE
from tests.e2e.pool import Pool, result

LEAVE = """
set -e
for folder in /tmp /var/tmp /dev/shm .; do echo secret > $folder/left; mkdir -p $folder/.hidden/deep; done
chmod 000 /tmp/.hidden/deep
ln -s /etc /var/tmp/link
ipcmk --shmem 4096 >/dev/null; ipcmk --queue >/dev/null; ipcmk --semaphore 2 >/dev/null
setsid sleep 300 & setsid sh -c 'trap "" TERM HUP; sleep 301' &
(sleep 302 &)
echo left
"""

LOOK = """
find /tmp /var/tmp /dev/shm -mindepth 1
for kind in shm msg sem; do sed 1d /proc/sysvipc/$kind; done
ls -d /var/lib/condor/execute/slot/dir_* | grep -vF "${_CONDOR_SCRATCH_DIR%/scratch}"
for folder in /proc/[0-9]*; do
    [ $(stat -c %u $folder 2>/dev/null || echo gone) = 65534 ] || continue
    case "$(tr '\\0' ' ' <$folder/cmdline)" in *sleep*|*left*) echo "process $folder";; esac
done
echo nothing else >&2
"""


@pytest.mark.cluster
@pytest.mark.quick
def test_the_next_user_finds_nothing_of_the_last(pool: Pool) -> None:
    assert result(pool.shell(LEAVE, image="debian:forky")).stdout == b"left\n"
    done = result(pool.shell(LOOK, user="bob", image="debian:forky"))
    assert (done.stdout, done.stderr) == (b"", b"nothing else\n")


@pytest.mark.cluster
def test_the_next_job_of_the_same_claim_finds_nothing_either(pool: Pool) -> None:
    jobs = pool.shell(f"if [ $1 = 0 ]; then {LEAVE}\nelse {LOOK}\nfi", image="debian:forky", count=2)
    jobs.ended(0)
    done = result(jobs, 1)
    assert (done.stdout, done.stderr) == (b"", b"nothing else\n")


@pytest.mark.nightly
def test_twenty_jobs_in_one_claim(pool: Pool) -> None:
    result(pool.shell("true", user="bob"))
    claims_before, back_offs_before, pilot_restarts_before = _claims(pool), _back_offs(pool), _pilot_restarts(pool)
    restarts_before, began, count = pool.restarts(), time.monotonic(), 20
    jobs = pool.shell("echo job $1; exit $(($1 % 3))", count=count)
    codes = [jobs.ended(proc, timeout=100).attributes["ReturnValue"] for proc in range(count)]
    restarts, files = pool.restarts() - restarts_before, jobs.files()
    assert codes == [proc % 3 for proc in range(count)]
    assert [files[f"out.{proc}"] for proc in range(count)] == [b"job %d\n" % proc for proc in range(count)]
    assert _claims(pool) == claims_before + 1
    log = pool.log(int(time.monotonic() - began) + 1)
    runs = re.findall(rf" HTCJob{jobs.cluster}_(\d+)_\S* runs\. .*attempt=(\w+)", log)
    bound = re.findall(r" Bound \S+ in .*attempt=(\w+)", log)  # a bind that ends before `create` names no job
    assert [(int(proc), bound.count(attempt)) for proc, attempt in runs] == [(proc, 1) for proc in range(count)]
    # Between two jobs, and before and after them all, the idle image may have come once.
    assert count <= restarts <= 2 * count + 1
    assert _back_offs(pool) == back_offs_before
    assert _pilot_restarts(pool) == pilot_restarts_before


def _claims(pool: Pool) -> int:
    return int(pool.inside("grep -c 'claiming protocol successful' /var/log/condor/StartLog || true"))


def _back_offs(pool: Pool) -> int:
    """Return how often the kubelet made the pod wait."""
    selector = f"involvedObject.name={pool.pod},reason=BackOff"
    counts = pool.lab.kubectl(
        "get", "events", "-n", PILOT_NAMESPACE, "--field-selector", selector, "-o", "jsonpath={.items[*].count}"
    )
    return sum(int(count) for count in counts.split())


def _pilot_restarts(pool: Pool) -> int:
    """Return the number of restarts of the pilot container."""
    return sum(int(one["restartCount"]) for one in pool.status()["status"]["containerStatuses"])


STRAY = """
setpriv --reuid 65534 --regid 65534 --clear-groups sh -c 'touch /tmp/stray; exec setsid sleep 777' >/dev/null 2>&1 &
until [ -e /tmp/stray ]; do sleep 0.05; done
"""


@pytest.mark.cluster
def test_what_a_user_left_in_the_pilot_container_is_gone_before_the_next_job(pool: Pool) -> None:
    # A session of condor_ssh_to_job begins there, as the jobs' account, with files that its job can write.
    pool.inside(STRAY)
    assert [line for line in pool.processes() if "sleep 777" in line]
    assert result(pool.shell("true", user="bob")).code == 0
    assert not [line for line in pool.processes() if "sleep 777" in line]
    assert pool.inside("ls /tmp/stray 2>/dev/null || echo gone") == "gone\n"
