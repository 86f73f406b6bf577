"""HTCondor execution points in Kubernetes pods, each job in a sibling container with its own image."""

from importlib.metadata import version

__version__ = version("k8spilot")
