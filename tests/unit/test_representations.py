"""The representations of a job's objects have the name and the state, and none of the job's secrets."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from k8spilot.docker.command_lines.grammar import Create
from k8spilot.docker.container import Container, Execution
from k8spilot.docker.create_request.job_ad import JobAd
from k8spilot.docker.create_request.specification import SlotLimits, specification
from k8spilot.model.image import Image
from k8spilot.model.reference import Reference
from k8spilot.payload.binding.image_change import ImageChange
from k8spilot.payload.command.stdio import Stdio

HIDDEN = "hunter2"
BODY = {
    "Image": "registry.test/a:1",
    "Entrypoint": ["/bin/login", HIDDEN],
    "Cmd": ["--password", HIDDEN],
    "Env": [f"PASSWORD={HIDDEN}"],
}
NOTHING = cast("Any", SimpleNamespace())


def _container() -> Container:
    parsed = specification(BODY, SlotLimits("/execute"))
    image = Image(Reference.parse("registry.test/a:1"), None)
    return Container(
        name="HTCJob1_0_slot1_PID7",
        image=image,
        specification=parsed,
        payload=NOTHING,
        command=parsed.resolve(image),
        stdio=Stdio(),
    )


def _execution() -> Execution:
    container = _container()
    return Execution(container=container, command=container.command, body=BODY, stdio=Stdio())


def test_a_container_shows_its_name_and_its_state() -> None:
    assert repr(_container()) == "<Container HTCJob1_0_slot1_PID7 CREATED>"


def test_a_change_of_the_image_shows_its_name_and_its_reference() -> None:
    change = ImageChange(image=NOTHING, wanted="a:1", name="7f", before=NOTHING, last=None, requested=0.0)
    assert repr(change) == "<ImageChange 7f to a:1>"


@pytest.mark.parametrize(
    "shown",
    [
        _container(),
        _container().specification,
        _container().command,
        _execution(),
        Create("name", BODY, pulls=False),
        JobAd.of(f'RequestDisk = "{HIDDEN}"\n'.encode()),
    ],
    ids=lambda shown: type(shown).__name__,
)
def test_nothing_shows_a_secret_of_the_job(shown: object) -> None:
    assert HIDDEN not in repr(shown)
