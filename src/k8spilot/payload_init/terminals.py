"""Terminals by whose end a pilot that is not root can end payload-init (payload-init.c, take_leash).

The kernel makes so many pseudo-terminals for all containers of a node together (kernel.pty.max), and anybody can take
all that are left. So the pilot opens its own before any job comes, and keeps them from one container to the next.
"""

import errno
import logging
import os
from collections import deque
from typing import Final

from k8spilot.common.errors import Shortage

logger = logging.getLogger(__name__)

_COUNT: Final = 2
"""How many are kept: at a change of image, two containers overlap."""


class Terminal:
    """One, with both of its sides open. Nobody reads it or writes to it."""

    def __init__(self, home: "Terminals") -> None:
        self._home = home
        self._master, self.slave = os.openpty()

    def give_back(self) -> None:
        """Let another container have it: the process that had it has ended, which hangs up no pty (tty_jobctrl.c)."""
        self._home.keep(self)

    def hang_up(self) -> None:
        """End the process that leads its session, by SIGHUP and SIGCONT. The terminal is spent."""
        self.close()
        self._home.replace_one()

    def close(self) -> None:
        """Close both sides."""
        os.close(self._master)
        os.close(self.slave)


class Terminals:
    """A pilot's terminals."""

    def __init__(self) -> None:
        self._free: deque[Terminal] = deque()
        self._kept = 0
        """How many are to be free at most."""

    def open(self) -> None:
        """Open them, before any job comes. What the node has not now is opened when it is needed."""
        self._kept = _COUNT
        try:
            while len(self._free) < self._kept:
                self._free.append(self._opened())
        except Shortage as error:
            logger.warning("%s.", error)

    def close(self) -> None:
        """Close those that no container has, and from now on those that come back."""
        self._kept = 0
        while self._free:
            self._free.popleft().close()

    def take(self) -> Terminal:
        """One that no container has. Whoever takes it gives it back, or hangs it up.

        Raises:
            Shortage: there is none, and none can be opened.
        """
        return self._free.popleft() if self._free else self._opened()

    def keep(self, terminal: Terminal) -> None:
        """Take one back."""
        if len(self._free) < self._kept:
            self._free.append(terminal)
        else:
            terminal.close()

    def replace_one(self) -> None:
        """Open another for one that is spent, before somebody else takes what that has set free."""
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
                f"no pseudo-terminal, by which payload-init is ended, can be opened in the pilot: {why}; look at "
                "/proc/sys/kernel/pty/nr on the node, and for who has them"
            ) from error
