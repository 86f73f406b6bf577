"""Attacks of a hostile job: a program for the payload container that needs only Python's standard library.

`python3 arsenal.pyz NAME...` makes these attacks and prints, as one JSON object, the gains of each: none, if the
defence holds. An attack that cannot be tried reports this as a gain, so that it does not pass for one that failed.
"""

from . import files, htcondor, neighbours, network, processes, rights, secrets
from .neighbours import AGAINST_NEIGHBOURS
from .tools import ATTACKS

__all__ = [
    "AGAINST_NEIGHBOURS",
    "ATTACKS",
    "files",
    "htcondor",
    "neighbours",
    "network",
    "processes",
    "rights",
    "secrets",
]
