"""A ledger of running jobs. The jobs report by HTTP, so it shows one that runs twice even if HTCondor does not know."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from lab.settings import NODE_ADDRESS


@dataclass
class Life:
    """A run of a job's script."""

    job: str
    began: float
    """Time of its first report (time.monotonic), like all times here."""
    last: float
    """Time of its last report."""


class Ledger:
    """All runs, by the identifier that each makes for itself."""

    def __init__(self) -> None:
        self.lives: dict[str, Life] = {}
        self.port = 0
        self._lock = threading.Lock()

    def hear(self, job: str, run: str) -> None:
        """Record that run `run` of `job` is alive."""
        now = time.monotonic()
        with self._lock:
            self.lives.setdefault(run, Life(job, now, now)).last = now


@contextmanager
def kept() -> Iterator[Ledger]:
    """Keep a ledger at http://NODE_ADDRESS:port/<job>/<run> for as long as the context lasts."""
    ledger = Ledger()

    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            words = self.path.strip("/").split("/")
            if len(words) == 2:
                ledger.hear(*words)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Write no log."""

    with ThreadingHTTPServer((NODE_ADDRESS, 0), Handler) as server:
        server.daemon_threads = True
        ledger.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, name="ledger", daemon=True)
        thread.start()
        try:
            yield ledger
        finally:
            server.shutdown()
            thread.join(10)
