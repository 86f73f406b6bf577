"""condor_ssh_to_job and interactive jobs: a shell in the job's own container."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lab.jobs import Jobs
from lab.patience import scaled
from lab.settings import SESSION_ATTRIBUTE
from tests.e2e.pool import Pool, result, until

WAITING = "export OWN=set; while [ ! -e go ]; do sleep 0.1; done; echo gone"

MEET = """
touch {own}; i=0; while [ ! -e {other} ] && [ $i -lt 100 ]; do i=$((i + 1)); sleep 0.1; done
echo {own} {other}; sleep 300
"""


def _ssh(pool: Pool, jobs: Jobs, *command: str, typed: str | None = None) -> str:
    """Run a command in a job's container; return both of its outputs."""
    words = " ".join(f"'{word}'" for word in command)
    script = f"condor_ssh_to_job -auto-retry {jobs.cluster}.0 {words} 2>&1; true"
    return pool.lab.access_point(jobs.user, script, input=typed)


def _terminal(pool: Pool, command: str, typed: str, user: str = "alice") -> str:
    """Run a command on the access point in a terminal, with `typed` as what its user types; return what he sees."""
    return pool.lab.access_point(user, f"script -qec '{command}' /dev/null", input=typed)


@pytest.mark.cluster
def test_sessions_beside_a_job(pool: Pool) -> None:
    jobs = pool.shell(WAITING, image="debian:forky")
    jobs.wait("ExecuteEvent")
    first = f"condor_ssh_to_job {jobs.cluster}.0 true 2>&1 && echo in"
    until(lambda: pool.lab.access_point("alice", f"{first}; true").endswith("in\n"), "a session begins", 30)

    facts = _ssh(pool, jobs, "id -u; pwd; echo $_CONDOR_SCRATCH_DIR; cat /etc/debian_version; ls")
    uid, folder, scratch, system, *rest = [line for line in facts.splitlines() if "Waiting" not in line]
    assert (uid, folder) == ("65534", scratch)
    assert system.startswith("forky")
    assert "job.sh" in "\n".join(rest)

    assert _ssh(pool, jobs, "cat; echo err >&2", typed="typed\n").split() == ["typed", "err"]

    seen = _terminal(
        pool,
        f"condor_ssh_to_job {jobs.cluster}.0",
        "test -t 0 && echo ter$((1))minal; tty; echo ${0##*/}; exit\n",
    )
    assert "ter1minal" in seen
    assert "/dev/pts/" in seen
    assert "bash" in seen

    # Two at once. HTCondor ends only the one that began last when its command is over; both end with the job.
    with ThreadPoolExecutor() as both:
        one = both.submit(_ssh, pool, jobs, MEET.format(own="one", other="two"))
        two = both.submit(_ssh, pool, jobs, MEET.format(own="two", other="one"))
        until(lambda: "met" in pool.inside(f"cd {scratch} && ls one two >/dev/null && echo met || true"), "both run")
        pool.inside(f"touch {scratch}/go")
        assert result(jobs).stdout == b"gone\n"
        assert one.result(scaled(30)).split()[:2] == ["one", "two"]
        assert two.result(scaled(30)).split()[:2] == ["two", "one"]
    assert not [line for line in pool.processes() if "sleep" in line]


def test_an_image_without_a_shell_says_so(pool: Pool) -> None:
    program = Path("/bin/busybox").read_bytes()
    jobs = pool.submit(
        {
            "container_image": pool.image("hello"),
            "executable": "sleep",
            "transfer_executable": "true",
            "arguments": "600",
        },
        files={"sleep": program},
    )
    jobs.wait("ExecuteEvent")
    assert "cannot run '/bin/sh': No such file or directory" in _ssh(pool, jobs, "ls")
    seen = _terminal(pool, f"condor_ssh_to_job -auto-retry {jobs.cluster}.0", "exit\n")
    assert "cannot run '/bin/sh': No such file or directory" in seen


def test_an_interactive_job_is_a_shell_and_ends_with_it(pool: Pool) -> None:
    commands = {
        "universe": "container",
        "container_image": pool.image("busybox"),
        "requirements": f'TARGET.K8SPodName == "{pool.pod}"',
        "request_memory": "128M",
        "request_disk": "64M",
        "should_transfer_files": "YES",
        "log": "interactive.log",
        f"My.{SESSION_ATTRIBUTE}": f'"{pool.lab.settings.session}"',
    }
    text = "".join(f"{name} = {value}\n" for name, value in commands.items()) + "queue\n"
    pool.lab.access_point("alice", "rm -f interactive.log; cat > interactive.sub", input=text)
    seen = _terminal(pool, "condor_submit -interactive interactive.sub", "echo in the $((6 * 7)) job; exit\n")
    assert "in the 42 job" in seen
    assert "Job executing on host" in until(lambda: _log_of_the_end(pool), "the job ends with its session")


def _log_of_the_end(pool: Pool) -> str:
    found = pool.lab.access_point("alice", "cat interactive.log")
    return found if "Job was aborted" in found else ""


AS_JOBS_ACCOUNT = """
export CONDOR_CONFIG=/run/k8spilot/condor/condor_config STARTD=$(head -1 /var/log/condor/.startd_address)
{who} sh -c '
cat /var/run/secrets/kubernetes.io/serviceaccount/token /etc/condor/tokens-orig.d/* /run/k8spilot/condor/tokens.d/*
tr "\\0" "\\n" < /proc/1/environ
ls /var/log/condor
docker -H unix:///run/k8spilot/docker.sock ps -q && echo docker
touch /k8spilot/made && rm /k8spilot/made && echo exchange
condor_ping -address "$STARTD" -quiet WRITE && echo may write
' 2>/dev/null; true
"""


def test_the_jobs_account_has_nothing_to_gain_in_the_pilot_container(pool: Pool) -> None:
    # It is what a session's user, and through him a job, can come to be there.
    account = "setpriv --reuid 65534 --regid 65534 --clear-groups"
    assert pool.inside(AS_JOBS_ACCOUNT.replace("{who}", account)) == ""
    assert {"docker", "exchange", "may write", "StartLog"} <= set(
        pool.inside(AS_JOBS_ACCOUNT.replace("{who}", "")).splitlines()
    )
