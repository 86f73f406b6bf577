"""Removes what one job leaves before the next one begins.

Enter by `Scrubbing`, which closes the slot until its `Scrubber` is done. Root scrubs from the pilot container; where
nobody is root, the jobs' own user scrubs from inside the payload container.
"""
