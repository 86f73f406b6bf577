"""Docstrings of src begin with a noun or an imperative verb, not with a pronoun."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src/k8spilot"

PRONOUNS = frozenset(
    {"what", "whatever", "who", "whoever", "whose", "those", "it", "they", "somebody", "nobody", "anybody"}
)
PHRASES = ("as that", "as this", "as above", "one that", "tell ", "of the ", "of a ", "all of it")


def _docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of all docstrings, including those of attributes and constants."""
    for node in ast.walk(tree):
        for statement in getattr(node, "body", ()) if not isinstance(node, ast.Lambda | ast.IfExp) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text)), lineno=line):
                    yield line, text


def _is_pronoun(text: str) -> bool:
    first = text.split(maxsplit=1)[0].strip(",.;:'").lower()
    return first in PRONOUNS or text.lower().startswith(PHRASES)


@pytest.mark.parametrize("text", ["What a pilot needs.", "Whoever connects.", "It has ended.", "As that, but for all."])
def test_a_pronoun_at_the_beginning_is_found(text: str) -> None:
    assert _is_pronoun(text)


@pytest.mark.parametrize("text", ["Return the image.", "Items of a list.", "Whether the slot is idle.", "Onesided."])
def test_a_noun_or_a_verb_at_the_beginning_is_fine(text: str) -> None:
    assert not _is_pronoun(text)


def test_attributes_are_read_too() -> None:
    tree = ast.parse('class A:\n    """Noun."""\n    b = 1\n    """What it has."""\n')
    assert [line for line, text in _docstrings(tree) if _is_pronoun(text)] == [4]


def test_no_docstring_begins_with_a_pronoun() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {text.splitlines()[0]}"
        for path in sorted(SOURCE.rglob("*.py"))
        for line, text in _docstrings(ast.parse(path.read_text()))
        if _is_pronoun(text)
    ]
    assert not found, "\n".join(found)
