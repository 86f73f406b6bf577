"""Removal of a job's leftovers before the next job begins.

Entry point: `Scrubbing` in scrubber.py, which closes the slot until its `Scrubber` is done. Root scrubs from the pilot
container (from_pilot.py); without root, the jobs' own user scrubs in the payload container (from_payload.py). This
package may import payload_init and below.
"""
