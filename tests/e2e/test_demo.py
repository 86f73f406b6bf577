"""The demonstration's jobs, in every level of Pod Security."""

import pytest
from rich.console import Console

from lab import demo
from tests.e2e.pool import Pool


@pytest.mark.both_levels
def test_all_of_the_demonstrations_jobs_come_out_right(pool: Pool) -> None:
    rows, faults = demo.run(pool.lab, pool.pod, Console())
    assert faults == []
    assert len(rows) == 5
