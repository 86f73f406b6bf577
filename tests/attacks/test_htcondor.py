"""Attacks on HTCondor's daemons and starter, by what they read of a job that they cannot keep away."""

import json

import pytest

from lab.jobs import BAD_NEWS
from tests.attacks.ground import BASELINE, MARK, RESTRICTED, Ground
from tests.e2e.pool import collect, until


def test_words_of_a_job_in_htcondors_logs_are_not_believed(ground: Ground) -> None:
    """The pilot ends when its startd has: which the master's log says, in words that anybody can put there."""
    done = ground.attack("python3 ./arsenal.pyz words_in_the_logs")
    assert done.text == '{"words_in_the_logs": []}\n'
    logged = ground.inside("grep -ls 'invalid session.*The STARTD (pid 1) exited' /var/log/condor/*; true")
    assert {"/var/log/condor/MasterLog", "/var/log/condor/StartLog"} <= set(logged.split())
    ground.is_fit()
    assert ground.of_slot("HasDocker") == "true"


@BASELINE
def test_sessions_that_a_job_begins_without_end_are_few(ground: Ground) -> None:
    jobs = ground.alice("python3 ./arsenal.pyz sessions_without_end")
    clients = "for p in /proc/[0-9]*; do case $(tr '\\0' ' ' <$p/cmdline) in /usr/bin/docker\\ exec*) echo; esac; done"
    until(lambda: ground.inside(f"({clients}) 2>/dev/null; true").count("\n") == 8, "there are some", 60)
    collect(jobs, jobs.ended(timeout=120))
    ground.is_fit()


@RESTRICTED
def test_where_sessions_are_refused_a_job_has_nothing_to_begin_them_by(ground: Ground) -> None:
    done = ground.attack("python3 ./arsenal.pyz sessions_without_end")
    (said,) = json.loads(done.stdout)["sessions_without_end"]
    assert said == "could not be tried: TimeoutError: the starter has no socket here"
    ground.is_fit()


SILENT = "a_session_without_a_word"
ENDINGS = ("a_session_of_four_gigabytes", SILENT)


@BASELINE
@pytest.mark.parametrize("name", ENDINGS)
def test_a_starter_that_its_job_has_brought_to_its_end_ends_nothing_else(ground: Ground, name: str) -> None:
    """The one for want of memory; the other waits, and is ended when the job is removed."""
    script = f"grep -qi '^NumJobStarts = 0' $_CONDOR_JOB_AD && python3 ./arsenal.pyz {name}; echo again; exit 5"
    jobs = ground.alice(script)
    jobs.wait("ExecuteEvent")
    if name == SILENT:
        until(lambda: name in "".join(ground.processes()), "the job runs")
        jobs.command("condor_rm")
    else:
        done = collect(jobs, jobs.ended(timeout=120, ignore=BAD_NEWS))
        assert (done.code, done.text) == (5, "again\n")
    ground.is_fit()


EATS = f"""#!/usr/bin/python3
import sys, time
if "-classad" in sys.argv:
    print('MultipleFileSupport = true\\nPluginVersion = "1"\\nPluginType = "FileTransfer"\\nSupportedMethods = "evil"')
    sys.exit()
{MARK.replace("-", "_")} = []
while True:
    {MARK.replace("-", "_")}.append(bytearray(1 << 22))
"""


@BASELINE
def test_a_plugin_that_takes_all_of_the_memory_is_ended_itself(ground: Ground) -> None:
    jobs = ground.shell(
        "true", files={"plugin": EATS}, transfer_plugins="evil=plugin", transfer_input_files="evil://host/x"
    )
    assert "plugin" in jobs.held(timeout=120).attributes["HoldReason"]
    ground.is_fit()
