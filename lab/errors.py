"""What the lab says when it cannot go on."""


class LabError(Exception):
    """One sentence for people: what is wrong, where, and what to do about it."""
