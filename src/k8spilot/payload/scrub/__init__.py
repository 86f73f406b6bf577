"""Removal of a job's leftovers before the next job begins.

Entry point: `Scrubbing`, which closes the slot until its `Scrubber` is done. Root scrubs from the pilot container;
without root, the jobs' own user scrubs in the payload container.
"""
