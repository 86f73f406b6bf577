"""HTCondor's log lines in the pilot's own log."""

import logging

import pytest

from k8spilot.condor.daemons.log_lines import JobLines, LogLine

HEAD = "11/25/26 13:39:32.820 (pid:35) "


@pytest.mark.parametrize(
    ("line", "message", "category"),
    [
        (f"{HEAD}(D_ALWAYS) slot1: Request accepted.", "slot1: Request accepted.", "D_ALWAYS"),
        (f"{HEAD}(D_ALWAYS:2) words", "words", "D_ALWAYS"),
        (f"{HEAD}(D_SECURITY|D_FAILURE) words", "words", "D_SECURITY"),
        (f"{HEAD}words", "words", ""),
        ("11/25/26 13:39:32 words", "words", ""),
        ('DrainReason = "by root"', 'DrainReason = "by root"', ""),
        (f"x {HEAD}words", f"x {HEAD}words", ""),
    ],
)
def test_a_line_has_one_time_in_the_pilots_log(line: str, message: str, category: str) -> None:
    assert LogLine.of(line) == LogLine(message, category)


@pytest.mark.parametrize(
    "message",
    [
        "ERROR: AUTHENTICATE:1003:Failed to authenticate with any method|AUTHENTICATE:1004:x",
        "SECMAN: required authentication with collector cm failed, so aborting command UPDATE_STARTD_AD.",
        'SECMAN: FAILED: Received "DENIED" from server for user x using method IDTOKENS.',
        "SECMAN: no classad from server, failing",
        "Failed to start non-blocking update to <10.0.0.1:9618>.",
        "Can't resolve collector cm.invalid; skipping update",
    ],
)
def test_htcondors_errors_are_errors(message: str) -> None:
    assert LogLine(message, "D_ALWAYS").level == logging.ERROR


def test_what_htcondor_marks_as_an_error_is_one() -> None:
    assert LogLine("anything", "D_ERROR").level == logging.ERROR


OF_A_JOB = """\
slot1: Got activate_claim request from shadow (10.234.0.3)
slot1: Remote job ID is 10.0
slot1: Got universe "VANILLA" (5) from request classad
slot1: State change: claim-activation protocol successful, Starter 79
slot1: Changing activity: Idle -> Busy
OfflineUniverses = {}
slot1[10.0]: Received final job ClassAd update from starter. 0 unread bytes
slot1: Changing activity: Busy -> Cleaning
Starter pid 79 exited with status 0
slot1: State change: starter exited : ./src/condor_startd.V6/Resource.cpp(1112) Claimed/Cleaning
slot1: Changing activity: Cleaning -> Idle
slot1: Called deactivate_claim_job_done()""".splitlines()


def test_the_lines_of_each_job_are_debug_and_one_line_says_what_happened() -> None:
    assert {LogLine(message, "D_ALWAYS").level for message in OF_A_JOB} == {logging.DEBUG}
    jobs = JobLines()
    said = [jobs.summary(message) for message in ("slot1: Remote owner is alice@pool.lab", *OF_A_JOB)]
    assert [one for one in said if one] == [
        "Job 10.0 of alice@pool.lab left the slot after 0 s: its starter exited with status 0."
    ]


def test_a_starter_that_failed_is_seen() -> None:
    jobs = JobLines()
    for message in OF_A_JOB[:4]:
        jobs.summary(message)
    message = "Starter pid 79 died on signal 9 (signal 9 (Killed))"
    assert LogLine(message).level == logging.INFO
    assert jobs.summary(message).endswith("its starter died on signal 9.")


def test_what_says_more_than_a_line_of_htcondors_tells_no_story() -> None:
    jobs = JobLines()
    for message in (*OF_A_JOB[:3], "x slot1: State change: claim-activation protocol successful, Starter 7"):
        jobs.summary(message)
    assert jobs.summary("Starter pid 7 exited with status 0") == ""
