"""States of the connection to the GPU sampler, as one table, and what is remembered of it; pure.

At most one sampler is connected at a time. It may belong to an earlier container than the latest: the kubelet can start
a container with a delay. So these states are not those of a container, whose end is a `ContainerEnd`.

    AWAY --accept--> MEASURING --faults--> FAULTY       MEASURING and FAULTY --disconnect--> AWAY
                         ^                    |
                         '----- figures ------'
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from k8spilot.model.state_table import next_state


class SamplerState(Enum):
    """The state of the connection to the sampler."""

    AWAY = "away"
    """No sampler is connected that sees all GPUs of the pod."""
    MEASURING = "measuring"
    """The sampler sends figures of the GPUs."""
    FAULTY = "faulty"
    """The sampler reports faults only: of the driver, or of all GPUs."""


class SamplerEvent(Enum):
    """An event of the connection to the sampler."""

    ACCEPT = "accept"
    """A sampler has connected that sees all GPUs of the pod."""
    FIGURES = "figures"
    """A message has figures of a GPU."""
    FAULTS = "faults"
    """A message has no figures, only faults."""
    DISCONNECT = "disconnect"


TRANSITIONS: Final[dict[SamplerState, dict[SamplerEvent, SamplerState]]] = {
    SamplerState.AWAY: {SamplerEvent.ACCEPT: SamplerState.MEASURING},
    SamplerState.MEASURING: {
        SamplerEvent.FIGURES: SamplerState.MEASURING,
        SamplerEvent.FAULTS: SamplerState.FAULTY,
        SamplerEvent.DISCONNECT: SamplerState.AWAY,
    },
    SamplerState.FAULTY: {
        SamplerEvent.FIGURES: SamplerState.MEASURING,
        SamplerEvent.FAULTS: SamplerState.FAULTY,
        SamplerEvent.DISCONNECT: SamplerState.AWAY,
    },
}


class Sampler:
    """The state of the connection to the sampler, its time, and the latest reason why GPUs are not measured."""

    def __init__(self) -> None:
        self.state = SamplerState.AWAY
        self.fault = ""
        """Why the latest sampler was rejected or had to end; empty without a reason."""
        self._since = 0.0

    @property
    def is_connected(self) -> bool:
        """Whether a sampler is connected that sees all GPUs of the pod."""
        return self.state is not SamplerState.AWAY

    def handle(self, event: SamplerEvent, now: float) -> bool:
        """Change the state at the time `now` (monotonic seconds). Return whether it is another one.

        Raises:
            IllegalEvent: the table has no row for the event.
        """
        state = next_state(TRANSITIONS, self.state, event, "a GPU sampler")
        is_new = state is not self.state
        if is_new:
            self.state, self._since = state, now
        return is_new

    def faulty_seconds(self, now: float) -> float:
        """Return for how long the sampler has reported faults only; 0 if it has not."""
        return now - self._since if self.state is SamplerState.FAULTY else 0.0

    def take_fault(self) -> str:
        """Return the fault, and forget it: the next container begins without one."""
        fault, self.fault = self.fault, ""
        return fault


@dataclass(frozen=True, slots=True)
class ContainerEnd:
    """Why a GPU metrics container no longer measures."""

    reason: str
    """A clause."""
    has_started: bool = True
    """Whether the container has run. If it has not, its configuration cannot work."""
