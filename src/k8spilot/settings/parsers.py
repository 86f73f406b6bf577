"""Parsers of settings. Each parses a text, or raises ValueError with the allowed form.

They are plain functions, because the engine also reads settings: pydantic-settings with one class of one field adds
15 MiB to the resident memory of its imports (pydantic-settings 2.16, Python 3.14).
"""

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

# These values go into HTCondor's configuration, as ClassAd strings or bare. Characters that could end a string or a
# line, or start a macro, are rejected instead of escaped: no site has such a name, and nothing is injected.
PLAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_ .,:@/+()-]*")
HOSTS: Final = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9.:,?=&_\[\] -]*")
REPOSITORIES: Final = re.compile(
    r"(?=[^/]*[.:]|localhost(?:/|$))[A-Za-z0-9\[][A-Za-z0-9.:\[\]-]*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*"
)
IMAGE: Final = re.compile(r"(docker://)?[A-Za-z0-9][A-Za-z0-9._:/@+-]*")
POOLS: Final = (
    "ospool", "prod-ospool", "itb", "itb-ospool", "path-facility", "prod-path-facility", "dev-path-facility"
)  # fmt: skip
"""Names of pools, with OSPool's synonyms (condor/configuration/pools.py)."""
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=((?:[^\s'\"]|'(?:[^'\"]|'')*')*)(?:\s+|$)")
_YES: Final = frozenset({"1", "true", "t", "yes", "y", "on"})
_NO: Final = frozenset({"0", "false", "f", "no", "n", "off"})


def plain(value: str) -> str:
    """Parse a name or a similar text."""
    if not PLAIN.fullmatch(value):
        raise ValueError("it must have only letters, digits, spaces and _ . , : @ / + ( ) -")
    return value


def hosts(value: str) -> str:
    """Parse hosts with or without ports. Return them separated by commas."""
    if not HOSTS.fullmatch(value):
        raise ValueError("it must be host names or addresses, each with or without :port, separated by commas")
    return ",".join(host for host in re.split(r"[,\s]+", value) if host)


def pool(value: str) -> str:
    """Parse the name of a pool, or the hosts of its central manager."""
    if value in POOLS:
        return value
    try:
        result = hosts(value)
    except ValueError:
        result = ""
    # A name without a domain is a misspelling more often than a host.
    if not result or not all({".", ":"} & set(host) for host in result.split(",")):
        import difflib  # noqa: PLC0415 -- rarely needed

        meant = difflib.get_close_matches(value.lower(), POOLS, 1, 0.7)
        raise ValueError(
            f"it must be {', '.join(POOLS)}, or a central manager's host name with its domain"
            + (f"; did you mean {meant[0]}?" if meant else "")
        )
    return result


class JobVariable(NamedTuple):
    """A variable of a job's environment."""

    name: str
    value: str


def job_environment(value: str) -> tuple[JobVariable, ...]:
    """Parse variables in HTCondor's new syntax of environments (condor_submit(1))."""
    text, at, found = value.strip(), 0, []
    while at < len(text):
        match = _ASSIGNMENT.match(text, at)
        if match is None or not text.isprintable():
            raise ValueError(
                "it must be variables such as A=1 B='two words', separated by spaces, on one line and without double "
                "quotes"
            )
        plain_text = re.sub(r"'((?:[^']|'')*)'", lambda part: part[1].replace("''", "'"), match[2])
        found.append(JobVariable(match[1], plain_text))
        at = match.end()
    return tuple(found)


def _image(value: str) -> str:
    if not IMAGE.fullmatch(value):
        raise ValueError("it must be an image reference such as docker://registry.example/image:tag")
    return value if value.startswith("docker://") else f"docker://{value}"


def image_or_expression(value: str) -> str:
    """Parse an image, and add docker://, or a ClassAd expression.

    A text that looks like a reference is one; `busybox` means the image.
    """
    return _image(value) if IMAGE.fullmatch(value) else one_line(value)


def one_line(value: str) -> str:
    """Parse a text without control characters."""
    if not value.isprintable() or value.endswith("\\"):
        raise ValueError("it must be one line of printable characters that does not end in a backslash")
    return value


def absolute(value: str) -> Path:
    """Parse an absolute path."""
    # The paths also go into HTCondor's configuration.
    if not re.fullmatch(r"/[A-Za-z0-9._/+-]*", value):
        raise ValueError("it must be an absolute path of letters, digits and . _ / + -")
    return Path(value)


def flag(value: str) -> bool:
    """Parse a boolean, in the words of YAML and people."""
    word = value.strip().lower()
    if word not in _YES | _NO:
        raise ValueError("it must be true or false")
    return word in _YES


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return a parser of integers from `least` to `most`."""

    def read(value: str) -> int:
        number = int(value) if re.fullmatch(r"\s*[+-]?[0-9]+\s*", value) else None
        if number is None or number < least or (most is not None and number > most):
            span = f"of at least {least}" if most is None else f"from {least} to {most}"
            raise ValueError(f"it must be an integer {span}")
        return number

    return read


def number(*, above: float = -math.inf, least: float = -math.inf, most: float = math.inf) -> Callable[[str], float]:
    """Return a parser of numbers, with or without a fraction."""

    def read(value: str) -> float:
        try:
            result = float(value)
        except ValueError:
            result = math.nan
        if not (math.isfinite(result) and result > above and least <= result <= most):
            end = f" and at most {most:g}" if math.isfinite(most) else ""
            word = "of at least" if least > above else "above"
            raise ValueError(f"it must be a number {word} {max(above, least):g}{end}")
        return result

    return read


port: Final = whole(1, 65535)


def limit(value: str) -> int:
    """Parse the payload container's limit of a resource. The kubelet gives 0 for a container without one."""
    try:
        return whole(1)(value)
    except ValueError as error:
        raise ValueError(f"{error}; set resources.limits.cpu and .memory of the container payload") from error


def one_of[Value](words: Sequence[Value]) -> Callable[[str], Value]:
    """Return a parser of one of several words, from typing.get_args."""

    def read(value: str) -> Value:
        for word in words:
            if word == value:
                return word
        raise ValueError(f"it must be {' or '.join(map(str, words))}")

    return read


def several[Value](read: Callable[[str], Value]) -> Callable[[str], tuple[Value, ...]]:
    """Return a parser of values separated by commas."""
    return lambda value: tuple(read(part.strip()) for part in value.split(","))


def repositories(value: str) -> tuple[str, ...]:
    """Parse registries and repositories, separated by commas or new lines; ignore empty ones."""
    return tuple(_repository(part) for part in re.findall(r"[^\s,]+", value))


def _repository(value: str) -> str:
    """Parse a registry, or a prefix of a repository: `registry.example`, `registry.example/group`."""
    result = re.sub(r"/\*{0,2}$", "", value.removeprefix("docker://"))
    if not REPOSITORIES.fullmatch(result):
        raise ValueError(
            "it must be registries and repositories such as registry.example or docker.io/library/busybox, "
            "with the registry's name, separated by commas or new lines"
        )
    return result


class ImageRule(NamedTuple):
    """A rule for images whose name matches a regular expression."""

    pattern: str
    """A Perl-compatible regular expression."""
    replacement: str
    """Image in a registry, with docker://; \\1 is the expression's first group."""


def image_rules(value: str) -> tuple[ImageRule, ...]:
    """Parse rules separated by semicolons or new lines."""
    return tuple(_rule(text) for line in re.split(r"[;\n]", value) if (text := line.strip()))


def _rule(text: str) -> ImageRule:
    pattern, arrow, replacement = (part.strip() for part in text.rpartition("=>"))
    if not (
        arrow and pattern and replacement.startswith("docker://") and text.isprintable() and " " not in replacement
    ):
        raise ValueError(
            "it must be rules `regular expression => docker://registry.example/image:tag`, separated by semicolons or "
            f"new lines, without quotes; {text!r} is not a rule"
        )
    return ImageRule(pattern, replacement)
