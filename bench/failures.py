"""Errors during a measurement are reported, and the run goes on: one error must not lose hours of measurements."""

import contextlib
import traceback
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def contained(tell: Callable[[Exception], None]) -> Iterator[None]:
    """Context manager: pass any error of its body to `tell` and suppress it. `tell` may raise it again."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 -- other people's programs fail in unforeseen ways
        tell(error)


def into(troubles: list[str], what: str = "") -> Callable[[Exception], None]:
    """Return a function that prints an error with its traceback, and adds to `troubles` what failed and why."""

    def tell(error: Exception) -> None:
        traceback.print_exception(error)
        troubles.append(f"{what}: {str(error) or type(error).__name__}".removeprefix(": "))

    return tell
