"""The benchmark's pure parts: statistics, turns, figures, and how logs and metrics are read."""

import itertools
import json
import sys
from pathlib import Path

import pytest

from bench import api_server, images, job_times, waterfall
from bench.__main__ import PARTS, chosen, main
from bench.engines import Inside
from bench.failures import contained, into
from bench.figures import Figures, short
from bench.goals import CROWD, GOALS, NEXT_DOCKER, TOLD, Goal, State, judge
from bench.statistics import Spread, busiest, exponent, gaps, in_turn, line, percentile, tail, turned
from lab.errors import LabError


def test_a_spread_is_median_and_quartiles() -> None:
    assert Spread.of([5, 1, 4, 2, 3]) == Spread(3, 2, 4, 5)
    assert Spread.of([7]) == Spread(7, 7, 7, 1)
    with pytest.raises(ValueError, match="no values"):
        Spread.of([])


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = list(range(1, 101))
    assert [percentile(values, percent) for percent in (0, 1, 50, 99, 100)] == [1, 1, 50, 99, 100]


def test_gaps_are_between_neighbours_in_time() -> None:
    assert gaps([10.0, 12.5, 11.0]) == [1.0, 1.5]
    assert gaps([3.0]) == []


def test_a_line_is_found_again_and_says_how_far_off_it_is() -> None:
    sizes = [10, 100, 1000]
    found = line(sizes, [300 + 0.5 * size for size in sizes])
    assert (round(found.base, 6), round(found.slope, 6)) == (300, 0.5)
    assert found.error < 1e-6
    assert round(found.at(100_000)) == 50_300
    assert line([1, 2, 3], [1, 2, 9]).error > 0.2
    with pytest.raises(ValueError, match="two sizes"):
        line([5, 5], [1, 2])


def test_an_exponent_tells_how_it_grows() -> None:
    assert round(exponent([10, 100, 1000], [3, 30, 300]), 6) == 1
    assert round(exponent([10, 100], [4, 400]), 6) == 2


def test_the_busiest_second_may_begin_anywhere() -> None:
    assert busiest([0.9, 1.0, 1.1, 1.85, 5.0]) == 4
    assert busiest([]) == 0


def test_each_contestant_is_first_as_often_as_the_others_and_neighbours_differ() -> None:
    orders = [turned("abc", number) for number in range(6)]
    assert sorted(order[0] for order in orders) == ["a", "a", "b", "b", "c", "c"]
    assert {order[(order.index("b") + 1) % 3] for order in orders} == {"a", "c"}
    assert turned([], 3) == []


def test_measurements_in_turn_are_kept_by_their_contestant() -> None:
    found = in_turn({"one": lambda: 1, "several": lambda: [2.0, 3.0]}, 2)
    assert found == {"one": [1, 1], "several": [2.0, 3.0, 2.0, 3.0]}


def test_a_contestant_that_fails_is_dropped_and_the_others_go_on() -> None:
    lost: list[tuple[str, str]] = []
    turns = iter([1.0, 2.0])
    contestants = {"good": lambda: 5.0, "bad": lambda: next(turns)}
    found = in_turn(contestants, 4, lambda name, error: lost.append((name, type(error).__name__)))
    assert found == {"good": [5.0] * 4}
    assert lost == [("bad", "StopIteration")]


def test_one_that_cannot_be_done_without_fails_all_of_them() -> None:
    def lose(name: str, error: Exception) -> None:
        raise error

    def fail() -> float:
        raise LabError("it is gone")

    with pytest.raises(LabError, match="gone"):
        in_turn({"ours": fail, "other": lambda: 1.0}, 2, lose)
    with pytest.raises(LabError, match="gone"):
        in_turn({"ours": fail}, 1)


def test_any_error_is_contained_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(error: Exception) -> None:
        raise error

    connectivity: list[str] = []
    with contained(into(connectivity, "bind")):
        fail(KeyError("start"))
    with contained(into(connectivity)):
        fail(TimeoutError())
    assert connectivity == ["bind: 'start'", "TimeoutError"]
    assert "Traceback" in capsys.readouterr().err


def test_fewer_than_a_hundred_values_have_a_worst_one_and_no_99th_percentile() -> None:
    assert tail([1.0, 3.0, 2.0]) == ("worst of 3", 3.0)
    assert tail([float(value) for value in range(1, 101)]) == ("99th percentile", 99.0)


_RATIO = Goal("bind", "to the floor", at_most=1.1, of_ratio=True)


def test_a_figure_says_value_spread_ratio_and_goal_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    figures = Figures(part="bind")
    floor = figures.add("floor", [0.1, 0.2, 0.3], "s")
    figures.add("ours", [0.22, 0.26, 0.24], "s", floor=floor, goal=_RATIO)
    figures.add("told", 20, "ms", goal=TOLD)
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.split() == ["floor", "0.2", "s", "0.1..0.3"]
    assert second.split()[4:] == ["ratio", "1.2", "(this", "/", "floor)", "[goal", "ratio", "<=", "1.1:", "MISSED]"]
    assert third.split()[3:] == ["[goal", "<=", "50:", "reached]"]


