"""Record of the pool's view of the slot: Events, and the state for readiness, status and metrics."""

import logging
from datetime import UTC, datetime
from typing import Any

from k8spilot.common.logs import capitalized
from k8spilot.model.pool_state import PoolState
from k8spilot.telemetry.event_recorder import EventRecorder

logger = logging.getLogger(__name__)


class PoolRecorder:
    """Receives the reports of the watch (condor/daemons/pool_watch.py)."""

    def __init__(self, event_recorder: EventRecorder) -> None:
        self._event_recorder = event_recorder
        self._reported: tuple[bool, str] | None = None
        """State and problem of the last Event."""
        self._is_fit = False
        self.state: PoolState | None = None
        """Last report; None while no HTCondor has reported."""

    def handle(self, text: str) -> None:
        """Handle a report: a state as JSON, or an empty text when HTCondor's container has gone."""
        if not text:
            self.state = None
            return
        try:
            self.state = state = PoolState.of(text)
        except (ValueError, TypeError):
            logger.warning("An invalid report about the pool is ignored: %.80r", text)
            return
        current = state.in_pool, state.problem
        if current == self._reported or not (state.in_pool or state.problem):
            return
        self._reported = current
        if state.in_pool and not self._is_fit:
            self._is_fit = True
            self._event_recorder.record("Fit", "All preflight checks passed, and the pool has the slot.", always=True)
        sentence = f"{capitalized(state.sentence)}."
        self._event_recorder.record("InPool" if state.in_pool else "NotInPool", sentence, always=True)

    @property
    def problem(self) -> str:
        """Return why the slot is not in the pool, a sentence; empty if it is."""
        if self.state is None:
            return "HTCondor has not joined the pool yet"
        return "" if self.state.in_pool else self.state.sentence

    def json(self) -> dict[str, Any] | None:
        """Return the state for the status."""
        if (state := self.state) is None:
            return None
        return {
            "in_pool": state.in_pool,
            "slot": state.slot,
            "collector": state.collector,
            "since": _text(state.since),
            "last_update": None if state.updated is None else _text(state.updated),
            "problem": state.problem,
        }


def _text(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")
