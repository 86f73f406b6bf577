"""Names of variables are not case-sensitive: finds one setting in several spellings with different values."""

from collections.abc import Iterable, Iterator, Mapping


def contradictions(environment: Mapping[str, str], names: Iterable[str]) -> Iterator[str]:
    """Yield a fault for each of the settings `names` that is there in several spellings with different values."""
    spellings: dict[str, list[str]] = {}
    for name, text in environment.items():
        if text:
            spellings.setdefault(name.lower(), []).append(name)
    for name in names:
        found = spellings.get(name.lower(), [])
        if len({environment[one] for one in found}) > 1:
            yield f"{' and '.join(sorted(found))} are the same setting and have different values; keep {name} only"
