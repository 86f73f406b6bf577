"""The first process of the pilot container: starts the engine and HTCondor, and starts the engine again when it dies.

supervisor.py is run as a file, without site-packages, to be small. So it imports nothing of k8spilot; others import the
names of its exit statuses, signals and variables from it.
"""
