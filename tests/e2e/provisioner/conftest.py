"""A namespace with a provisioner for each module, and jobs that run on its pilots only."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from lab import jobs as lab_jobs
from lab.api import Lab
from lab.factory import Factory, factory
from lab.jobs import Jobs
from tests.e2e.pool import until
from tests.e2e.provisioner import pilots
from tests.e2e.provisioner.pilots import Submit


@pytest.fixture(scope="module")
def site(lab: Lab, owner: str, request: pytest.FixtureRequest) -> Iterator[Factory]:
    """A namespace with a provisioner. Each test applies the templates that it needs."""
    module = request.module.__name__.rpartition("test_")[2].replace("_", "-")
    with factory(lab, f"factory-{owner}-{module}") as found:
        yield found


@pytest.fixture
def fresh(site: Factory) -> None:
    """Begin without templates and pilots, whose free slots would need no others."""
    site.kubectl("delete", "cronjobs", "--all")
    until(lambda: not site.pilots(), "the pilots before are gone", 150)


@pytest.fixture
def submit(lab: Lab, site: Factory) -> Iterator[Submit]:
    """Submits jobs that run on the pilots of that namespace only, and removes them."""
    with ExitStack() as cleanup:

        def submitted(script: str, *, count: int = 1, user: str = "alice", **more: str) -> Jobs:
            chosen = pilots.commands(lab, script, f'TARGET.K8SNamespace == "{site.namespace}"', **more)
            found = lab_jobs.submit(lab, user, chosen, count=count)
            cleanup.callback(found.remove)
            return found

        yield submitted
