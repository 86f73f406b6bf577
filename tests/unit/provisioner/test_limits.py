"""The operator's limits: annotations of a pod template."""

import pytest

from k8spilot.provisioner.limits import Limits, TemplateError, limits_of


def test_the_most_pilots_suffice() -> None:
    assert limits_of({"k8spilot/max-pilots": "7", "example.org/other": "x"}) == Limits(7)


def test_all_annotations_are_read() -> None:
    found = limits_of(
        {
            "k8spilot/max-pilots": "100",
            "k8spilot/min-pilots": "2",
            "k8spilot/max-pending": "20",
            "k8spilot/max-new-per-minute": "30",
            "k8spilot/priority": "-5",
            "k8spilot/jobs": 'ProjectName == "A"\n  && RequestMemory > 4096',
            "k8spilot/slot-attributes": '# the nodes\nMicroarch = "x86_64-v4"\n\nRack = 7',
            "k8spilot/gpu-properties": "Capability = 9.0; GlobalMemoryMb = 81559;",
        }
    )
    assert (found.max_pilots, found.min_pilots, found.max_pending, found.max_new_per_minute) == (100, 2, 20, 30)
    assert found.priority == -5
    assert found.jobs == 'ProjectName == "A" && RequestMemory > 4096'
    assert found.slot_attributes == (("Microarch", '"x86_64-v4"'), ("Rack", "7"))
    assert found.gpu_properties == "Capability = 9.0; GlobalMemoryMb = 81559"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("max-pilots", "many", "k8spilot/max-pilots is 'many', but it must be an integer from 0 to 100000"),
        ("min-pilots", "11", "k8spilot/min-pilots is 11, more than k8spilot/max-pilots, 10"),
        ("max-pending", "0", "k8spilot/max-pending is '0', but it must be an integer from 1"),
        ("jobs", "Owner ==", "k8spilot/jobs is 'Owner ==', but it must be a ClassAd expression"),
        ("slot-attributes", "no equals", "k8spilot/slot-attributes is 'no equals', but it must be an attribute"),
        ("slot-attributes", "Rack = (", "must be a ClassAd expression"),
        ("gpu-properties", "Capability =", "must be a ClassAd expression"),
        (
            "max-pilot",
            "3",
            "k8spilot/max-pilot is unknown; did you mean k8spilot/max-pilots? Remove it",
        ),
    ],
)
def test_an_invalid_annotation_is_named_with_what_it_must_be(name: str, value: str, words: str) -> None:
    with pytest.raises(TemplateError) as raised:
        limits_of({"k8spilot/max-pilots": "10", f"k8spilot/{name}": value})
    assert words in str(raised.value)


def test_a_template_without_a_limit_is_not_used() -> None:
    with pytest.raises(TemplateError, match="max-pilots is missing"):
        limits_of({})
