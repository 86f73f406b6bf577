"""State of one payload container. Only the table of model/payload_state.py changes it."""

import logging
from datetime import UTC, datetime

from k8spilot.model.payload_state import PayloadEvent, PayloadState, advance

logger = logging.getLogger(__name__)


class PayloadMachine:
    """A state, and the time of its last change."""

    def __init__(self, name: str) -> None:
        self.name = name
        """Name of the payload container."""
        self.state = PayloadState.IDLE
        self.since = datetime.now(UTC)

    def advance(self, event: PayloadEvent) -> None:
        """Move to the next state.

        Raises:
            IllegalEvent: the table has no such transition.
        """
        before, self.state = self.state, advance(self.state, event)
        self.since = datetime.now(UTC)
        logger.debug("Payload container %s: %s, %s -> %s.", self.name, event.value, before.value, self.state.value)
