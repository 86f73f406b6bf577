"""The operator's limits of a pod template: annotations of its object.

They are annotations and no ConfigMap: a template and its limits then change together, are copied together, and
`kubectl annotate` changes one of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from k8spilot.common.errors import SettingsError
from k8spilot.condor.configuration.classads import check
from k8spilot.settings import parsers

PREFIX: Final = "k8spilot/"
_NAMES: Final = frozenset(
    {
        "min-pilots",
        "max-pilots",
        "max-pending",
        "max-new-per-minute",
        "priority",
        "jobs",
        "slot-attributes",
        "gpu-properties",
    }
)
_MOST: Final = 100_000


class TemplateError(SettingsError):
    """Raised when a pod template cannot be used: an annotation, or the pod in it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the pilots of one template."""

    max_pilots: int
    """Most pilots that exist at a time, in any state but `failed` and `succeeded`."""
    min_pilots: int = 0
    """Pilots that are kept when no job waits."""
    max_pending: int = 10
    """Most pilots that are not in the pool yet."""
    max_new_per_minute: int = 10
    """Most pilots that are created in one minute of the clock."""
    priority: int = 0
    """Of several templates that could run a job, that with the highest priority gets it first."""
    jobs: str = "true"
    """ClassAd expression over a job: the jobs that pilots are made for. The pilots themselves may run others, too."""
    slot_attributes: tuple[tuple[str, str], ...] = ()
    """Attributes of the slot that only a node can tell, names and ClassAd expressions, such as Microarch."""
    gpu_properties: str = ""
    """Properties of each GPU, the inside of a ClassAd such as `Capability = 9.0; GlobalMemoryMb = 81559`."""


def limits_of(annotations: Mapping[str, str]) -> Limits:
    """Return the limits in a template's annotations.

    Raises:
        TemplateError: an annotation is missing, unknown or invalid.
    """
    values = {name.removeprefix(PREFIX): text for name, text in annotations.items() if name.startswith(PREFIX)}
    if wrong := [name for name, text in values.items() if not isinstance(text, str)]:
        raise TemplateError(f"the value of the annotation {PREFIX}{wrong[0]} is no string; put it in quotes")
    if unknown := sorted(values.keys() - _NAMES):
        near = get_close_matches(unknown[0], _NAMES, 1)
        known = f"did you mean {PREFIX}{near[0]}?" if near else f"known are {', '.join(sorted(_NAMES))};"
        raise TemplateError(
            f"the annotation {PREFIX}{unknown[0]} is unknown; {known} Remove it: kubectl annotate cronjob ... "
            f"{PREFIX}{unknown[0]}- (kubectl apply leaves what kubectl annotate has set)"
        )
    if "max-pilots" not in values:
        raise TemplateError(f"the annotation {PREFIX}max-pilots is missing; set it to the most pilots that may exist")
    limits = Limits(
        max_pilots=_number(values, "max-pilots", 0, 0),
        min_pilots=_number(values, "min-pilots", 0, 0),
        max_pending=_number(values, "max-pending", 10, 1),
        max_new_per_minute=_number(values, "max-new-per-minute", 10, 1),
        priority=_number(values, "priority", 0, -_MOST),
        jobs=_expression(values.get("jobs", "true"), "jobs"),
        slot_attributes=tuple(_attributes(values.get("slot-attributes", ""))),
        gpu_properties=_properties(values.get("gpu-properties", "")),
    )
    if limits.min_pilots > limits.max_pilots:
        raise TemplateError(
            f"{PREFIX}min-pilots is {limits.min_pilots}, more than {PREFIX}max-pilots, {limits.max_pilots}; lower it"
        )
    return limits


def _number(values: Mapping[str, str], name: str, default: int, least: int) -> int:
    text = values.get(name)
    if text is None:
        return default
    read: Callable[[str], int] = parsers.whole(least, _MOST)
    try:
        return read(text)
    except ValueError as error:
        raise TemplateError(f"the annotation {PREFIX}{name} is {text!r}, but {error}") from None


def _expression(text: str, name: str) -> str:
    line = " ".join(text.split())
    try:
        check(line, f"the annotation {PREFIX}{name} is {text!r}, but it must be a ClassAd expression", parse=True)
    except SettingsError as error:
        raise TemplateError(str(error)) from None
    return line


def _attributes(text: str) -> list[tuple[str, str]]:
    found = []
    for line in (part.strip() for part in text.splitlines()):
        if not line or line.startswith("#"):
            continue
        name, equals, expression = line.partition("=")
        if not equals or not name.strip().isidentifier():
            raise TemplateError(
                f"a line of the annotation {PREFIX}slot-attributes is {line[:80]!r}, but it must be an attribute and "
                'its value, such as Microarch = "x86_64-v4"'
            )
        found.append((name.strip(), _expression(expression.strip(), "slot-attributes")))
    return found


def _properties(text: str) -> str:
    inside = " ".join(text.split()).rstrip("; ")
    if inside:
        _expression(f"[{inside}]", "gpu-properties")
    return inside