def test_a_ratio_is_always_ours_to_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    figures = Figures()
    ours = figures.add("ours", 1.0, "s")
    other = figures.add("a pod", 4.0, "s", ours=ours, goal=_RATIO)
    assert other.ratio == 0.25
    assert other.reached
    assert "ratio 0.25 (k8spilot / this)" in capsys.readouterr().out


def test_a_goal_that_was_not_measured_is_neither_reached_nor_left_unsaid() -> None:
    figures = Figures(part="bind")
    figures.add("told", 20, "ms", goal=TOLD)
    states = judge(figures.found, list(PARTS), [])
    assert set(states) == set(GOALS)
    assert states.pop(TOLD) is State.REACHED
    assert set(states.values()) == {State.NOT_MEASURED}
    asked = judge(figures.found, ["turnaround"], ["docker"])
    assert asked[TOLD] is State.REACHED  # of an earlier run
    assert asked[NEXT_DOCKER] is State.LEFT_OUT
    assert asked[CROWD] is State.LEFT_OUT


def test_a_goal_whose_value_does_not_count_is_missed() -> None:
    figures = Figures(part="scale")
    figure = figures.add("spread", 40, "s", goal=Goal("scale", "spread", at_least=30).voided("not all are back"))
    assert figure.reached is False
    assert "but not all are back" in figure.line()


def test_goals_are_told_apart_by_their_words_and_belong_to_parts() -> None:
    assert len({goal.name for goal in GOALS}) == len(GOALS)
    assert {goal.part for goal in GOALS} <= set(PARTS)


def test_what_is_not_a_whole_run_does_not_replace_one() -> None:
    assert str(chosen([]).target) == "build/bench.json"
    assert str(chosen(["--only", ",".join(PARTS)]).target) == "build/bench.json"
    assert str(chosen(["--only", "cost, bind"]).target) == "build/bench-only.json"
    assert str(chosen(["--only", "cost", "--add"]).target) == "build/bench.json"
    assert str(chosen(["--quick"]).target) == "build/bench-quick.json"
    assert chosen(["--quick"]).without == {"apptainer"}


@pytest.mark.parametrize("words", [["--only", "bnid"], ["--without", "dockr"], ["--only", ""]])
def test_a_name_that_is_unknown_is_an_error(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        chosen(words)
    assert "there are" in capsys.readouterr().err


def test_whatever_fails_the_goals_are_summed_up_and_the_exit_status_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise KeyError("lab")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bench", "--only", "bind,turnaround"])
    monkeypatch.setattr("bench.__main__.Lab.up", fail)
    assert main() == 1
    out = capsys.readouterr().out
    minutes = PARTS["bind"].minutes + PARTS["turnaround"].minutes
    assert f"about {minutes:.0f} minutes" in out
    assert f"NOT MEASURED {TOLD.name} (<= 50)" in out
    assert CROWD.name not in out
    assert "could not be measured: the lab: 'lab'" in out
    assert not list(tmp_path.iterdir())


def test_a_ratio_that_could_not_be_taken_is_not_measured_and_not_missed() -> None:
    figures = Figures(part="bind")
    assert figures.add("ours", 1.0, "s", floor=None, goal=_RATIO).reached is None


def test_nothing_is_written_where_nothing_was_measured(tmp_path: Path) -> None:
    target = tmp_path / "bench.json"
    first = Figures(part="bind")
    first.add("a", 1, "s")
    first.write(target, {})
    before = target.read_text()
    second = Figures(part="cost")
    second.keep(target, but=["cost"])
    second.write(target, {})
    assert target.read_text() == before
    assert not (tmp_path / "other.json").exists()


def test_a_part_that_is_measured_again_replaces_what_an_earlier_run_has_written(tmp_path: Path) -> None:
    target = tmp_path / "bench.json"
    first = Figures(part="bind")
    first.add("a", [1, 2, 3], "s")
    first.part = "cost"
    first.add("b", 1, "MiB", goal=Goal("cost", "b is there", at_least=1))
    first.write(target, {"quick": False})
    second = Figures(part="cost")
    second.keep(target, but=["cost"])
    assert second.found == first.of("bind")
    assert second.measured == 0
    assert json.loads(target.read_text())["quick"] is False


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.01234, "0.0123"), (12.345, "12.3"), (123.45, "123.5"), (98765.4, "98765")]
)
def test_numbers_have_the_digits_that_count(value: float, text: str) -> None:
    assert short(value) == text


def test_what_the_payload_says_of_time_is_read() -> None:
    assert job_times.times("start 10.5\nnoise\nend 12.25\n") == {"start": 10.5, "end": 12.25}
    with pytest.raises(LabError, match="job 7 has not said end, but 'start"):
        job_times.whole("start 10.5\n", "job 7")


