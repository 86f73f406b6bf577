"""The commands of `k8spilot`.

Enter by main.py, which defines all commands. run.py is `k8spilot run`, status.py is `k8spilot status`, and slots.py is
`k8spilot slots`, which gives a pod several payload containers. main.py imports each module on demand, so that a command
loads only its own code. This package may import every package.
"""
