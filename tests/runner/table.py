"""The tables of `make test-times` and `make test-many`: with rich where it is installed, else as plain text."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tests.runner.times import OTHER

SLOWEST: Final = 20
PHASES: Final = ("lab", "pilot", "match", "bind", "job", "clean-up", OTHER)
_SUMS: Final = ("wall", "processor", "waiting")


def show(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print one table; all columns but the first are aligned to the right."""
    lines = list(rows)
    try:
        from rich.console import Console  # noqa: PLC0415 -- part of the lab's dependencies, which a reader may lack
        from rich.markup import escape  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415
    except ImportError:
        widths = [max(map(len, column)) for column in zip(heads, *lines, strict=True)]
        print(title)
        for line in (heads, *lines):
            first, *others = (word.rjust(width) for word, width in zip(line, widths, strict=True))
            print("  ".join([first.strip().ljust(widths[0]), *others]))
        return
    table = Table(title=title, title_justify="left")
    for number, head in enumerate(heads):
        table.add_column(head, justify="right" if number else "left", overflow="fold")
    for line in lines:
        table.add_row(*map(escape, line))  # a test's parameters are in brackets, as rich's markup is
    Console().print(table)


def show_times(facts: Mapping[str, Any]) -> None:
    """Print where a session's time went: by part, by phase, and the slowest tests."""
    session, tests = facts["session"], facts["tests"]
    print(
        f"{len(tests)} tests in {_clock(session['seconds'])} on {session['cores']} cores with {session['workers']} "
        f"workers, which began {session['began']}; the cores were busy for {session['machine_busy']:.0%} of that time"
    )
    parts: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for test in tests.values():
        parts[test["part"]].append(test)
    ordered = sorted(parts.items(), key=lambda one: -_sum(one[1], "wall"))
    everything = ("all", list(tests.values()))
    show(
        "By part",
        ("part", "tests", *_SUMS),
        [(name, str(len(ones)), *(_clock(_sum(ones, key)) for key in _SUMS)) for name, ones in (*ordered, everything)],
    )
    show(
        "By phase",
        ("part", *PHASES),
        [(name, *(_clock(_in_phase(ones, phase)) for phase in PHASES)) for name, ones in (*ordered, everything)],
    )
    slowest = sorted(tests.items(), key=lambda one: -one[1]["wall"])[:SLOWEST]
    show(
        f"The {len(slowest)} slowest tests, in seconds",
        ("test", *_SUMS, "most of it"),
        [(name, *(f"{test[key]:.1f}" for key in _SUMS), _most(test["phases"])) for name, test in slowest],
    )


def _sum(tests: Iterable[Mapping[str, Any]], key: str) -> float:
    return sum(float(test[key]) for test in tests)


def _in_phase(tests: Iterable[Mapping[str, Any]], phase: str) -> float:
    return sum(float(test["phases"].get(phase, 0.0)) for test in tests)


def _most(phases: Mapping[str, float]) -> str:
    name = max(phases, key=lambda one: phases[one], default=OTHER)
    return f"{name} {phases.get(name, 0.0):.1f}"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
