"""HTTP requests whose refusals are closed: an HTTPError is an open answer, and Python warns when nobody closes it."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from typing import Any


@contextmanager
def opened(request: str | urllib.request.Request, **options: Any) -> Iterator[HTTPResponse]:
    """Have the answer to a request; `options` are those of urlopen. Raises OSError, HTTPError among it."""
    try:
        with urllib.request.urlopen(request, **options) as answer:  # noqa: S310 -- the lab's own addresses
            yield answer
    except urllib.error.HTTPError as error:
        error.close()
        raise
