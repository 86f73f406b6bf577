"""Matches of jobs and templates, both ways: the slot's START over the job, and the job's Requirements over the slot.

Runs in the pool worker's process only, since HTCondor's library is not to be loaded elsewhere.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import classad2
import htcondor2

from k8spilot.provisioner.planning.model import JobGroup, Template
from k8spilot.provisioner.planning.resources import Resources

_REQUESTS: Final = ("RequestCpus", "RequestMemory", "RequestDisk", "RequestGPUs")
_GROUPED: Final = ("User", "JobUniverse", "Requirements", "RequireGPUs", *_REQUESTS)
"""Attributes that tell groups of jobs apart, beside those that slots and limits refer to."""
_DEFAULTS: Final = {"RequestCpus": 1.0, "RequestMemory": 128.0, "RequestDisk": 1024.0, "RequestGPUs": 0.0}
_MOST_WANTED: Final = 1e15
"""Most of a resource that a request counts for. Users can write any number, infinity included."""
_MOST_WORDS: Final = 300
_MOST_TEXT: Final = 10_000
"""Length of a condition that is looked at for the clause that fails."""


@dataclass(slots=True)
class _Slot:
    """Slots of one kind of a template."""

    template: Template
    place: int
    ad: classad2.ClassAd
    jobs: classad2.ExprTree
    """Limits.jobs."""


@dataclass(slots=True)
class Matcher:
    """Matches groups of jobs with templates."""

    templates: Sequence[Template]
    _slots: list[_Slot] = field(default_factory=list)
    attributes: list[str] = field(default_factory=list)
    """Attributes of jobs that the matching needs: the projection of the query, by which jobs are grouped."""

    def __post_init__(self) -> None:
        """Parse the ads."""
        wanted = dict.fromkeys(name.lower() for name in _GROUPED)
        names = {name.lower(): name for name in _GROUPED}
        for template in self.templates:
            jobs = classad2.ExprTree(template.limits.jobs)
            found = _references(jobs)
            for place, kind in enumerate(template.kinds):
                (ad,) = classad2.parseAds(kind.ad, classad2.ParserType.Old)
                self._slots.append(_Slot(template, place, ad, jobs))
                found |= _targets(kind.ad) | _start_refers_to(ad)
            for name in found:
                wanted.setdefault(name.lower())
                names.setdefault(name.lower(), name)
        self.attributes = [names[name] for name in wanted]

    def group(self, ad: classad2.ClassAd) -> JobGroup:
        """Return a group of jobs, from an ad of the schedd's aggregated query, and the templates that match it."""
        matches: dict[str, list[int]] = {}
        wanted: Resources | None = None
        reason, clauses_met = "", -1.0
        for slot in self._slots:
            size = _size(ad, slot.ad)
            fault, met = _fault(ad, slot, size)
            if not fault:
                matches.setdefault(slot.template.name, []).append(slot.place)
                wanted = wanted or size
            elif met > clauses_met:
                reason, clauses_met = f"template {slot.template.name}: {fault}", met
        return JobGroup(
            user=str(ad.get("User", "")),
            idle=int(ad.get("JobCount", 0)),
            wanted=wanted or Resources(1),
            matches={name: tuple(places) for name, places in matches.items()},
            jobs=str(ad.get("JobIds", "")),
            mismatch="" if matches else reason or "there is no template that can be used",
        )


def _fault(job: classad2.ClassAd, slot: _Slot, size: Resources) -> tuple[str, float]:
    """Return why a job does not match, empty if it does; and the share of the conditions that it meets."""
    kind = slot.template.kinds[slot.place]
    if slot.jobs.eval(scope=job) is not True:
        return f"its annotation k8spilot/jobs does not select them ({slot.template.limits.jobs})", -0.5
    if not size.fits_in(kind.room):
        return f"a job requests {size}, and a slot has {kind.room}", 2.0
    if job.symmetricMatch(slot.ad):
        return "", 3.0
    if len(str(job.lookup("Requirements"))) > _MOST_TEXT:
        return f"the Requirements of the jobs are not true (they have more than {_MOST_TEXT} characters)", 0.0
    conditions = [
        *((f"Requirements of the jobs: {text}", text, job, slot.ad) for text in _clauses(job, "Requirements")),
        *((f"START of the slot: {text}", text, slot.ad, job) for text in _clauses(slot.ad, "Start")),
    ]
    failing = [words for words, text, my, target in conditions if not _holds(text, my, target)]
    if not failing:  # no single clause is false
        return "the conditions of job and slot contradict each other", 0.0
    return failing[0][:_MOST_WORDS] + " is not true", 1 - len(failing) / len(conditions)


