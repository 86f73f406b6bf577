"""The reason why a pilot ends, for its last line, its termination message and an Event.

HTCondor's log has the reasons of HTCondor. A client of a daemon's port, such as a job, could forge a line there. So a
reason of the log counts only for some minutes, and only for an end that really comes; and what Kubernetes, the settings
or the supervisor know has priority (supervisor/supervisor.c). The supervisor reads the file, because it logs last.
"""

import logging
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from k8spilot.common.files import write
from k8spilot.common.logs import one_line
from k8spilot.condor.daemons.log_lines import LogLine
from k8spilot.model.pool_state import LOG as POOL_LOG
from k8spilot.model.pool_state import PoolState
from k8spilot.supervisor.plan import REASON_SECONDS

logger = logging.getLogger(__name__)

_WORDS: Final = 1000

_IDLE: Final = re.compile(r"No resources have been claimed for (\d+) seconds")
"""Startd's log line (ResMgr.cpp, check_use)."""
_SHUTDOWN: Final = re.compile(r'The DaemonShutdown expression ".*" evaluated to TRUE: starting graceful shutdown')
"""Log line of the startd or the master (daemon_core.cpp, evalExpr)."""
_DRAIN: Final = re.compile(r"Processing drain request from (?:\w+ )?(?:on |at )?<([^<>\s?]+):\d+[?>].*")
_DRAIN_REASON: Final = re.compile(r'DrainReason = "([^"\\]{0,200})"')
_DRAINED: Final = "As specified in draining request, exiting after completion of draining."
_SIGTERM: Final = re.compile(r"Got SIGTERM\. Performing \w+ shutdown\.|Got SIGQUIT\. +Performing fast shutdown\.")
"""Log line of the master (daemon_core_main.cpp). The startd sends it that signal, too, when it has been idle."""
_OFF: Final = re.compile(r"The STARTD \(pid \d+\) exited with status (?:0|99)\b.*")
_CLAIMED: Final = re.compile(r"slot\d+(?:_\d+)?: Changing state(?: and activity)?: .* -> Claimed(?:/\w+)?")


class EndReason:
    """The latest reason."""

    def __init__(self, file: Path | None, idle_minutes: float) -> None:
        self._file = file
        """File for the supervisor; None in the container of the engine."""
        self._idle = f"idle for {idle_minutes:g} min (ACCEPT_IDLE_MINUTES)"
        self._idle_seconds = round(idle_minutes * 60)
        self._words = ""
        self._at = 0.0
        self._certain = False
        self._drain = ""
        """Client that drains the slot, and its reason."""
        self._outside = ""
        """Why the slot was never in the pool; empty if it was, or if that is not known."""
        self._got_sigterm = False
        """Whether the master has received SIGTERM or SIGQUIT."""

    @property
    def text(self) -> str:
        """Return the reason, a phrase; empty if it is not known."""
        return self._words if self._certain or time.monotonic() - self._at < REASON_SECONDS else ""

    def handle_line(self, log: str, line: LogLine) -> None:
        """Note what a line of HTCondor's log, or a report about the pool, says about the end."""
        message = line.message
        if log == POOL_LOG:
            self._handle_pool(message)
        elif log == "StartLog":
            if (match := _IDLE.fullmatch(message)) and int(match[1]) == self._idle_seconds:
                self._hint(self._idle)
            elif _SHUTDOWN.fullmatch(message):
                self._hint("its time to take jobs is over, and it has none (ACCEPT_JOBS_FOR_HOURS)")
            elif match := _DRAIN.fullmatch(message):
                self._drain = f"drained by a tool at {match[1]}"
            elif (match := _DRAIN_REASON.fullmatch(message)) and self._drain:
                self._drain = f"{self._drain.partition(' (')[0]} ({one_line(match[1])})"
            elif message == _DRAINED:
                self._hint(self._drain or "drained")
            elif _CLAIMED.fullmatch(message):
                self._forget()
        elif log == "MasterLog":
            self._handle_masters(message)

    def _handle_pool(self, text: str) -> None:
        with suppress(ValueError, TypeError):
            state = PoolState.of(text)
            self._outside = "" if state.ever else state.problem

    def _handle_masters(self, message: str) -> None:
        if _SHUTDOWN.fullmatch(message):
            self._hint("its time is over (RETIREMENT_HOURS, GLIDEIN_Max_Walltime)")
        elif _SIGTERM.fullmatch(message):
            self._got_sigterm = True
            if not self.text:
                self._hint("HTCondor was told to end (SIGTERM)")
        elif _OFF.fullmatch(message) and not self.text and not self._got_sigterm:
            self._hint("HTCondor's startd was turned off (condor_off)")

    def set(self, words: str, status: int = 0) -> None:
        """Set a reason that is certain. A later line of the log does not replace it."""
        self._certain = True
        self._note(words, status)

    def _hint(self, words: str) -> None:
        """Note a reason of the log. A pilot whose pool never took the slot has not ended well."""
        if not self._certain:
            outside = f"; the slot was never in the pool: {self._outside}" if self._outside else ""
            self._note(f"{words}{outside}", 1 if self._outside else 0)

    def _forget(self) -> None:
        """Drop a reason of the log: the slot has a new claim."""
        if not self._certain and self._words:
            self._note("", 0)

    def _note(self, words: str, status: int) -> None:
        self._words, self._at = one_line(words)[:_WORDS], time.monotonic()
        if self._file is None:
            return
        try:
            write(self._file, f"{status} {int(self._certain)} {self._words}", 0o644)
        except OSError as error:
            logger.warning("The reason of the pilot's end cannot be written (%s).", error)
