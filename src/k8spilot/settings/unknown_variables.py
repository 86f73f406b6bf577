"""Names in a pilot's environment that have no effect: those of other pilots, and misspelt ones."""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from k8spilot.settings.constants import PREFIX
from k8spilot.settings.fields import variables
from k8spilot.settings.other_pilots import OTHER_VARIABLES, OtherVariable

_OF_THE_PILOT: Final = frozenset({"K8SPILOT_ENGINE_DEATHS", "K8SPILOT_FACTS", "K8SPILOT_BIND", "K8SPILOT_EQUAL_SLOTS"})
"""Variables that parts of k8spilot set for each other."""
_FAMILIES: Final = (PREFIX, "GLIDEIN_", "GLIDECLIENT_", "OSG_", "CVMFS_", "CVMFSEXEC_", "SINGULARITY_", "APPTAINER_")
"""Prefixes of variables that are meant for a pilot, in whatever spelling."""
_SERVICE_LINK: Final = re.compile(r"_SERVICE_(HOST|PORT)\w*$|_PORT_\d+_(TCP|UDP|SCTP)\w*$")
"""Variables of the namespace's Services, where the pod has enableServiceLinks."""
_LIMITS: Final = frozenset(
    {"GLIDEIN_Start_Extra", "OSG_PROJECT_NAME", "K8SPILOT_ALLOWED_IMAGES", "K8SPILOT_REQUIRE_DIGEST"}
)
"""Settings by which an operator limits whose jobs and which images run."""
_ALIKE: Final = 0.82
"""Least similarity (difflib) of a variable and a name for which it is a misspelling."""
_ALIKE_OWN: Final = 0.7
"""The same for variables with the project's prefix, which are certainly meant as settings."""
_ALIKE_SURELY: Final = 0.95
"""The same for variables without such a prefix, from which a limit is refused and not only reported."""
_LONG: Final = 10
"""Least length of a name that is taken for a setting without its prefix."""


class Ineffective(NamedTuple):
    """A variable that has no effect."""

    name: str
    words: str
    """A sentence about it: why, and what to do."""
    refused: bool
    """Whether a pilot must not start with it, because it would run jobs that its operator does not want."""


def ineffective(environment: Mapping[str, str]) -> list[Ineffective]:
    """Return the variables that look like settings and have no effect. Empty ones count as not set."""
    found = (_judge(name, text) for name, text in sorted(environment.items()) if text)
    return [one for one in found if one is not None]


def _judge(name: str, text: str) -> Ineffective | None:
    """Return what is wrong with one variable; None if nothing is."""
    if name.lower() in _KNOWN or name in _OF_THE_PILOT or name.startswith("_CONDOR_"):
        return None
    if (other := _OTHER_NAMES.get(name.lower())) is not None:
        return _judge_other(name, text, OTHER_VARIABLES[other])
    if _SERVICE_LINK.search(name):
        return None
    if meant := nearest(name):
        return _judge_misspelt(name, meant)
    if not name.upper().startswith(_FAMILIES):
        return None
    return Ineffective(
        name,
        f"{name} is not a setting of this k8spilot and has no effect; the page Settings of the documentation, and "
        "`k8spilot settings`, list all",
        refused=False,
    )


def _judge_other(name: str, text: str, known: OtherVariable) -> Ineffective | None:
    if text.strip().lower() in known.neutral:
        return None
    effect = "would be ignored here and limits the pilot" if known.refused else "has no effect here"
    words = f"{name}, a variable of {known.source}'s pilots, {effect}; {known.remedy}"
    return Ineffective(name, words, known.refused)


def _judge_misspelt(name: str, meant: str) -> Ineffective:
    known = OTHER_VARIABLES.get(meant)
    effect = f"{meant}, which has no effect here; {known.remedy}" if known else meant
    limits = _is_surely(name, meant) and (meant in _LIMITS or (known is not None and known.refused))
    why = ", which limits the pilot" if limits and not known else ""
    words = f"{name} is not a setting of this k8spilot; it is probably a misspelling of {effect}{why}"
    return Ineffective(name, words, limits)


def _is_surely(name: str, meant: str) -> bool:
    """Return whether a variable is meant for a pilot; another program's may look alike, such as PROJECT_NAME."""
    return name.upper().startswith(_FAMILIES) or bool(_closest(name.upper(), [meant.upper()], _ALIKE_SURELY))


def nearest(name: str) -> str:
    """Return the known name that `name` is probably a misspelling of; empty if there is none."""
    wanted = name.upper()
    if wanted.startswith(PREFIX):
        bare = wanted.removeprefix(PREFIX)
        if bare.lower() in _KNOWN:
            return _KNOWN[bare.lower()]
        own = {one.removeprefix(PREFIX): one for one in _KNOWN.values() if one.startswith(PREFIX)}
        shortened = {one[: len(bare)]: name for one, name in own.items()}
        return own.get(_closest(bare, own, _ALIKE_OWN), "") or shortened.get(_closest(bare, shortened, _ALIKE), "")
    if len(wanted) >= _LONG and (prefixed := (PREFIX + wanted).lower()) in _KNOWN:
        return _KNOWN[prefixed]
    others = {one.upper(): one for one in _KNOWN.values() if not one.startswith(PREFIX)}
    others |= {one.upper(): one for one, known in OTHER_VARIABLES.items() if known.refused or one.startswith(_FAMILIES)}
    return others.get(_closest(wanted, others, _ALIKE), "")


def _closest(word: str, words: Iterable[str], alike: float) -> str:
    """Return the word that is most similar to `word`; empty if none is similar."""
    import difflib  # noqa: PLC0415 -- the engine needs it for misspelt names only

    return next(iter(difflib.get_close_matches(word, list(words), 1, alike)), "")


_KNOWN: Final = {name.lower(): name for name in variables()}
_OTHER_NAMES: Final = {name.lower(): name for name in OTHER_VARIABLES}
