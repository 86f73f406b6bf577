"""An API server with faults on demand: a proxy in front of the real one, or of a simulated one.

A pilot pod is pointed at it by KUBERNETES_SERVICE_HOST and _PORT. Tokens are passed on, watches are streamed.
"""

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from aiohttp import web

from lab.api import Lab
from lab.errors import LabError
from lab.faulty import Fault, FaultyServer, serving
from lab.settings import API_PORT, NODE_ADDRESS


class FaultyApi(FaultyServer):
    """An API server."""

    def verb(self, request: web.Request) -> str:
        """Return the verb as RBAC names it."""
        if request.method == "GET":
            return "watch" if request.query.get("watch") in ("true", "True", "1") else "list"
        return {"PATCH": "patch", "POST": "create", "PUT": "update", "DELETE": "delete"}.get(request.method, "")

    def refusal(self, fault: Fault) -> web.Response:
        """Return an error answer: a Status of meta/v1."""
        reason, message = fault.error
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "reason": reason,
            "message": message,
            "code": fault.status,
        }
        return web.json_response(status, status=fault.status, headers=dict(fault.headers))

    def presents(self, certificate: Path, key: Path) -> None:
        """Show another certificate to new connections from now on."""
        assert self._tls is not None
        self._tls.load_cert_chain(certificate, key)

    def count(self, verb: str = "") -> int:
        """Return the number of requests so far, with this verb or with any."""
        return sum(one.verb == verb or not verb for one in self.requests)

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment variables that point a pod's container at this server."""
        host, _, port = self.address.rpartition(":")
        return {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}


def server_side(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


@contextmanager
def faulty_api(lab: Lab) -> Iterator[FaultyApi]:
    """Run such a proxy before the lab's API server, with a certificate of the lab's own authority. Raises LabError."""
    if lab.settings.kubeconfig is not None:
        raise LabError("an API server that fails can be had in the lab's own cluster only: unset KUBECONFIG")
    keys = lab.settings.pki
    server = FaultyApi(
        f"https://{NODE_ADDRESS}:{API_PORT}",
        tls=server_side(keys / "apiserver.crt", keys / "apiserver.key"),
        trust=ssl.create_default_context(cafile=str(keys / "ca.crt")),
    )
    with serving(server):
        yield server
