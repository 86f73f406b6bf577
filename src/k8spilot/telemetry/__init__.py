"""Telemetry for operators: metrics, probes, Events, and the status of a pilot.

Enter by service.py, which connects and serves them all. slot_recorder.py records the events of the slot;
event_recorder.py limits the number of Kubernetes Events. This package may import docker and below.
"""
