"""The supervisor: the first process of the pilot container, which starts the engine and HTCondor.

supervisor.c is the program. plan.py has its plan, and the exit statuses, signals and descriptors that other packages
share with it. predecessor.py ends what an earlier container has left.
"""
