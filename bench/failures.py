"""What fails while something is measured is told and gone on from: hours of measuring are not lost to one error."""

import contextlib
import traceback
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def contained(tell: Callable[[Exception], None]) -> Iterator[None]:
    """Give any error of what is inside to `tell`, and go on behind it; `tell` may raise it again."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 -- programs of others fail in ways that nobody has listed
        tell(error)


def into(connectivity: list[str], what: str = "") -> Callable[[Exception], None]:
    """Print an error with its traceback, and add it to `troubles` in words, which say what failed."""

    def tell(error: Exception) -> None:
        traceback.print_exception(error)
        connectivity.append(f"{what}: {str(error) or type(error).__name__}".removeprefix(": "))

    return tell
