"""The engine process, between HTCondor and the payload container.

Entry point: `python -m k8spilot.engine`. app.py is the composition root: it creates every part, and starts every task.
startup.py prepares the first job, components.py builds the parts, and condor_work.py handles HTCondor.
memory.py keeps the process small. May import every package but cli and preflight.
"""
