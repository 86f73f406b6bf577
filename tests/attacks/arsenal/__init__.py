"""What a hostile job tries, with nothing but Python's standard library: a program that runs in the payload container.

`python3 arsenal.pyz NAME...` makes these attacks and prints, as one JSON object, what each has gained: nothing, if the
defence holds. An attack that cannot even be tried says so, which counts as a gain: nobody is to believe in it.
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
