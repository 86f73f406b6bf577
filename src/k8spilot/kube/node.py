"""The node of the own pod, for those who may read it (components/node-images)."""

from http import HTTPStatus
from typing import Any

from k8spilot.kube.client import Api, ApiRefusal


async def read_node(api: Api, name: str) -> dict[str, Any] | None:
    """The core/v1 Node as the API server has it; None where it may not be read.

    Raises:
        ClusterError: the server cannot be asked.
    """
    if not name:
        return None
    try:
        return await api.read("get", f"/api/v1/nodes/{name}")
    except ApiRefusal as error:
        if error.status in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
            return None
        raise  # it may at another time


def image_names(node: dict[str, Any]) -> list[str]:
    """Names of the images on the node, those of the largest first, as the kubelet has them (at most 50 images).

    An image has its tags. One that has none, as when it was pulled by its digest, has `repository@digest`.
    """
    found = []
    for image in node.get("status", {}).get("images", []):
        names = [str(name) for name in image.get("names") or ()]
        found += [name for name in names if "@" not in name] or names[:1]
    return found
