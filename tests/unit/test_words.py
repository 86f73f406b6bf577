"""Docstrings begin with a noun or an imperative verb, and the files that docstrings and comments of src name exist."""

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
SOURCE = CHECKOUT / "src/k8spilot"
DESCRIBED = (SOURCE, *(CHECKOUT / name for name in ("lab", "bench", "soak", "docs/generate")))
"""Folders whose docstrings are checked."""

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


@pytest.mark.slow
def test_no_docstring_begins_with_a_pronoun() -> None:
    found = [
        f"{path.relative_to(CHECKOUT)}:{line}: {text.splitlines()[0]}"
        for folder in DESCRIBED
        for path in sorted(folder.rglob("*.py"))
        for line, text in _docstrings(ast.parse(path.read_text()))
        if _is_pronoun(text)
    ]
    assert not found, "\n".join(found)


# --- Names of files ---

FILE_NAME = re.compile(r"(?<![\w.*/-])((?:[\w-]+/)*[\w-]+\.(?:py|c|sh))\b(?![\w(])")
UPSTREAM = frozenset({"aio/config/incluster_config.py", "tty_jobctrl.c"})
"""Files of other projects: the Python client of Kubernetes, Linux."""


def _comments(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of all docstrings and comments of a source file."""
    text = path.read_text()
    if path.suffix == ".py":
        yield from _docstrings(ast.parse(text))
        with path.open("rb") as file:
            for token in tokenize.tokenize(file.readline):
                if token.type == tokenize.COMMENT:
                    yield token.start[0], token.string
    elif path.suffix == ".sh":
        yield from ((number, line) for number, line in enumerate(text.splitlines(), 1) if line.lstrip().startswith("#"))
    else:
        for match in re.finditer(r"/\*.*?\*/", text, re.DOTALL):
            yield text[: match.start()].count("\n") + 1, match[0]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("(payload/run.py, run.sh)", ["payload/run.py", "run.sh"]),
        ("See tidy.c.", ["tidy.c"]),
        ("docker-py, os.path, *.py", []),
    ],
)
def test_names_of_files_are_found(text: str, names: list[str]) -> None:
    assert FILE_NAME.findall(text) == names


def test_every_file_that_a_docstring_or_a_comment_names_exists() -> None:
    folders = [CHECKOUT / name for name in ("src", "tests", "lab", "bench", "soak", "docs")]
    files = {f"/{path.relative_to(CHECKOUT)}" for folder in folders for path in folder.rglob("*.*")}
    missing = [
        f"{path.relative_to(SOURCE)}:{line}: {name}"
        for path in sorted(SOURCE.rglob("*"))
        if path.suffix in (".py", ".c", ".h", ".sh")
        for line, text in _comments(path)
        for name in FILE_NAME.findall(text)
        if name not in UPSTREAM and not any(file.endswith(f"/{name}") for file in files)
    ]
    assert not missing, "\n".join(missing)
