"""The commands of `k8spilot`.

Enter by main.py, which defines all commands. run.py is `k8spilot run`, and status.py is `k8spilot status`. main.py
imports each module on demand, so that a command loads only its own code. This package may import every package.
"""
