"""What the lab says when it cannot go on."""


class LabError(Exception):
    """One sentence for people: what is wrong, where, and what to do about it."""


class NothingToHitError(LabError):
    """What a fault is about is not there now: a container between two lives, a process that has just ended."""
