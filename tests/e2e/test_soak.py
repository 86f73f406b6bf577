"""A small soak: jobs and faults from a seed, none of which costs a job more than a new start."""

import pytest

from lab.api import Lab
from soak.campaign import Campaign

pytestmark = pytest.mark.disruptive

SMALL = pytest.param(20, 3, 0.6, 1, marks=pytest.mark.timeout(400))
LONG = pytest.param(300, 100, 40.0, 1, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])
SEVERAL = pytest.param(1000, 200, 60.0, 8, marks=[pytest.mark.nightly, pytest.mark.timeout(5400)])


@pytest.mark.landing
@pytest.mark.cluster
@pytest.mark.parametrize(("jobs", "faults", "minutes", "slots"), [SMALL, LONG, SEVERAL])
def test_no_job_is_lost_wrong_doubled_or_stuck_whatever_fails(
    lab: Lab, owner: str, jobs: int, faults: int, minutes: float, slots: int
) -> None:
    batch = 10 if slots == 1 else 60
    campaign = Campaign(lab, 20261121, jobs, faults, minutes, f"{owner}-", print, batch=batch, slots=slots)
    report = campaign.run()
    assert report.verdict.good, report
    assert report.verdict.right == report.verdict.submitted >= jobs
    assert report.faults
    assert not report.trouble
    assert report.steady, report
