"""Images that end the container runtime of the node, for all pods of it.

They are found by their configurations before they are bound: every attempt of the kubelet would end the runtime again.
"""

from typing import Final

from k8spilot.model.image import Image

_CRIO: Final = "cri-o"
"""Name of CRI-O in containers' ids."""


def runtime_fault(image: Image, runtime: str) -> str | None:
    """Return how an image ends the container runtime of this name; None if it does not.

    CRI-O takes what follows the first `=` of each entry of the image's environment, and ends where an entry has none
    (1.36.3, setupContainerEnvironmentAndWorkdir in server/container_create.go). Docker and containerd accept it.
    """
    if runtime != _CRIO:
        return None
    alone = next((entry for entry in image.environment if "=" not in entry), None)
    if alone is None:
        return None
    return (
        f"image {image.reference} cannot run on this node, because its environment has the entry {alone[:100]!r} "
        "without a value, at which CRI-O ends; give the variable a value in the image"
    )
