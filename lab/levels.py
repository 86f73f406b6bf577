"""The levels of Pod Security that the pilots' namespaces enforce."""

from typing import Final, Literal

from lab.settings import PILOT_NAMESPACE

Level = Literal["baseline", "restricted"]

NAMESPACES: Final[dict[Level, str]] = {"baseline": PILOT_NAMESPACE, "restricted": "pilots-restricted"}
ENGINES: Final[dict[Level, str]] = {"baseline": "pilot", "restricted": "engine"}
"""Names of the containers in which engines run."""
