"""The table of all figures, which stands in the docs."""

from pathlib import Path

import pytest

from bench.figures import Figures
from bench.goals import BIND
from bench.table import read, table
from lab.errors import LabError


def _run(folder: Path, name: str, ours: list[float], theirs: list[float]) -> Path:
    figures = Figures(part="bind")
    floor = figures.add("bare PATCH", theirs, "s")
    figures.add("bind", ours, "s", floor=floor, goal=BIND)
    figures.part = "cost"
    figures.add("image", 277.0, "MiB")
    figures.write(folder / name, {})
    return folder / name


def test_every_figure_of_every_run_has_its_spread_and_its_ratio(tmp_path: Path) -> None:
    first = _run(tmp_path, "1.json", [0.2, 0.3, 0.4], [0.1, 0.2, 0.3])
    second = _run(tmp_path, "2.json", [0.4, 0.4, 0.4], [0.2, 0.2, 0.2])
    lines = table([read(first), read(second)]).splitlines()
    assert (
        "| bind | s | 0.3 (0.2..0.4, 3) | 0.4 (0.4..0.4, 3) | 1.5; 2 | ratio <= 1.2: missed; ratio <= 1.2: missed |"
        in lines
    )
    assert "| image | MiB | 277 | 277 |  |  |" in lines
    assert [line for line in lines if line.startswith("#")] == ["# Figures", "## bind", "## cost"]


def test_what_one_run_lacks_is_no_figure_of_the_others(tmp_path: Path) -> None:
    whole = _run(tmp_path, "1.json", [0.3], [0.2])
    figures = Figures(part="bind")
    figures.add("bare PATCH", [0.1], "s")
    figures.write(tmp_path / "2.json", {})
    lines = table([read(whole), read(tmp_path / "2.json")]).splitlines()
    assert "| bind | s | 0.3 | - | 1.5; - | ratio <= 1.2: missed; - |" in lines


@pytest.mark.parametrize("words", ["", "[]", '{"figures": [{}]}', '{"figures": []}'])
def test_a_file_that_no_run_has_written_is_told_by_its_name(tmp_path: Path, words: str) -> None:
    (tmp_path / "other.json").write_text(words)
    with pytest.raises(LabError, match=r"other\.json is not what `make bench` writes"):
        read(tmp_path / "other.json")
