"""Image of the payload container between jobs: the pilot's own image."""

import uuid
from collections.abc import Callable
from typing import Any

from k8spilot.common.errors import ClusterError
from k8spilot.kube.pod import container
from k8spilot.model.reference import Reference
from k8spilot.settings import PILOT


class IdleImage:
    """Returns references to the pilot's own image that no container has used before.

    Args:
        pod: returns the own pod's last known JSON.
    """

    def __init__(self, pod: Callable[[], dict[str, Any]]) -> None:
        self._pod = pod
        self._digest: str | None = None

    def __call__(self) -> str:
        """Return a fresh reference.

        Raises:
            ClusterError: the pod has no pilot container.
        """
        view = container(self._pod(), PILOT)
        if view is None:
            raise ClusterError(f"the pod has no container {PILOT}; its manifest is not k8spilot's")
        # An id without a repository is the id of the image's configuration, by which nothing can be pulled. An image
        # has only that if it was loaded on the node by hand, or if the node has lost it.
        repository, _, digest = view.image_id.rpartition("@")
        if repository:
            self._digest = digest
        wanted = Reference.parse(view.wanted)
        known = self._digest or wanted.digest
        return view.wanted if known is None else wanted.fresh(known, uuid.uuid4().hex[:12])

    def is_bound_to(self, name: str) -> bool:
        """Return whether the container `name` is to run the pilot's own image, in any version of it."""
        pilot, other = container(self._pod(), PILOT), container(self._pod(), name)
        if pilot is None or other is None:
            return True  # nothing can be bound
        return Reference.parse(pilot.wanted).repository == Reference.parse(other.wanted).repository
