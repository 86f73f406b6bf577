"""Images that are on the node already, in the slot's ad, so that a job's RANK can prefer them.

The pod's own binds tell of some; the Node object of all, where the pilot may read it.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from k8spilot.common.errors import ClusterError
from k8spilot.common.lru import LruDict
from k8spilot.condor.startd_ad import StartdAd
from k8spilot.kube.client import Api
from k8spilot.kube.node import image_names, read_node
from k8spilot.model.reference import Reference

logger = logging.getLogger(__name__)

ATTRIBUTE: Final = "K8SNodeImages"
_SIZE: Final = 4096
"""Characters of the list: a collector has thousands of slots in its memory."""
_HAD: Final = 32
_LOOK_SECONDS: Final = 300.0


def listed(names: Iterable[str]) -> str:
    """As many of the names as there is space for, each once, separated by commas."""
    chosen: dict[str, None] = {}
    size = 0
    for name in names:
        if name not in chosen and "," not in name and size + len(name) < _SIZE:
            chosen[name] = None
            size += len(name) + 1
    return ",".join(chosen)


class NodeImages:
    """Keeps the attribute right."""

    def __init__(self, slot: StartdAd, api: Api, node: str) -> None:
        self.slot = slot
        self._api = api
        self._node_name = node
        self._on_node: list[str] | None = None
        """What the Node object tells; None as long as it has not been read."""
        self._had: LruDict[str, None] = LruDict(_HAD)
        """What this pod has bound, the last one at the end."""
        self._told = ""

    async def bound(self, reference: Reference) -> None:
        """Take note of an image that runs here."""
        self._had[reference.source] = None
        if not self.slot.there:
            return
        if self._on_node is None:
            await self._look()
        await self._tell()

    async def follow(self) -> None:
        """Look at the node now and then; return if that is not allowed. What was there at the start is told already."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if not self.slot.there:
                continue
            if not await self._look():
                return
            await self._tell()

    async def _look(self) -> bool:
        """Read the node; False if that is not allowed."""
        try:
            node = await read_node(self._api, self._node_name)
        except ClusterError as error:
            logger.info("The node's images are not known: %s.", error)
            return True
        self._on_node = [] if node is None else image_names(node)
        return node is not None

    async def _tell(self) -> None:
        text = listed((*reversed(self._had), *(self._on_node or ())))
        # The order says nothing.
        if set(text.split(",")) != set(self._told.split(",")) and await self.slot.set({ATTRIBUTE: text}):
            self._told = text
