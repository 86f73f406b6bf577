"""How the lab's programs report a failure: one sentence on standard error, and an exit code."""

import logging
import sys
from collections.abc import Callable

from lab.errors import LabError


def exit_code(program: str, work: Callable[[], int], *, interrupted: str = "interrupted") -> int:
    """Return the exit code of `work`. For a failure it is 1, after the sentence; 130 if a person has interrupted it."""
    logging.disable()
    try:
        return work()
    except LabError as problem:
        words = str(problem)
    except PermissionError as problem:
        words = f"{problem.filename} is not ours to use: run the lab as root"
    except OSError as problem:
        words = f"{problem.strerror or problem}: {problem.filename or 'this machine'}"
    except KeyboardInterrupt:
        print(f"{program}: {interrupted}", file=sys.stderr)
        return 130
    print(f"{program}: {words}", file=sys.stderr)
    return 1
