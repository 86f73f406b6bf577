"""HTCondor execution points in Kubernetes pods, each job in a sibling container with its own image."""

__version__ = "0.1.0.dev0"
