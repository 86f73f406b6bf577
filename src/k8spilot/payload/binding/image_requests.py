"""Images that were requested from the kubelet, whose containers and messages may come late.

The kubelet restarts a container that ended by itself, and a container of an abandoned bind may be starting. No status
distinguishes two containers of one image. The kubelet ends an old container in its next pass.

Four classes have facts about a change, because these facts have different lifetimes:

- `ImageRequests.unacknowledged`: set by `add`. It is cleared when the previous payload-init ends by itself, or when the
  kubelet has a message about the change. It selects the reason of a bind that takes too long.
- `ImageRequests.may_come_late`: true for the images that were requested since a container was last replaced. A bind of
  such an image changes to the idle image first.
- `Binder.unfinished` (binder.py): the image of a change without a container, which outlives the bind. A bind sets it,
  and `assume_unfinished` at the engine's start. It ends when payload-init connects in a new container, or when the
  kubelet has a message about a later change to the idle image. `Binder.keeps` compares the last requested reference
  with the pod's.
- `AbandonedPull` (abandoned_pull.py): the wait for that end when no job needs the image of `Binder.unfinished`.
- `Bind.kept` and `Bind.confirmed` (bind.py): the container of one job, which the pod's status has shown.
"""

from collections import deque
from typing import Final

from k8spilot.payload_init.channel import Channel

_LATEST: Final = 8
"""Maximum number of requests that the pod's spec or status may still show."""
_SINCE: Final = 1000
"""Maximum number of remembered requests since a container was replaced."""


class ImageRequests:
    """Requests of one payload container, each a fresh reference, and possible late effects of earlier ones."""

    def __init__(self) -> None:
        self._latest: deque[str] = deque(maxlen=_LATEST)
        self._replaced: Channel | None = None
        """Connection of the container that a change of ours ended, or ends."""
        self._since: deque[str] = deque(maxlen=_SINCE)
        """Requests since that change: a container of each may be starting."""
        self.unacknowledged = False
        """Whether there is no sign yet that the kubelet handles the last request."""

    def add(self, wanted: str, last: Channel | None) -> None:
        """Add the request for `wanted`, before it is made; `last` is the connection of the present container."""
        self._latest.append(wanted)
        self.unacknowledged = True
        if last is not None and last is not self._replaced and last.still_open():
            self._replaced = last
            self._since.clear()
        self._since.append(wanted)

    def acknowledge(self) -> None:
        """Note that the kubelet handles the last request."""
        self.unacknowledged = False

    def may_come_late(self, digest: str, last: Channel | None) -> bool:
        """Return whether a late container may follow whose status looks like that of the image with `digest`.

        Args:
            digest: digest of the image to bind.
            last: connection of the present container.
        """
        if last is None or last is not self._replaced:
            return last is None or not last.still_open()
        return any(reference.endswith(digest) for reference in self._since)

    def is_recent(self, wanted: str | None) -> bool:
        """Return whether a reference in the pod's spec was requested recently."""
        return wanted in self._latest

    def is_of_another(self, words: str, wanted: str) -> bool:
        """Return whether the kubelet's message is about an earlier request, and not about `wanted`."""
        others = {mark(reference) for reference in self._latest}
        return any(other in words for other in others if other not in wanted)


def mark(wanted: str) -> str:
    """Return the part of a reference that the kubelet's messages contain: its digest, or all of it."""
    return wanted.rpartition("@")[2]
