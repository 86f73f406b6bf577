"""What is remembered of others, who choose how much there is: the latest, so many of it."""

from collections import OrderedDict
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class LruDict(OrderedDict[Key, Value]):
    """A dict of the keys that were set last, in that order."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count
        """So many there may be."""

    def __setitem__(self, key: Key, value: Value) -> None:
        """Set it anew: it is the last one now, and the first one goes if there are too many."""
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._count:
            self.popitem(last=False)
