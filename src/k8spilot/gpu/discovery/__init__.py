"""Finds the GPUs of the payload container, once in the life of a pod.

probe.py is a program that runs in the payload container, and prints evidence (evidence.py, nvidia.py). pod_request.py
reads what the pod asked for. verdict.py decides from both what jobs may use; record.py keeps it.
"""
