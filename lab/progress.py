"""Progress of long steps: live on a terminal, otherwise one line for each start and end."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

QUIET_BELOW = 0.5
"""Seconds. Shorter steps print no line."""

ANNOUNCED_FROM = 3.0
"""Seconds. Without a terminal, the start of a step that took this long last time is printed, too."""


class Progress:
    """The running steps, with the time that each took last time. Several threads may run steps at once.

    Everything goes to standard error, so that standard output stays free for answers.
    """

    def __init__(self, memory: Path) -> None:
        """`memory` is the JSON file that keeps the seconds of each step from one run to the next."""
        self._memory = memory
        self._console = Console(stderr=True, highlight=False)
        self._lock = threading.Lock()
        self._running: dict[str, float] = {}
        self._before = self._recall()
        self._live = Live(console=self._console, get_renderable=self._picture, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        """Begin to draw, where there is a terminal."""
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop drawing."""
        if self._console.is_terminal:
            self._live.stop()

    @contextmanager
    def step(self, title: str, *, remember: bool = True) -> Iterator[None]:
        """Show `title` while the body runs; `remember` its time unless it ends with an error."""
        started = time.monotonic()
        with self._lock:
            self._running[title] = started
        last = self._before.get(title)
        if not self._console.is_terminal and (last is None or last >= ANNOUNCED_FROM):
            self.say(f"  … {title}{f' (took {clock(last)} last time)' if last else ''}")
        try:
            yield
        except BaseException:
            self.say(f"  ✗ {title} ({clock(time.monotonic() - started)})")
            raise
        finally:
            with self._lock:
                del self._running[title]
        took = time.monotonic() - started
        if took >= QUIET_BELOW:
            self.say(f"  ✓ {title} ({clock(took)})")
        if remember:
            self._store(title, took)

    def say(self, line: str) -> None:
        """Print one line for people."""
        self._console.print(Text(line))

    def _picture(self) -> Table:
        table = Table.grid(padding=(0, 1))
        now = time.monotonic()
        with self._lock:
            running = dict(self._running)
        for title, started in running.items():
            last = self._before.get(title)
            hint = f"(took {clock(last)} last time)" if last else ""
            table.add_row("  ⏳", title, clock(now - started), Text(hint, style="dim"))
        return table

    def _recall(self) -> dict[str, float]:
        try:
            stored = json.loads(self._memory.read_text())
        except (OSError, ValueError):
            return {}
        return {str(title): float(seconds) for title, seconds in stored.items()}

    def _store(self, title: str, seconds: float) -> None:
        with self._lock:
            self._before[title] = round(seconds, 2)
            text = json.dumps(self._before, indent=1, sort_keys=True)
            try:
                self._memory.parent.mkdir(parents=True, exist_ok=True)
                fresh = self._memory.with_suffix(".new")
                fresh.write_text(text)
                fresh.replace(self._memory)
            except OSError:
                return  # the time is only a hint for the next run


def clock(seconds: float) -> str:
    """Return `seconds` as people read it: 0.8 s, 12 s, 4:36 min."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d} min"
