"""The lab's errors."""


class LabError(Exception):
    """Raised when something fails. Its text is one sentence: what is wrong, where, and what to do about it."""


class NothingToHitError(LabError):
    """Raised when the object of a fault does not exist now: a container that restarts, a process that has ended."""
