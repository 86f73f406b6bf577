"""Attacks while HTCondor takes a job's files away: links, and files that are none, where outputs are to be."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from lab.api import Lab
from lab.errors import LabError
from lab.jobs import BAD_NEWS
from lab.levels import Level
from tests.attacks.ground import BASELINE_FIRST, MARK, Attack, Ground, Outcome, attacked, python

pytestmark = pytest.mark.timeout(600)  # the first test of a level that needs them waits for many jobs

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"

MARKED = f"(find / -xdev -name '{MARK}*'; find /var/lib/condor /run /var/log -name '{MARK}*') 2>/dev/null; true"
"""Prints the files of the pilot container's that a job has made."""

LINKS = [
    f"{ACCOUNT}/token",
    "/etc/condor/tokens-orig.d/token",
    "/proc/1/environ",
    "/run/k8spilot/docker.sock",
    "/etc/k8spilot/pull-secret/.dockerconfigjson",
    "/k8spilot-payload",
]


@BASELINE_FIRST  # the starter is nearly root there
def test_links_to_the_pilots_files_bring_nothing_back(ground: Ground) -> None:
    """As outputs, in folders, in place of standard output, over a folder that HTCondor made."""
    script = (
        f"set -- $1 {' '.join(LINKS)}; shift $(($1 + 1)); mkdir tree; ln -s $1 tree/stolen; ln -s $1 stolen; "
        "rm -f _condor_stdout _condor_stderr .job.ad; for n in _condor_stdout _condor_stderr; do ln -s $1 $n; done; "
        "rm -rf .chirp.config; ln -s $1 .chirp.config; ln -s /etc tree/etc"
    )
    jobs = ground.alice(script, count=len(LINKS), transfer_output_files="stolen, tree")
    for proc in range(len(LINKS)):
        jobs.wait("JobHeldEvent", "JobTerminatedEvent", proc=proc, ignore=BAD_NEWS, timeout=120)
    found = jobs.files()
    came = {name: data for name, data in found.items() if "arsenal" not in name and name != "job.log"}
    assert not [name for name, data in came.items() if b"eyJ" in data or b"POD_UID" in data or b'"auths"' in data], came
    assert not [name for name in came if "shadow" in name], came
    ground.is_fit()


INSTEAD = python(
    "import os, time\n"
    "names = set('.update.ad .job.ad .machine.ad .docker_sock .docker_stdout .docker_stderror _condor_stdout '\n"
    "            '_condor_stderr .job_wrapper_failure .worker_stdout .worker_stderr .starter.log'.split())\n"
    "end = time.monotonic() + 5\n"
    "while time.monotonic() < end:\n"
    "    for name in names | set(os.listdir()) - {'arsenal.pyz', 'job.sh'}:\n"
    "        if not os.path.islink(name):\n"
    "            if os.path.lexists(name): os.unlink(name)\n"
    "            os.symlink(f'/var/lib/condor/leftover-of-alice{name}', name)\n"
    "    time.sleep(0.01)\n"
)


AGAIN = {"input": "in", "checkpoint_exit_code": "85", "transfer_checkpoint_files": "second"}
"""Has the starter open input and output once more, when the job has ended with that code."""


@pytest.mark.landing
@BASELINE_FIRST
def test_a_link_in_its_inputs_place_shows_a_job_that_begins_again_no_environment_of_the_starters(
    ground: Ground,
) -> None:
    """The starter's environment has a key to HTCondor's daemons, for the pilot's life."""
    script = "[ -e second ] || { : >second; rm -f in; ln -s /proc/self/environ in; exit 85; }; cat >loot; cat loot"
    more: dict[str, Any] = {**AGAIN, "transfer_output_files": "second, loot"}
    jobs = ground.shell(script, files={"in": "mine\n"}, **more)
    jobs.wait("JobHeldEvent", "JobTerminatedEvent", ignore=BAD_NEWS, timeout=120)
    keys = (b"CONDOR_INHERIT", b"CONDOR_PRIVATE", b"SessionKey")
    assert not [name for name, data in jobs.files().items() for key in keys if key in data]
    jobs.remove()
    ground.is_fit()


