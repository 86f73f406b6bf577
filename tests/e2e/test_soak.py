"""A small soak: jobs and faults from a seed, none of which costs a job more than a new start."""

import pytest

from lab.api import Lab
from soak.campaign import Campaign

pytestmark = [pytest.mark.disruptive, pytest.mark.timeout(600)]


def test_no_job_is_lost_wrong_doubled_or_stuck_whatever_fails(lab: Lab, owner: str) -> None:
    report = Campaign(lab, 20261121, jobs=30, faults=10, minutes=2, prefix=f"{owner}-", say=print).run()
    assert report.verdict.good, report
    assert report.verdict.right == report.verdict.submitted >= 30
    assert not report.trouble
    assert report.steady, report
