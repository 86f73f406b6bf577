"""What an operator sees of a pilot: metrics, probes, Events, and its status.

Enter by service.py, which connects and serves them all. slot_recorder.py receives what happens to the slot;
event_recorder.py limits how many Events that makes. May import docker and below.
"""
