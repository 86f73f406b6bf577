"""Attacks on HTCondor's daemons and starter, by what they read of a job that they cannot keep away."""

import json
from typing import Any, cast

import pytest

from lab.jobs import BAD_NEWS
from tests.attacks.ground import BASELINE, BASELINE_FIRST, MARK, RESTRICTED, RESTRICTED_FIRST, Ground
from tests.e2e.pool import collect, result, until


@pytest.mark.landing
@RESTRICTED_FIRST  # where the logs are read in another container
def test_words_of_a_job_in_htcondors_logs_are_not_believed(ground: Ground) -> None:
    """The pilot ends when its startd has: which the master's log says, in words that anybody can put there."""
    done = ground.attack("python3 ./arsenal.pyz words_in_the_logs")
    assert done.text == '{"words_in_the_logs": []}\n'
    logged = ground.inside("grep -ls 'invalid session.*The STARTD (pid 1) exited' /var/log/condor/*; true")
    assert {"/var/log/condor/MasterLog", "/var/log/condor/StartLog"} <= set(logged.split())
    ground.is_fit()
    assert ground.of_slot("HasDocker") == "true"


@BASELINE_FIRST
def test_a_job_that_stops_talking_to_htcondor_in_the_middle_is_removed_as_any_other(ground: Ground) -> None:
    """Its connections to all daemons stay open; none of them waits for it."""
    jobs = ground.alice("python3 ./arsenal.pyz silence_for_htcondors_daemons")
    jobs.wait("ExecuteEvent")
    held = "cat /var/lib/condor/execute/slot/dir_*/scratch/held 2>/dev/null; true"
    until(lambda: int(ground.inside(held) or 0) >= 700, "it holds all connections", 60)
    jobs.command("condor_rm")
    until(lambda: not ground.processes(), "the job is ended by its removal", 45)  # 10 s of them are its time to end
    ground.is_fit()


@pytest.mark.landing
@RESTRICTED_FIRST  # where the engine cannot look at the daemons by itself
def test_a_job_that_makes_htcondor_hang_is_ended_and_the_slot_fit_within_two_minutes(ground: Ground) -> None:
    """Its daemons answer again once it has gone: none has to be started again. Its removal takes effect then."""
    jobs = ground.alice("python3 ./arsenal.pyz half_a_word_for_htcondors_daemons")
    jobs.wait("ExecuteEvent")
    held = "cat /var/lib/condor/execute/slot/dir_*/scratch/held 2>/dev/null; true"
    until(lambda: int(ground.inside(held) or 0) >= 700, "it holds all connections", 90)
    jobs.command("condor_rm")
    until(lambda: not ground.processes(), "the job is ended", 120)
    ground.is_fit(timeout=120)


@pytest.mark.landing
@BASELINE_FIRST  # HTCondor's configuration, which has no level
def test_a_claim_that_a_job_wants_kept_is_another_users_soon(ground: Ground) -> None:
    kept = cast("dict[str, Any]", {"+KeepClaimIdle": "3600"})
    result(ground.shell("true", **kept))
    until(lambda: (ground.of_slot("State"), ground.of_slot("Activity")) == ("Claimed", "Idle"), "the claim is kept")
    result(ground.bob(), timeout=150)


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
