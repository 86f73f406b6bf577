"""The two engines: a dockerd on this machine, and a pilot pod that only serves the engine."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import dockerd
from lab.api import Lab
from lab.dockerd import Dockerd
from tests.engine.node import SHARED, NodePod
from tests.oracle.engines import Docker
from tests.oracle.scripts.inputs import ENTRYPOINT
from tests.runner.pilots import Configuration

HERE = Path(__file__).parent
_ENTRYPOINT = """\
ARG BASE
FROM $BASE
ENV MARK=image OTHER=image
WORKDIR /var/tmp
ENTRYPOINT ["/usr/bin/env", "WRAPPED=yes"]
CMD ["/usr/bin/printenv", "MARK", "OTHER", "WRAPPED"]
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All that is here compares with a real dockerd."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.oracle)


@pytest.fixture(scope="session")
def real(lab: Lab) -> Dockerd:
    """A dockerd, which stays until the lab is taken down."""
    if lab.settings.kubeconfig is not None:
        pytest.skip("KUBECONFIG is set: a dockerd runs on the lab's own node only")
    return dockerd.ensure(lab.settings, lab.progress)


@pytest.fixture(scope="module")
def pilot_socket(lab: Lab, lease: Callable[[Configuration], str]) -> Iterator[Path]:
    """The socket of a pilot pod's engine."""
    pod = NodePod(lab, lease(SHARED))
    with pod.without_faults(), pod.reached() as path:
        yield path


@pytest.fixture(scope="session")
def entrypoint(lab: Lab) -> str:
    """An image with an entrypoint, a command, variables and a folder of its own, in the registry."""
    return lab.push_image(f"{ENTRYPOINT}:latest", _ENTRYPOINT)


@pytest.fixture(scope="module")
def both(
    lab: Lab, real: Dockerd, pilot_socket: Path, entrypoint: str, owner: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Docker]:
    """The two, by name, driven with the same docker command line."""
    assert entrypoint
    folder = tmp_path_factory.mktemp("docker")
    name = f"oracle-{owner}"
    return {
        "dockerd": Docker(real.docker, real.socket, lab.registry, name, folder, ("--network", dockerd.NETWORK)),
        "k8spilot": Docker(real.docker, pilot_socket, lab.registry, name, folder),
    }
