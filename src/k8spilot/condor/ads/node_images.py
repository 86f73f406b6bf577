"""Images of the node in the slot's ad, so that a job's RANK can prefer a slot whose node has its image.

The pod's own binds name some of them. The Node object names all of them, if the pilot may read it.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from k8spilot.common.errors import ClusterError
from k8spilot.common.lru import LruDict
from k8spilot.condor.ads.startd_ad import StartdAd
from k8spilot.kube.client import Api
from k8spilot.kube.node import image_names, read_node
from k8spilot.model.reference import Reference

logger = logging.getLogger(__name__)

ATTRIBUTE: Final = "K8SNodeImages"
_MOST_CHARACTERS: Final = 4096
"""Length limit of the list, in characters: a collector holds thousands of slots in memory."""
_MOST_BOUND: Final = 32
_INTERVAL_SECONDS: Final = 300.0


def listed(names: Iterable[str]) -> str:
    """Return the first names that fit into the limit, without duplicates, separated by commas."""
    chosen: dict[str, None] = {}
    size = 0
    for name in names:
        if name not in chosen and "," not in name and size + len(name) < _MOST_CHARACTERS:
            chosen[name] = None
            size += len(name) + 1
    return ",".join(chosen)


class NodeImages:
    """Keeps the attribute K8SNodeImages up to date."""

    def __init__(self, startd_ad: StartdAd, api: Api, node: str) -> None:
        self._startd_ad = startd_ad
        self._api = api
        self._node_name = node
        self._on_node: list[str] | None = None
        """Images in the Node object; None until it has been read."""
        self._bound: LruDict[str, None] = LruDict(_MOST_BOUND)
        """Images that this pod has bound, the latest last."""
        self._published = ""

    async def bound(self, reference: Reference) -> None:
        """Record an image that runs here."""
        self._bound[reference.source] = None
        if not self._startd_ad.is_connected:
            return
        if self._on_node is None:
            await self._read()
        await self._publish()

    async def refresh(self) -> None:
        """Publish the node's images every five minutes. Return if the pilot may not read the node.

        The images at the start are published already.
        """
        while True:
            await asyncio.sleep(_INTERVAL_SECONDS)
            if not self._startd_ad.is_connected:
                continue
            if not await self._read():
                return
            await self._publish()

    async def _read(self) -> bool:
        """Read the node. Return whether the pilot may read it."""
        try:
            node = await read_node(self._api, self._node_name)
        except ClusterError as error:
            logger.info("The node's images cannot be read: %s.", error)
            return True
        self._on_node = [] if node is None else image_names(node)
        return node is not None

    async def _publish(self) -> None:
        text = listed((*reversed(self._bound), *(self._on_node or ())))
        # The order has no meaning.
        if set(text.split(",")) != set(self._published.split(",")) and await self._startd_ad.set({ATTRIBUTE: text}):
            self._published = text
