"""The supervisor: the first process of the pilot container, which starts the engine and HTCondor.

supervisor.py runs as a file, without site-packages, to be small. It imports nothing of k8spilot. Other packages import
its exit statuses, signals and variables.
"""
