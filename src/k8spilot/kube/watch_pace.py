"""The pauses between watches of one pod; pure but for the jitter.

An API server that was lost by all pilots at once must not be flooded when it returns. A pilot that waits for the result
of a change has to be back soon nevertheless.
"""

from http import HTTPStatus
from typing import Final

from k8spilot.kube.backoff import BackOff
from k8spilot.kube.client import ApiRefusal

_BACK_OFF_SECONDS: Final = (1.0, 30.0)
_STEADY_SECONDS: Final = 30.0
"""Seconds after which a watch was successful: if the server ended it, the next one starts at once."""
NEED_SECONDS: Final = 60.0
"""Seconds after a change in which its outcome matters, so that a lost watch restarts soon."""


class WatchPace:
    """The pause after each watch.

    | The watch ended                                     | Pause                                          |
    |-----------------------------------------------------|------------------------------------------------|
    | by itself, after a while                            | none                                           |
    | because its version has expired, for the first time | a short one: the server is available           |
    | or after a steady watch                             |                                                |
    | after a steady watch, while no change is under way  | a random one, so that pilots return one by one |
    | in another way                                      | a growing one                                  |

    The last three are longer by the server's Retry-After.
    """

    def __init__(self) -> None:
        self._back_off = BackOff(*_BACK_OFF_SECONDS)
        self._has_expired = False
        """Whether the last watch ended because its version had expired."""
        self._was_steady = False
        """Whether a watch was successful since the last pause."""

    def pause(self, fault: Exception | None, *, lasted: float, since_change: float) -> float:
        """Return the seconds until the next watch; 0 if it starts at once.

        Args:
            fault: why the watch ended; None if the server ended it.
            lasted: duration of the watch, in seconds.
            since_change: seconds since the last request for a change.
        """
        # A server that has just started remembers nothing, but is available again.
        expired_again, self._has_expired = self._has_expired, is_expired(fault)
        is_long = lasted >= _STEADY_SECONDS
        self._was_steady = self._was_steady or is_long
        if is_long or (self._has_expired and not expired_again):
            self._back_off.reset()
        if is_long and fault is None:
            return 0.0
        was_steady, self._was_steady = self._was_steady, False
        # A server's end ends the watches of all pilots, which must return one after another.
        if was_steady and not self._has_expired and since_change >= NEED_SECONDS:
            return self._back_off.spread(fault)
        return self._back_off.delay(fault)


def is_expired(fault: Exception | None) -> bool:
    """Return whether the server no longer knows the resource version of the watch."""
    return isinstance(fault, ApiRefusal) and fault.status == HTTPStatus.GONE
