"""ResourceClaims of the own pod, for pilots that may read them (components/gpu-dra)."""

from http import HTTPStatus
from typing import Any, Final

from k8spilot.kube.client import Api, ApiRefusal

_DENIED: Final = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND})
"""No right; no such object, or a cluster before Kubernetes 1.34, which lacks resource.k8s.io/v1."""


async def read_claim(api: Api, namespace: str, name: str) -> dict[str, Any] | None:
    """Return a ResourceClaim; None if the pilot must not read it.

    Raises:
        ClusterError: the request failed.
    """
    try:
        return await api.read("get", f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}")
    except ApiRefusal as error:
        if error.status in _DENIED:
            return None
        raise  # a temporary failure
