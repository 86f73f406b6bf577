"""The images that the kubelet was asked for: a container of each may come, or words about it, after the next request.

One that ended by itself the kubelet starts once more, and one of a bind that was given up may be under way. No status
tells two containers of one image apart; the kubelet ends an old one as soon as it looks again.
"""

from collections import deque
from typing import Final

from k8spilot.payload_init.channel import Channel

_LATEST: Final = 8
"""Requests that the pod's spec or status may still show."""
_SINCE: Final = 1000
"""Requests that are remembered since a container was replaced."""


class ImageRequests:
    """The requests of one payload container, each a fresh reference, and what may still come of earlier ones."""

    def __init__(self) -> None:
        self._latest: deque[str] = deque(maxlen=_LATEST)
        self._replaced: Channel | None = None
        """The connection of the container that a change of ours has ended, or ends."""
        self._since: deque[str] = deque(maxlen=_SINCE)
        """Requests since that change: a container of each may be under way."""
        self.unheard = False
        """Whether nothing shows that the kubelet has begun to do what it was asked last."""

    def add(self, wanted: str, last: Channel | None) -> None:
        """Remember that `wanted` is about to be asked for; `last` is the connection of the container now."""
        self._latest.append(wanted)
        self.unheard = True
        if last is not None and last is not self._replaced and last.still_open():
            self._replaced = last
            self._since.clear()
        self._since.append(wanted)

    def heard(self) -> None:
        """Know that the kubelet has begun."""
        self.unheard = False

    def may_come_late(self, digest: str, last: Channel | None) -> bool:
        """Whether a container may come yet whose status would be taken for one of the image with `digest`.

        Args:
            digest: of the image that is to be bound.
            last: the connection of the container now.
        """
        if last is None or last is not self._replaced:
            return last is None or not last.still_open()
        return any(one.endswith(digest) for one in self._since)

    def is_recent(self, wanted: str | None) -> bool:
        """Whether a reference in the pod's spec is one that was asked for of late."""
        return wanted in self._latest

    def is_of_another(self, words: str, wanted: str) -> bool:
        """Whether the kubelet's words are about an earlier request, which may be under way, and not about `wanted`."""
        others = {mark(one) for one in self._latest}
        return any(one in words for one in others if one not in wanted)


def mark(wanted: str) -> str:
    """The part of a reference that the kubelet's words about it have: its digest, or all of it."""
    return wanted.rpartition("@")[2]
