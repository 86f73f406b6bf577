"""The status of a provisioner, for people and for the next process."""

from k8spilot.provisioner import report
from k8spilot.provisioner.planning.model import Demand, JobGroup, PilotState, TemplateClosure
from k8spilot.provisioner.planning.plan import plan
from k8spilot.provisioner.planning.resources import Resources
from k8spilot.provisioner.report import Turn, lines, status
from tests.unit.provisioner.world import NOW, demand, jobs, pilot, several, template


def told(wanted: Demand, closures: dict[str, TemplateClosure] | None = None, **more: object) -> list[str]:
    """The text of a status."""
    pilots = [*several(2, PilotState.BUSY), *several(1, PilotState.PENDING)]
    found = plan(wanted, [template(max_pilots=4)], pilots, closures or {}, NOW)
    turn = Turn(NOW, 0.5, "provisioner-1", plan=found, **more)  # type: ignore[arg-type]
    return list(report.lines(report.status(turn, {}), NOW + 3))


def test_a_template_shows_its_jobs_its_pilots_and_the_next_step_with_its_reason() -> None:
    assert told(demand(jobs(9))) == [
        "provisioner provisioner-1, as of 2027-01-15 08:00:00 UTC, 3 s ago",
        "template cpu: 9 idle jobs match",
        "  pilots    1 pending, 2 busy, of at most 4",
        "  next      1 pilot is made; 7 more pilots would have jobs: max-pilots (4) is reached",
    ]


def test_jobs_without_a_template_are_told_once_for_each_user_and_reason() -> None:
    lost = [JobGroup("bob", number, Resources(1), jobs=f"{number}.0", mismatch="no such site") for number in (2, 3)]
    assert told(demand(*lost))[-2:] == ["no template for 5 jobs of bob, such as 2.0", "  reason    no such site"]


def test_the_records_of_failures_outlive_the_process() -> None:
    record = TemplateClosure(3, NOW + 50, "no token", NOW - 10, "v1")
    found = plan(demand(), [template()], [], {"cpu": record}, NOW)
    assert report.closures(report.status(Turn(NOW, plan=found), {})) == {"cpu": record}
    assert report.closures({"templates": {"cpu": {"closure": {"unknown": 1}}, "other": {}}}) == {}


def test_a_turn_without_a_plan_keeps_what_was_known_and_tells_the_fault() -> None:
    before = report.status(Turn(NOW, plan=plan(demand(jobs(1)), [template()], [], {}, NOW)), {})
    after = report.status(Turn(NOW + 5, faults=["the collector does not answer"]), before)
    assert after["templates"] == before["templates"]
    assert list(report.lines(after, NOW + 5))[1] == "  fault     the collector does not answer"


def test_a_status_that_is_old_says_that_no_provisioner_is_at_work() -> None:
    first, *_ = report.lines({"time": NOW, "leader": "x"}, NOW + 500)
    assert first.endswith("500 s ago: no provisioner is at work")


def test_a_template_that_cannot_be_used_is_told_with_the_reason() -> None:
    assert told(demand(), invalid={"gpu": "max-pilots is missing"})[1:3] == [
        "template gpu: not used",
        "  fault     max-pilots is missing",
    ]


def test_pilots_of_a_template_that_cannot_be_used_are_shown_and_removed_when_they_have_ended() -> None:
    old = pilot(PilotState.SUCCEEDED, "gpu", trouble_since=NOW - 400)
    found = plan(demand(), [template()], [pilot(PilotState.BUSY, "gpu"), old], {}, NOW)
    text = list(lines(status(Turn(NOW, invalid={"gpu": "no limit"}, plan=found), {}), NOW))
    assert "  pilots    1 busy" in text
    assert [one for one, _ in found.ended["gpu"]] == [old]


def test_pods_that_are_removed_after_their_end_are_no_pilots_that_are_deleted() -> None:
    old = several(2, PilotState.SUCCEEDED, trouble_since=NOW - 400)
    found = plan(demand(), [template()], old, {}, NOW)
    assert report.next_step(found.templates["cpu"], NOW) == "2 pods that have ended are removed"


def test_pilots_that_do_not_start_are_not_said_to_take_the_jobs() -> None:
    waits = pilot(PilotState.PENDING, trouble="ErrImagePull", trouble_since=NOW - 5)
    found = plan(demand(jobs(1)), [template()], [waits], {}, NOW)
    assert report.next_step(found.templates["cpu"], NOW).startswith("pilots that do not start are waited for")


def test_a_closed_template_says_so_even_if_all_idle_jobs_have_pilots_on_their_way() -> None:
    stuck = pilot(PilotState.PENDING, name="cpu-1", age=70, trouble="ErrImagePull", trouble_since=NOW - 65)
    record = TemplateClosure(1, NOW + 40, "the pilot cpu-1 does not start: ErrImagePull", NOW)
    found = plan(demand(jobs(1)), [template()], [stuck], {"cpu": record}, NOW)
    text = "\n".join(lines(status(Turn(NOW, plan=found), {}), NOW))
    assert "trouble   cpu-1: ErrImagePull" in text
    assert "closed until 08:00:40 UTC, because the pilot cpu-1 does not start: ErrImagePull" in text
