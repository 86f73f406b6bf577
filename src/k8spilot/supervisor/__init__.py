"""The supervisor: the first process of the pilot container, which starts the engine and HTCondor.

It is a program in C (supervisor.c). plan.py has what `k8spilot run` tells it, and the numbers by which other packages
speak with it.
"""
