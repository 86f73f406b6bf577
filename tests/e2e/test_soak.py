"""A small soak: jobs and faults from a seed, none of which costs a job more than a new start."""

import pytest

from lab.api import Lab
from soak.campaign import Campaign

pytestmark = pytest.mark.disruptive

SMALL = pytest.param(16, 3, 0.6, marks=pytest.mark.timeout(400))
LONG = pytest.param(300, 100, 40.0, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])


@pytest.mark.parametrize(("jobs", "faults", "minutes"), [SMALL, LONG])
def test_no_job_is_lost_wrong_doubled_or_stuck_whatever_fails(
    lab: Lab, owner: str, jobs: int, faults: int, minutes: float
) -> None:
    report = Campaign(lab, 20261121, jobs, faults, minutes, prefix=f"{owner}-", say=print, batch=8).run()
    assert report.verdict.good, report
    assert report.verdict.right == report.verdict.submitted >= jobs
    assert report.faults
    assert not report.trouble
    assert report.steady, report
