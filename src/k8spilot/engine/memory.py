"""Reduction of the engine's memory: parts of its libraries that the engine does not use are not loaded.

At its import aiohttp reads the system's certificate authorities, for connections that the engine does not make (the API
server has an authority of its own), and frozenlist loads the C++ library: 4 MiB of every pilot. shutil loads three
libraries for archives: half a MiB.
"""

import os
import sys
from types import ModuleType
from typing import Final, cast

MEMORY: Final = {"MALLOC_MMAP_THRESHOLD_": str(128 * 1024)}
"""Variables of glibc's malloc (mallopt(3)) for the engine's process: defaults that the operator can override.

asyncio has a buffer of 256 KiB for each TLS connection. After the first such buffer is freed, glibc would take all
later ones from the heap. Buffers of connections to an API server that fails repeatedly leave holes there: 4 MiB.
"""

_MEANWHILE: Final = {"SSL_CERT_FILE": os.devnull, "FROZENLIST_NO_EXTENSIONS": "1"}
"""Variables of OpenSSL and frozenlist. The engine's children get the original values: skopeo needs the authorities."""
_WITHOUT: Final = ("bz2", "lzma", "compression.zstd")
"""Modules that the libraries do not need."""


def imported() -> ModuleType:
    """Import the composition root, k8spilot.engine.app, without unnecessary modules."""
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
