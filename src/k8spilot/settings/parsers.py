"""The kinds of values that settings have: each reads a text, or says what is allowed (ValueError).

They are plain functions since the engine reads settings, too: pydantic-settings with one class of one field adds 13 MiB
to the Rss of its imports (pydantic-settings 2.14, Python 3.11).
"""

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

Value = TypeVar("Value")

# These values go into HTCondor's configuration, as ClassAd strings or bare. What could end a string or a
# line, or start a macro, is refused rather than escaped: no site has such a name, and nothing is injected.
PLAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_ .,:@/+()-]*")
HOSTS: Final = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9.:,?=&_\[\] -]*")
REPOSITORIES: Final = re.compile(
    r"(?=[^/]*[.:]|localhost(?:/|$))[A-Za-z0-9\[][A-Za-z0-9.:\[\]-]*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*"
)
IMAGE: Final = re.compile(r"(docker://)?[A-Za-z0-9][A-Za-z0-9._:/@+-]*")
_YES: Final = frozenset({"1", "true", "t", "yes", "y", "on"})
_NO: Final = frozenset({"0", "false", "f", "no", "n", "off"})


def plain(value: str) -> str:
    """Names, and what is like them."""
    if not PLAIN.fullmatch(value):
        raise ValueError("letters, digits, spaces and _ . , : @ / + ( ) - are allowed")
    return value


def hosts(value: str) -> str:
    """Hosts, with or without ports; they come out separated by commas alone."""
    if not HOSTS.fullmatch(value):
        raise ValueError("host names or addresses, each with or without :port, separated by commas, are allowed")
    return ",".join(host for host in re.split(r"[,\s]+", value) if host)


def _image(value: str) -> str:
    if not IMAGE.fullmatch(value):
        raise ValueError("an image reference such as docker://registry.example/image:tag is allowed")
    return value if value.startswith("docker://") else f"docker://{value}"


def image_or_expression(value: str) -> str:
    """An image, which comes out with docker://, or a ClassAd expression.

    A reference is told from a ClassAd expression by its looks; `busybox` means the image.
    """
    return _image(value) if IMAGE.fullmatch(value) else one_line(value)


def one_line(value: str) -> str:
    """A text without control characters."""
    if not value.isprintable() or value.endswith("\\"):
        raise ValueError("one line of printable characters that does not end in a backslash is allowed")
    return value


def absolute(value: str) -> Path:
    """A path of a file or folder."""
    # The paths go into HTCondor's configuration, too.
    if not re.fullmatch(r"/[A-Za-z0-9._/+-]*", value):
        raise ValueError("an absolute path of letters, digits and . _ / + - is allowed")
    return Path(value)


def flag(value: str) -> bool:
    """Yes or no, in the words that YAML and people have for it."""
    word = value.strip().lower()
    if word not in _YES | _NO:
        raise ValueError("true or false is allowed")
    return word in _YES


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """A whole number."""

    def read(value: str) -> int:
        number = int(value) if re.fullmatch(r"\s*[+-]?[0-9]+\s*", value) else None
        if number is None or number < least or (most is not None and number > most):
            span = f"of at least {least}" if most is None else f"from {least} to {most}"
            raise ValueError(f"a whole number {span} is allowed")
        return number

    return read


def number(*, above: float = -math.inf, least: float = -math.inf, most: float = math.inf) -> Callable[[str], float]:
    """A number, with a fraction or without."""

    def read(value: str) -> float:
        try:
            found = float(value)
        except ValueError:
            found = math.nan
        if not (math.isfinite(found) and found > above and least <= found <= most):
            end = f" and at most {most:g}" if math.isfinite(most) else ""
            word = "of at least" if least > above else "above"
            raise ValueError(f"a number {word} {max(above, least):g}{end} is allowed")
        return found

    return read


port: Final = whole(1, 65535)


def one_of(words: Sequence[Value]) -> Callable[[str], Value]:
    """One of a few words, given by typing.get_args."""

    def read(value: str) -> Value:
        for word in words:
            if word == value:
                return word
        raise ValueError(f"{' or '.join(map(str, words))} is allowed")

    return read


def several(read: Callable[[str], Value]) -> Callable[[str], tuple[Value, ...]]:
    """Values separated by commas."""
    return lambda value: tuple(read(part.strip()) for part in value.split(","))


def repositories(value: str) -> tuple[str, ...]:
    """Registries and repositories, separated by commas or new lines; empty ones do not count."""
    return tuple(_repository(part) for part in re.findall(r"[^\s,]+", value))


def _repository(value: str) -> str:
    """A registry, or the beginning of a repository's name: `registry.example`, `registry.example/group`."""
    found = re.sub(r"/\*{0,2}$", "", value.removeprefix("docker://"))
    if not REPOSITORIES.fullmatch(found):
        raise ValueError(
            "registries and repositories such as registry.example or docker.io/library/busybox, "
            "with the registry's name, separated by commas or new lines, are allowed"
        )
    return found


class ImageRule(NamedTuple):
    """What becomes of images whose name a regular expression finds something in."""

    pattern: str
    """A Perl-compatible regular expression."""
    replacement: str
    """The image in a registry, with docker://; \\1 is the expression's first group."""


def image_rules(value: str) -> tuple[ImageRule, ...]:
    """Rules separated by semicolons or new lines."""
    return tuple(_rule(text) for line in re.split(r"[;\n]", value) if (text := line.strip()))


def _rule(text: str) -> ImageRule:
    pattern, arrow, replacement = (part.strip() for part in text.rpartition("=>"))
    if not (
        arrow and pattern and replacement.startswith("docker://") and text.isprintable() and " " not in replacement
    ):
        raise ValueError(
            "rules `regular expression => docker://registry.example/image:tag`, separated by semicolons or new lines, "
            f"without quotes, are allowed; {text!r} is none"
        )
    return ImageRule(pattern, replacement)
