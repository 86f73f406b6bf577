"""The engine process, between HTCondor and the payload container.

Entry point: `python -m k8spilot.engine`. app.py is the composition root: it creates every part, starts every task;
components.py builds the parts that take more than a line. memory.py keeps the process small. May import every package
but cli and preflight.
"""
