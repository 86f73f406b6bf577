"""The supervisor: the first process of the pilot container, which starts the engine and HTCondor.

Enter by plan.py: `k8spilot run` (cli/run.py) writes a plan, and becomes the program, supervisor.c. plan.py also has the
exit statuses, signals and descriptors that other packages share with it. predecessor.py ends what an earlier container
has left. This package may import common.
"""
