"""A dict with a limited number of keys, for data whose amount an untrusted party controls.

functools.lru_cache limits the results of a function, which cannot be listed or set. A package for these few lines would
be one more in the pilot's image.
"""

from collections import OrderedDict


class LruDict[Key, Value](OrderedDict[Key, Value]):
    """A dict limited to its N most recently set keys, in that order."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count
        """Maximum number of keys."""

    def __setitem__(self, key: Key, value: Value) -> None:
        """Set a key as the latest one. Remove the oldest if there are too many."""
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._count:
            self.popitem(last=False)
