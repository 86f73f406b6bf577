"""Deploy pilot pods from the project's own manifests, as a factory operator would: with an overlay."""

from pathlib import Path

from lab.api import Lab
from lab.settings import PILOT_NAMESPACE


def deploy(lab: Lab, name: str = "pilot") -> None:
    """Apply the manifests with the lab's overlay; the pod is called `name`."""
    overlay = write_overlay(lab, name)
    lab.kubectl("apply", "-k", str(overlay))


def delete(lab: Lab, name: str = "pilot") -> None:
    """Remove the pod `name`; the service account and its rights stay for others."""
    lab.kubectl("delete", "pod", name, "-n", PILOT_NAMESPACE, "--ignore-not-found", "--wait=true", timeout=700)


def write_overlay(lab: Lab, name: str) -> Path:
    raise NotImplementedError
