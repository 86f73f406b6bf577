"""The engine process, between HTCondor and the payload container.

Enter by `python -m k8spilot.engine`. app.py is the composition root: it has every part made, and starts every task.
startup.py does what precedes the first job, components.py builds the parts, and condor_work.py looks after HTCondor.
memory.py keeps the process small. May import every package but cli and preflight.
"""
