"""Matches of jobs and templates, both ways, and the reason where there is none."""

import time

import classad2
import pytest

from k8spilot.provisioner.planning.model import JobGroup, SlotKind, Template
from k8spilot.provisioner.planning.resources import Resources
from k8spilot.provisioner.pool.matching import _MOST_TEXT, Matcher, conjuncts
from tests.unit.provisioner.world import template

AD = """
Arch = "X86_64"
Memory = 2048
Cpus = 2
Disk = 1048576
GPUs = 0
Site = "here"
Start = (TARGET.JobUniverse == 5) && (TARGET.Project isnt undefined)
Requirements = Start
"""
SLOT = SlotKind(1, Resources(2, 2048, 2**20), 1, AD)


def job(**more: object) -> classad2.ClassAd:
    """An ad of the schedd's aggregated query: three jobs."""
    ad = classad2.ClassAd()
    values: dict[str, object] = {
        "User": "alice@pool", "JobCount": 3, "JobIds": "7.0 ... 7.2", "JobUniverse": 5, "Project": "A",
        "RequestCpus": 1, "RequestMemory": 100, "RequestDisk": 1024,
        "Requirements": classad2.ExprTree('TARGET.Arch == "X86_64" && (TARGET.Memory >= RequestMemory)'), **more,
    }  # fmt: skip
    for name, value in values.items():
        ad[name] = classad2.ExprTree(value[1:]) if isinstance(value, str) and value.startswith("=") else value
    return ad


def matched(ad: classad2.ClassAd, *templates: Template) -> object:
    """The group."""
    return Matcher(templates or (template("cpu", SLOT),)).group(ad)


def test_a_job_that_matches_both_ways_has_the_template() -> None:
    group = Matcher((template("cpu", SLOT), template("gpu", SLOT, SLOT))).group(job())
    assert (group.user, group.idle, group.jobs) == ("alice@pool", 3, "7.0 ... 7.2")
    assert group.matches == {"cpu": (0,), "gpu": (0, 1)}
    assert group.wanted == Resources(1, 128, 1024), "the startd rounds memory up to 128 MiB"


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"Project": "=undefined"}, "template cpu: START of the slot: TARGET.Project isnt undefined is not true"),
        (
            {"RequestMemory": 4000},
            "template cpu: a job requests 1 CPU, 4096 MiB of memory, 1 MiB of disk, and a slot has 2 CPUs",
        ),
        (
            {"Requirements": '=TARGET.Site == "there"'},
            'template cpu: Requirements of the jobs: TARGET.Site == "there" is not true',
        ),
        ({"RequestGPUs": 1}, "a job requests 1 CPU, 128 MiB of memory, 1 MiB of disk, 1 GPUs"),
        ({"RequestCpus": "=ifThenElse(TARGET.Cpus > 1, 8, 1)"}, "a job requests 8 CPUs"),
    ],
)
def test_the_reason_names_the_expression_that_is_not_true(more: dict[str, object], reason: str) -> None:
    group = Matcher((template("cpu", SLOT),)).group(job(**more))
    assert not group.matches
    assert reason in group.mismatch


def test_the_reason_is_that_of_the_nearest_template() -> None:
    other = SlotKind(1, SLOT.room, 1, AD.replace("TARGET.JobUniverse == 5", "false").replace("X86_64", "ARM"))
    group = Matcher((template("arm", other), template("cpu", SLOT))).group(job(Project="=undefined"))
    assert group.mismatch.startswith("template cpu: START")


def test_a_templates_own_expression_selects_jobs() -> None:
    chosen = template("cpu", SLOT, jobs='Project == "B"')
    assert 'k8spilot/jobs does not select them (Project == "B")' in Matcher((chosen,)).group(job()).mismatch
    assert Matcher((chosen,)).group(job(Project="B")).matches


def test_without_templates_that_is_the_reason() -> None:
    assert Matcher(()).group(job()).mismatch == "there is no template that can be used"


def test_jobs_are_grouped_by_all_that_a_slot_or_a_template_looks_at() -> None:
    found = Matcher((template("cpu", SLOT, jobs="MyTag > 3"),)).attributes
    assert {"User", "Requirements", "RequestCpus", "Project", "JobUniverse", "MyTag"} <= set(found)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a", ["a"]),
        ("(a && b) && c", ["a", "b", "c"]),
        ("((a))", ["a"]),
        ("a && (b || c && d)", ["a", "b || c && d"]),
        ("a || b && c", ["a || b && c"]),
        ("a ? b && c : d", ["a ? b && c : d"]),
        ('x == "a && b" && y', ['x == "a && b"', "y"]),
        (r'x == "\" && (" && y', [r'x == "\" && ("', "y"]),
        ("(a) && f(b && c)[1]", ["a", "f(b && c)[1]"]),
        ("(a) == (b)", ["(a) == (b)"]),
    ],
)
def test_a_conjunction_is_split_into_its_operands(text: str, parts: list[str]) -> None:
    assert list(conjuncts(text)) == parts


# --- What a user may write ---


@pytest.mark.parametrize(
    "amount", ['=real("INF")', '=real("NaN")', '=-real("INF")', "=-5", "=1e300", '="many"', "=undefined", "=error"]
)
def test_no_request_of_a_job_ends_the_query(amount: str) -> None:
    group = matched(job(RequestMemory=amount, RequestCpus=amount, RequestDisk=amount, RequestGPUs=amount))
    assert isinstance(group, JobGroup)
    assert group.matches or group.mismatch


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    ["(" * 3000 + "false" + ")" * 3000, "(true && " * 3000 + "false" + ")" * 3000, "'\"((" + "x" * 20_000],
    ids=["parentheses", "nested conjunctions", "no expression"],
)
def test_no_condition_of_a_job_takes_long_to_explain(text: str) -> None:
    began = time.process_time()
    list(conjuncts(text[:_MOST_TEXT]))
    ad = job()
    try:
        ad["Requirements"] = classad2.ExprTree(text)
    except (classad2.ClassAdException, ValueError):
        pass
    else:
        group = matched(ad)
        assert isinstance(group, JobGroup)
        assert not group.matches
    assert time.process_time() - began < 5
