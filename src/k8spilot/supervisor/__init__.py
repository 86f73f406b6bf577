"""The supervisor: the first process of the pilot container, which starts the engine and HTCondor.

The compiled supervisor.py runs as a program of its own, without site-packages, so that it stays small. It imports
nothing of k8spilot. Other packages import its exit statuses, signals and variables.
"""

from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path
from typing import Final

_SOURCE: Final = str(Path(__file__).with_name("supervisor.py"))


def program() -> str:
    """Return the path of the supervisor's program, which Python runs: the compiled one if this Python can run it.

    Compiling the source would leave half a MiB in the supervisor, which lives as long as the pilot.
    """
    compiled = Path(cache_from_source(_SOURCE))
    try:
        with compiled.open("rb") as file:
            is_ours = file.read(len(MAGIC_NUMBER)) == MAGIC_NUMBER
    except OSError:
        is_ours = False
    return str(compiled) if is_ours else _SOURCE
