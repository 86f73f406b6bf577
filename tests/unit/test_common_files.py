"""Atomic replacement of files."""

from pathlib import Path

import pytest

from k8spilot.common.files import link, write


def test_a_file_is_replaced_with_its_mode_and_nothing_stays_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "file"
    (tmp_path / ".file.new").write_text("of a process that was killed")
    for text in ("one", "two"):
        write(file, text, 0o640)
        assert (file.read_text(), file.stat().st_mode & 0o777) == (text, 0o640)
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_takes_the_place_of_a_file(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.write_text("text")
    link(place, tmp_path / "target")
    assert place.readlink() == tmp_path / "target"


def test_a_failure_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("one")
    with pytest.raises(TypeError):
        write(file, 2, 0o640)  # type: ignore[arg-type]
    assert file.read_text() == "one"
