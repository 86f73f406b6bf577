"""Simulated GPUs: a libnvidia-ml.so.1 of the lab's own, and the ways in which GPUs come into containers."""
