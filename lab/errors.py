"""The lab's errors."""


class LabError(Exception):
    """One sentence for people: what is wrong, where, and what to do about it."""


class NothingToHitError(LabError):
    """The object of a fault does not exist now: a container that is being restarted, a process that has just ended."""
