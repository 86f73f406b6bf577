"""The engine process, between HTCondor and the payload container.

Entry point: `python -m k8spilot.engine`. app.py is the composition root: it starts every task.
components.py creates the parts, startup.py prepares the first job, and condor_work.py handles HTCondor.
memory.py keeps the process small. May import every package but cli and preflight.
"""
