"""The leash of payload-init: a terminal whose end kills it, for a pilot that may not signal it (payload-init.c)."""

import asyncio
import signal

from k8spilot.common.aio import is_set, set_once
from k8spilot.payload_init.terminals import Terminal


class Leash:
    """The leash of one payload-init.

    A terminal is offered and then accepted or refused. A refused one is given back, and another may be offered. It is
    given back at the end of payload-init, too, unless it was hung up to kill payload-init.
    """

    def __init__(self) -> None:
        self.answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """payload-init's answer to the last offer: an errno, or 0 if it has accepted the terminal. Cancelled when its
        connection is closed without one."""
        self._terminal: Terminal | None = None
        """The terminal that was offered last; None if it was refused, given back or hung up."""

    @property
    def is_offered(self) -> bool:
        """Whether a terminal was offered, and neither refused nor returned since."""
        return self._terminal is not None

    @property
    def is_attached(self) -> bool:
        """Whether the end of the terminal kills payload-init."""
        return self._terminal is not None and is_set(self.answer)

    @property
    def deadly_signals(self) -> tuple[int, ...]:
        """Signals that end payload-init: with a leash it does not block SIGHUP, which a job may send as well."""
        was_attached = is_set(self.answer) and self.answer.result() == 0
        return (signal.SIGKILL, signal.SIGHUP) if was_attached else (signal.SIGKILL,)

    def offer(self, terminal: Terminal) -> None:
        """Expect an answer about `terminal`. No other one is on offer: an answer does not say which one it is about."""
        assert self._terminal is None
        self.answer = asyncio.get_running_loop().create_future()
        self._terminal = terminal

    def handle(self, error: int) -> bool:
        """Handle payload-init's answer. Return whether it is valid now."""
        is_valid = self._terminal is not None and set_once(self.answer, error)
        if is_valid and error:
            self.give_back()
        return is_valid

    def cancel(self) -> None:
        """Expect no answer any more: the connection is closed."""
        self.answer.cancel()

    def give_back(self) -> None:
        """Return the terminal for another container: no process has it as its own."""
        if (terminal := self._take_off()) is not None:
            terminal.give_back()

    def hang_up(self) -> bool:
        """Kill the payload-init that has accepted the terminal. Return whether there was a terminal."""
        if (terminal := self._take_off()) is not None:
            terminal.hang_up()
        return terminal is not None

    def _take_off(self) -> Terminal | None:
        terminal, self._terminal = self._terminal, None
        return terminal
