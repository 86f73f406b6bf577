"""Node of the own pod, for pilots that may read it (components/node-images)."""

from http import HTTPStatus
from typing import Any

from k8spilot.kube.client import Api, ApiRefusal


async def read_node(api: Api, name: str) -> dict[str, Any] | None:
    """Return the core/v1 Node; None if the pilot must not read it.

    Raises:
        ClusterError: the request failed.
    """
    if not name:
        return None
    try:
        return await api.read("get", f"/api/v1/nodes/{name}")
    except ApiRefusal as error:
        if error.status in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
            return None
        raise  # a temporary failure


def image_names(node: dict[str, Any]) -> list[str]:
    """Return the names of the node's images, the largest images first, as the kubelet lists them (at most 50).

    The names are an image's tags. An image without tags, such as one that was pulled by its digest, has
    `repository@digest`.
    """
    result = []
    for image in node.get("status", {}).get("images", []):
        names = [str(name) for name in image.get("names") or ()]
        result += [name for name in names if "@" not in name] or names[:1]
    return result
