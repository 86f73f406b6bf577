"""Terminals whose end kills payload-init, for a pilot that is not root (payload-init.c, take_leash).

The kernel limits the pseudo-terminals of all containers of a node together (kernel.pty.max), and a process can take all
of them. So the pilot opens its own before any job, and reuses them for later containers.
"""

import errno
import logging
import os
from collections import deque
from typing import Final

from k8spilot.common.errors import Shortage

logger = logging.getLogger(__name__)

_COUNT: Final = 2
"""Number of kept terminals: two containers overlap at a change of image."""


class Terminal:
    """A terminal with both of its sides open. No process reads it or writes to it."""

    def __init__(self, home: "Terminals") -> None:
        self._home = home
        self._master, self.slave = os.openpty()

    def give_back(self) -> None:
        """Return the terminal for another container. Its process has ended, which hangs up no pty (tty_jobctrl.c)."""
        self._home.keep(self)

    def hang_up(self) -> None:
        """Kill the leader of its session, by SIGHUP and SIGCONT. The terminal cannot be used again."""
        self.close()
        self._home.replace_one()

    def close(self) -> None:
        """Close both sides."""
        os.close(self._master)
        os.close(self.slave)


class Terminals:
    """The terminals of a pilot."""

    def __init__(self) -> None:
        self._free: deque[Terminal] = deque()
        self._kept = 0
        """Number of free terminals to keep."""

    def open(self) -> None:
        """Open the terminals before any job. Missing ones are opened on demand."""
        self._kept = _COUNT
        try:
            while len(self._free) < self._kept:
                self._free.append(self._opened())
        except Shortage as error:
            logger.warning("%s.", error)

    def close(self) -> None:
        """Close the free terminals, and later the returned ones."""
        self._kept = 0
        while self._free:
            self._free.popleft().close()

    def take(self) -> Terminal:
        """Return a free terminal. The caller returns it or hangs it up.

        Raises:
            Shortage: there is none, and none can be opened.
        """
        return self._free.popleft() if self._free else self._opened()

    def keep(self, terminal: Terminal) -> None:
        """Accept a returned terminal."""
        if len(self._free) < self._kept:
            self._free.append(terminal)
        else:
            terminal.close()

    def replace_one(self) -> None:
        """Open a terminal in place of a used one, before another process takes the freed number."""
        if len(self._free) < self._kept:
            try:
                self._free.append(self._opened())
            except Shortage as error:
                logger.warning("%s.", error)

    def _opened(self) -> Terminal:
        try:
            return Terminal(self)
        except OSError as error:
            why = "all of the node's are taken (kernel.pty.max)" if error.errno == errno.ENOSPC else error.strerror
            raise Shortage(
                f"the pilot cannot open a pseudo-terminal, which it needs to kill payload-init: {why}; look at "
                "/proc/sys/kernel/pty/nr on the node, and find the processes that have them"
            ) from error