_STARTER = """\
11/22/26 03:25:32.200 (pid:7) ** condor_starter (condor_STARTER) STARTING UP
11/22/26 03:25:32.300 (pid:7) File transfer completed successfully.
11/22/26 03:25:32.310 (pid:7) (D_ALWAYS) Starting a VANILLA universe job with ID: 6.0
11/22/26 03:25:32.400 (pid:7) Runnning: /usr/bin/docker pull -q image
11/22/26 03:25:32.450 (pid:7) Attempting to run: /usr/bin/docker create --init image
11/22/26 03:25:32.600 (pid:7) (D_ALWAYS) Process exited, pid=70, status=0
11/22/26 03:25:32.700 (pid:7) Runnning: /usr/bin/docker start -a HTCJob6_0
11/22/26 03:25:32.900 (pid:7) Process exited, pid=71, status=0
11/22/26 03:25:32.950 (pid:7) Returning from Starter::JobReaper()
11/22/26 03:25:32.960 (pid:7) File transfer completed successfully.
11/22/26 03:25:33.000 (pid:7) **** condor_starter (condor_STARTER) pid 7 EXITING WITH STATUS 0
11/22/26 03:25:33.100 (pid:9) ** condor_starter (condor_STARTER) STARTING UP
11/22/26 03:25:33.210 (pid:9) Starting a VANILLA universe job with ID: 6.1
11/22/26 03:25:34.100 (pid:7) ** condor_starter (condor_STARTER) STARTING UP
11/22/26 03:25:34.210 (pid:7) Starting a VANILLA universe job with ID: 8.0
"""


def test_the_steps_of_a_job_come_one_after_another_up_to_the_next_jobs_starter() -> None:
    seen = waterfall.marks(_STARTER, 6)
    assert set(seen) == {0, 1}
    seen[0].update(first=seen[0]["start"] + 0.05, last=seen[0]["start"] + 0.06)
    steps = waterfall.steps([seen])
    names = [step.name for step in steps]
    assert names == [name for name, _, _ in waterfall.STEPS]
    assert all(after.begin == before.end for before, after in itertools.pairwise(steps))
    lasted = {step.name: round(step.end - step.begin) for step in steps}
    assert lasted["docker create: the bind is settled"] == 150
    assert lasted["docker start: to the first instruction"] == 50
    assert lasted["shadow and startd: the next starter"] == 100
    assert round(steps[-1].end) == 900
    twice = {step.name: len(step.lasted) for step in waterfall.steps([seen, seen])}
    assert twice["docker create: the bind is settled"] == 2


def test_a_process_id_that_comes_again_is_another_starter() -> None:
    assert set(waterfall.marks(_STARTER, 8)) == {0}


_METRICS = """\
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",resource="pods",scope="resource",subresource="",verb="PATCH"} 3
apiserver_request_total{code="409",resource="pods",scope="resource",subresource="",verb="PATCH"} 1
apiserver_request_total{code="200",resource="pods",scope="resource",subresource="status",verb="PATCH"} 5
apiserver_request_total{code="200",resource="leases",scope="resource",subresource="",verb="PUT"} 1e+02
apiserver_flowcontrol_dispatched_requests_total{flow_schema="service-accounts",priority_level="workload-low"} 7
apiserver_flowcontrol_dispatched_requests_total{flow_schema="system-nodes",priority_level="system"} 50
apiserver_watch_events_total{group="",resource="pods",version="v1"} 12
apiserver_watch_events_total{group="",resource="nodes",version="v1"} 3
"""


def test_the_api_servers_requests_are_counted_by_verb_and_resource() -> None:
    found = api_server.parse(_METRICS)
    assert found.requests["PATCH", "pods"] == 4
    assert found.of("pods", "pods/status") == 9
    assert found.total == 109
    assert found.since(api_server.parse(_METRICS)).total == 0


def test_the_api_servers_flows_and_watch_events_are_counted_by_their_own_words() -> None:
    found = api_server.parse(_METRICS)
    assert found.flows[api_server.SERVICE_ACCOUNTS] == 7
    assert found.events["pods"] == 12
    assert api_server.parse('apiserver_watch_events_total{group="",kind="Pod",version="v1"} 5\n').events["pods"] == 5
    assert found.since(api_server.parse(_METRICS)).flows[api_server.SERVICE_ACCOUNTS] == 0


_ECHO = "import sys\nfor line in sys.stdin: print(0.5 if 'bind' in line else '{}', flush=True)"


def test_a_program_beside_an_engine_is_asked_and_one_that_is_silent_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = Inside(sys.executable, "-c", _ECHO)
    assert program.bind("image") == 0.5
    program.close()
    gone = Inside(sys.executable, "-c", "input()")
    with pytest.raises(LabError, match="ended"):
        gone.bind("image")
    gone.close()
    monkeypatch.setattr("bench.engines._ANSWER_S", 0.2)
    silent = Inside(sys.executable, "-c", "import time; time.sleep(60)")
    with pytest.raises(LabError, match="did not answer"):
        silent.ask("requests")
    silent.close()


def test_a_renamed_image_is_the_same_one_under_another_tag() -> None:
    before = "registry.example.org:5000/bench:latest@sha256:abc"
    first, second = images.renamed(before), images.renamed(before)
    assert first != second
    assert first.startswith("registry.example.org:5000/bench:bench-")
    assert first.endswith("@sha256:abc")


def test_an_image_is_as_large_as_its_layers() -> None:
    assert images.size_of({"layers": [{"size": 10}, {"size": 32}]}) == 42