def _holds(text: str, my: classad2.ClassAd, target: classad2.ClassAd) -> bool:
    return bool(classad2.ExprTree(text).eval(scope=my, target=target) is True)


def _size(job: classad2.ClassAd, slot: classad2.ClassAd) -> Resources:
    """Return what a job gets: its requests, as the startd rounds them up (MODIFY_REQUEST_EXPR_*)."""
    amounts = {}
    for name in _REQUESTS:
        value: object = None
        if name in job:
            rounded = htcondor2.param.get(f"MODIFY_REQUEST_EXPR_{name.upper()}")
            tree = classad2.ExprTree(str(rounded)) if rounded else job.lookup(name)
            value = tree.eval(scope=job, target=slot)
        if isinstance(value, int | float) and not math.isnan(value):
            amounts[name] = min(max(float(value), 0.0), _MOST_WANTED)
        else:
            amounts[name] = _DEFAULTS[name]
    cpus, memory, disk, gpus = (amounts[name] for name in _REQUESTS)
    return Resources(cpus, int(memory), int(disk), int(gpus))


def _references(tree: classad2.ExprTree) -> set[str]:
    """Return the attributes of a job that an expression over it refers to."""
    return {name.rpartition(".")[2] for name in classad2.ClassAd().externalRefs(tree)} - {""}


def _targets(ad: str) -> set[str]:
    """Return the attributes of a job that a slot's ad refers to."""
    return set(re.findall(r"\bTARGET\.([A-Za-z_]\w*)", ad, re.IGNORECASE))


def _start_refers_to(ad: classad2.ClassAd) -> set[str]:
    """Return the attributes to which START refers without `TARGET.`, and that the slot itself does not have."""
    names = ad.externalRefs(ad.lookup("Start")) if "Start" in ad else []
    return {name.rpartition(".")[2] for name in names if name.rpartition(".")[2] not in ad} - {""}


def _clauses(ad: classad2.ClassAd, name: str) -> Iterator[str]:
    """Yield the operands of the conjunction that an attribute is."""
    if name in ad:
        yield from conjuncts(str(ad.lookup(name)))


def conjuncts(text: str) -> Iterator[str]:
    """Yield the operands of `&&` at the top of an expression, without redundant parentheses."""
    text = _bare(text.strip())
    parts = list(_split(text))
    if len(parts) == 1:
        yield text
        return
    for part in parts:
        yield from conjuncts(part)


def _bare(text: str) -> str:
    while text.startswith("(") and _closing(text) == len(text) - 1:
        text = text[1:-1].strip()
    return text


def _closing(text: str) -> int:
    """Return the place of the parenthesis that closes the first character of `text`."""
    for place, depth in _depths(text):
        if depth == 0:
            return place
    return -1


def _split(text: str) -> Iterator[str]:
    places = [place for place, depth in _depths(text) if depth == 0]
    # These bind less than &&, so that there is nothing to split.
    if any(text.startswith(("||", "?"), place) for place in places):
        yield text
        return
    begin = 0
    for place in places:
        if text.startswith("&&", place):
            yield text[begin:place].strip()
            begin = place + 2
    yield text[begin:].strip()


def _depths(text: str) -> Iterator[tuple[int, int]]:
    """Yield each place outside of strings, with the depth of parentheses after it."""
    depth, quote, is_escaped = 0, "", False
    for place, character in enumerate(text):
        if quote:
            if character == quote and not is_escaped:
                quote = ""
            is_escaped = character == "\\" and not is_escaped
        elif character in "\"'":
            quote = character
        else:
            depth += (character in "([{") - (character in ")]}")
            yield place, depth
