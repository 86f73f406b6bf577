"""Keeps the engine's process small: what its libraries would load, and nobody here uses, stays out.

aiohttp reads the system's certificate authorities when it is imported, for connections that nobody makes here (the API
server has an authority of its own), and frozenlist brings the C++ library: 4 MiB of every pilot. shutil brings three
libraries for archives: half a MiB.
"""

import os
import sys
from types import ModuleType
from typing import Final, cast

MEMORY: Final = {"MALLOC_MMAP_THRESHOLD_": str(128 * 1024)}
"""Variables of glibc's malloc (mallopt(3)) for the engine's process: a default, which stays what it is if it is set.

asyncio has a buffer of 256 KiB for each TLS connection. The first that is freed would make glibc take all later ones
from the heap, where those that come and go with an API server that is away leave holes: 4 MiB.
"""

_MEANWHILE: Final = {"SSL_CERT_FILE": os.devnull, "FROZENLIST_NO_EXTENSIONS": "1"}
"""Variables of OpenSSL and frozenlist. What the engine starts gets them as they were: skopeo needs the authorities."""
_WITHOUT: Final = ("bz2", "lzma", "compression.zstd")
"""Modules that the libraries can do without."""


def imported() -> ModuleType:
    """Import the composition root, k8spilot.engine.app, without what its libraries do not need."""
    before = {name: os.environ.get(name) for name in _MEANWHILE}
    os.environ.update(_MEANWHILE)
    left_out = [name for name in _WITHOUT if name not in sys.modules]
    # None makes an import fail (https://docs.python.org/3/reference/import.html, "The module cache").
    sys.modules.update(dict.fromkeys(left_out, cast("ModuleType", None)))
    from k8spilot.engine import app  # noqa: PLC0415

    for name in left_out:
        del sys.modules[name]
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
    return app
