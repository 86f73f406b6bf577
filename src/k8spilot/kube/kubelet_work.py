"""The work of the kubelet for the own pod: changes of images that have no container yet.

The kubelet does one thing at a time for a pod (pod_workers.go). While it pulls an image for one container, it starts no
other container of the pod, and publishes no status of it: waits for the status have to last longer then.
"""

import time
from typing import Final

_LONG_SECONDS: Final = 5.0
"""Seconds that a change does not take without a pull."""
_LONGEST_SECONDS: Final = 600.0
"""Seconds of a pull for which jobs of other slots wait; then they go back to the queue."""


class KubeletWork:
    """Changes of images that the kubelet has not finished, by the name of the container."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}
        """Time of each change (monotonic seconds)."""

    def begin(self, name: str) -> None:
        """Note that a container is to change."""
        self._began.setdefault(name, time.monotonic())

    def end(self, name: str) -> None:
        """Note that the container has changed, or will not."""
        self._began.pop(name, None)

    def has_others(self, name: str) -> bool:
        """Return whether the kubelet works on another container."""
        return any(other != name for other in self._began)

    def delays(self, name: str) -> bool:
        """Return whether the kubelet works on another container for so long that a pull must be the reason.

        A pull that lasts for very long is no reason to wait: its registry may never end it.
        """
        durations = [time.monotonic() - began for other, began in self._began.items() if other != name]
        return any(_LONG_SECONDS <= seconds <= _LONGEST_SECONDS for seconds in durations)
