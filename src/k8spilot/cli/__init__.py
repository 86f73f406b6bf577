"""The commands of `k8spilot`.

Enter by main.py, which has all commands. run.py is `k8spilot run`, and status.py is `k8spilot status`; main.py imports
each only when it is wanted, so that a command loads what it needs and no more. May import every package.
"""
