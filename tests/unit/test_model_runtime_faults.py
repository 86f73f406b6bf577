"""Images that end a container runtime."""

import pytest

from k8spilot.model.image import Image
from k8spilot.model.reference import Reference
from k8spilot.model.runtime_faults import runtime_fault

CRIO = "cri-o"


def _image(*environment: str) -> Image:
    return Image(Reference.parse("registry.example/a:1"), None, environment=environment)


@pytest.mark.parametrize("entry", ["ALONE", "", "with space"])
def test_an_entry_without_a_value_ends_crio(entry: str) -> None:
    fault = runtime_fault(_image("PATH=/bin", entry), CRIO)
    assert fault is not None
    assert f"the entry {entry!r} without a value" in fault


def test_a_variable_that_is_empty_or_has_no_name_does_not() -> None:
    assert runtime_fault(_image("PATH=/bin", "EMPTY=", "=x", "="), CRIO) is None


def test_other_runtimes_take_such_an_entry() -> None:
    assert runtime_fault(_image("ALONE"), "containerd") is None
    assert runtime_fault(_image("ALONE"), "") is None
