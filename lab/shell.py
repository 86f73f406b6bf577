"""Run other programs. A failure is one sentence with the last line of the program's output."""

import contextlib
import os
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from lab.errors import LabError
from lab.patience import scaled

Argument = str | Path

_lock = threading.Lock()
_running: set[subprocess.Popen[bytes]] = set()
_cancelled = threading.Event()


def run(
    argv: Sequence[Argument],
    *,
    what: str,
    log: Path | None = None,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
) -> str:
    """Run `argv` to its end and return its standard output.

    `what` completes the sentence "could not ...". With `log`, both outputs go to that file and "" is returned.
    `env` is added to this process's environment; `timeout` is in seconds of a machine of usual speed. Raises LabError.
    """
    command = [str(argument) for argument in argv]
    limit = None if timeout is None else scaled(timeout)
    with contextlib.ExitStack() as files:
        if log is None:
            out, err = (files.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        else:
            log.parent.mkdir(parents=True, exist_ok=True)
            out = err = files.enter_context(log.open("wb+"))
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **(env or {})},
                cwd=cwd,
            )
        except FileNotFoundError as problem:
            raise LabError(f"could not {what}: there is no program `{command[0]}` on this machine") from problem
        _wait(process, stdin, limit, f"could not {what}: `{command[0]}` did not end within {limit or 0:g} s")
        output = _read(out)
        if process.returncode:
            words = last_words(_read(err) or output, process.returncode)
            raise LabError(f"could not {what}: {words}{f' (all of it: {log})' if log else ''}")
        return "" if log else output


def cancel() -> None:
    """End all programs that other threads are running here, and let them start no more."""
    _cancelled.set()
    with _lock:
        for process in _running:
            process.terminate()


def check_cancelled() -> None:
    """Raise LabError if the work was called off: for loops that wait and run no program."""
    if _cancelled.is_set():
        raise LabError("called off, because something else failed")


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _wait(process: subprocess.Popen[bytes], stdin: str | None, timeout: float | None, too_long: str) -> None:
    with _lock:
        _running.add(process)
        if _cancelled.is_set():
            process.terminate()
    try:
        process.communicate(None if stdin is None else stdin.encode(), timeout)
    except subprocess.TimeoutExpired as problem:
        raise LabError(too_long) from problem
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        with _lock:
            _running.discard(process)


def last_words(output: str, code: int) -> str:
    """Return the line of a failed program's output that most likely says why."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("command terminated with")] or lines  # kubectl's own
    telling = [line for line in lines if line.lower().startswith(("error", "e:", "fatal", "panic:"))]
    chosen = (telling or lines)[-1:] or [f"it ended with code {code} and said nothing"]
    return chosen[0][:600]
