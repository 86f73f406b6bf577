"""Removal of a job's leftovers before the next job begins.

Enter by `ScrubRunner` in scrubber.py, which closes the slot if its `Scrubber` fails. Root scrubs from the pilot
container (from_pilot.py); without root, the jobs' own user scrubs in the payload container (from_payload.py). This
package may import payload/command and listeners.py, and payload_init and below.
"""