@pytest.mark.landing
@BASELINE_FIRST
def test_a_link_in_its_outputs_place_leads_nowhere_when_a_job_begins_again(ground: Ground) -> None:
    places = (f"/var/log/condor/{MARK}", f"/var/lib/condor/{MARK}", f"/run/{MARK}", f"/tmp/{MARK}")
    script = (
        f"[ -e second ] && {{ echo {MARK}; exit 0; }}; : >second; set -- $1 {' '.join(places)}; shift $(($1 + 1)); "
        "rm -f _condor_stdout; ln -s $1 _condor_stdout; exit 85"
    )
    more: dict[str, Any] = {**AGAIN, "transfer_output_files": "second"}
    jobs = ground.shell(script, files={"in": "mine\n"}, count=len(places), **more)
    for proc in range(len(places)):
        jobs.wait("JobHeldEvent", "JobTerminatedEvent", proc=proc, ignore=BAD_NEWS, timeout=120)
    jobs.remove()
    ground.is_fit()
    assert ground.inside(MARKED) == ""


SPECIAL = {
    "a FIFO": "mkfifo out",
    "a FIFO with a writer": "mkfifo out; (setsid sh -c 'exec 3>out; sleep 300') & sleep 0.2",
    "a socket": python("import socket; socket.socket(socket.AF_UNIX).bind('out')"),
    "a link to a terminal": "ln -s /dev/tty out",
    "a link to nothing that ends": "ln -s /dev/zero out",
    "a link to itself": "ln -s out out",
}


LINKS_INSTEAD = "links in place of what the starter writes"
"""HTCondor's account owns the folder that they lead to, and the starter is nearly root."""
SANDBOX_INSTEAD = "a link in the sandbox's place"
"""The job takes away the folder that it is in, and puts a link there."""
MOVE = f"cd /; mv $_CONDOR_SCRATCH_DIR/* /tmp/; rm -rf $_CONDOR_SCRATCH_DIR; ln -s /etc $_CONDOR_SCRATCH_DIR; : {MARK}"
ONE_BY_ONE = {
    **{kind: Attack(script, {"request_disk": "64M"}, ("out",)) for kind, script in SPECIAL.items()},
    LINKS_INSTEAD: Attack(INSTEAD, {"+JobStarterDebug": '"D_ALL"'}),  # has a log of the starter's in the sandbox
    SANDBOX_INSTEAD: Attack(MOVE),
}


@dataclass(frozen=True)
class Staged:
    """Outcomes of the attacks, by name."""

    outcomes: Mapping[str, Outcome | LabError]
    marked: str
    """Files of the pilot container's with MARK in their names, after all of them."""


@pytest.fixture(scope="module")
def staged(lab: Lab, battlefield: str, level: Level) -> Staged:
    """One job each, by users in turn, and each looks first for what the last one has left."""
    with attacked(lab.at(level), battlefield) as ground:
        outcomes = ground.in_turn(ONE_BY_ONE)
        ground.is_fit()
        return Staged(outcomes, ground.inside(MARKED))


def _harmless(staged: Staged, name: str) -> None:
    found = staged.outcomes[name]
    assert isinstance(found, Outcome), found
    assert found.left == ""
    assert found.after.lives == found.before.lives


@pytest.mark.parametrize("kind", SPECIAL)
def test_an_output_that_is_no_file(staged: Staged, kind: str) -> None:
    _harmless(staged, kind)


def test_links_in_place_of_what_the_starter_writes_lead_nowhere(staged: Staged) -> None:
    _harmless(staged, LINKS_INSTEAD)
    assert staged.marked == ""


def test_the_sandbox_itself_in_anothers_place(staged: Staged, ground: Ground) -> None:
    """The job harms its own results alone."""
    _harmless(staged, SANDBOX_INSTEAD)
    assert ground.inside("ls /etc/passwd /etc/condor/condor_config").split()


@BASELINE_FIRST
def test_an_out_of_sandbox_path_is_no_output(ground: Ground) -> None:
    paths = [f"{ACCOUNT}/token", f"../../../../../..{ACCOUNT}/token", "/etc/condor/tokens-orig.d", "/run/k8spilot"]
    begun = [ground.alice("true", transfer_output_files=path) for path in paths]
    for jobs in begun:
        jobs.wait("JobHeldEvent", "JobTerminatedEvent", ignore=BAD_NEWS, timeout=120)
        came = {name: data for name, data in jobs.files().items() if "arsenal" not in name and name != "job.log"}
        assert not [name for name, data in came.items() if b"eyJ" in data], came
    ground.is_fit()
