"""The engine process, between HTCondor and the payload containers.

Enter by app.py, the composition root; `python -m k8spilot.engine` runs it. Long-lived tasks are started there, by
components.py, which creates the parts, by condor_work.py, which handles HTCondor, and by telemetry/service.py.
startup.py prepares the first job, and memory.py keeps the process small. This package may import telemetry and below.
"""
