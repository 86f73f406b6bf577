"""HTTP requests that close refusals: an HTTPError is an open answer, and Python warns if it is never closed."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from typing import Any


@contextmanager
def opened(request: str | urllib.request.Request, **options: Any) -> Iterator[HTTPResponse]:
    """Give the answer to a request; `options` are those of urlopen. Raises OSError, of which HTTPError is a kind."""
    try:
        with urllib.request.urlopen(request, **options) as answer:  # noqa: S310 -- the lab's own addresses
            yield answer
    except urllib.error.HTTPError as error:
        error.close()
        raise
