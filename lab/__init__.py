"""The test bed of k8spilot: one real Kubernetes node, a registry and an HTCondor pool on one machine."""

from lab.api import Lab
from lab.errors import LabError

__all__ = ["Lab", "LabError"]
