"""The demonstration's jobs, in every level of Pod Security."""

import pytest
from rich.console import Console

from lab import demo, pilot
from lab.api import Lab
from lab.levels import NAMESPACES, Level


@pytest.mark.parametrize("level", NAMESPACES)
def test_all_of_the_demonstrations_jobs_come_out_right(lab: Lab, owner: str, level: Level) -> None:
    here, name = lab.at(level), f"e2e-{owner}-demo-{level}"
    demo.deploy(here, name)
    rows, faults = demo.run(here, name, Console())
    assert faults == []
    assert len(rows) == 6
    pilot.discard(here, name)
