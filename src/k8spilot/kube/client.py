"""Connection to the API server, for the process that lives as long as the pod.

HTTP by aiohttp alone: the `kubernetes` package, which knows every object of the API, would take 23 MiB of this
process's memory for its client alone, and 101 MiB with the class of the core API (Rss added to the engine's imports,
kubernetes 37), for four kinds of requests. `k8spilot check` needs no other requests: it works with the pod's own
account, before the first job, and shares this client. The lab and the benchmarks use the package (lab/kube_api.py).
Service accounts are used as that package does (its aio/config/incluster_config.py).
"""

import asyncio
import json
import logging
import os
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import aiohttp

from k8spilot.common.errors import ClusterError, PreflightError

logger = logging.getLogger(__name__)

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Folder of the token and authority of a pod's service account."""

_REQUEST_SECONDS: Final = 30.0
_NO_ANSWER: Final = "none"


class ApiRefusal(ClusterError):
    """Raised when the API server answers with an error status."""

    def __init__(self, status: int, message: str, retry_after: float | None = None, *, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        """Reason in the server's Status object, such as AlreadyExists, for a caller that distinguishes them."""
        self.retry_after = retry_after  # RFC 9110, 10.2.3


@dataclass(frozen=True, slots=True)
class Access:
    """Address of the API server, and credentials for it."""

    url: str
    """Scheme, host and port."""
    account: Path | None = None
    """Folder with `token` and `ca.crt`; None for a server that needs neither (tests)."""

    @classmethod
    def in_cluster(cls) -> Self:
        """Find it by the variables and files of every pod.

        Raises:
            PreflightError: this is not a pod, or no token is mounted.
        """
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
        if not host or not port:
            raise PreflightError(
                "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set, so that there is no Kubernetes API "
                "to connect to; run in a pod"
            )
        for name in ("token", "ca.crt"):
            if not (ACCOUNT / name).is_file():
                raise PreflightError(
                    f"{ACCOUNT / name} is missing; mount a projected serviceAccountToken and kube-root-ca.crt there"
                )
        return cls(f"https://{f'[{host}]' if ':' in host else host}:{port}", ACCOUNT)


class Api:
    """Requests to the API server. Token and authority are read again after the kubelet renews them."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None), trust_env=False)
        self._trust: tuple[int, ssl.SSLContext] | None = None
        self.requests: Counter[tuple[str, str]] = Counter()
        """Number of requests by verb (as in RBAC) and status; the status is `none` if no answer came."""
        self.heard: float | None = None
        """Time of the server's last message (the event loop's clock, seconds)."""

    @property
    def host(self) -> str:
        """Name or address of the server, with its port if that is not the port of HTTPS."""
        return urlsplit(self._access.url).netloc

    async def __aenter__(self) -> Self:
        """Return the object itself."""
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._session.close()

    async def read(self, verb: str, path: str, **wanted: Any) -> dict[str, Any]:
        """Make a request as `open` does, and return its JSON answer.

        Raises:
            ApiRefusal: the server answered with an error status.
            ClusterError: the request failed, or the answer is not JSON.
        """
        try:
            async with asyncio.timeout(_REQUEST_SECONDS), self.open(verb, path, **wanted) as response:
                answer = json.loads(await response.read())
        except TimeoutError:
            raise ClusterError(f"the Kubernetes API did not answer within {_REQUEST_SECONDS:.0f} s") from None
        except ValueError as error:
            raise ClusterError(f"the Kubernetes API's answer is not JSON ({error})") from error
        if not isinstance(answer, dict):
            raise ClusterError("the Kubernetes API's answer is not an object")
        return answer

    @asynccontextmanager
    async def open(
        self,
        verb: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        patch: str = "json-patch",
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Make a request, whose answer is open for as long as the context lasts. The caller sets the time limit.

        Args:
            verb: get, list, watch, create or patch, as in RBAC; determines the method.
            path: complete path, `/api/v1/...`.
            query: query of the URL.
            body: sent as JSON.
            patch: kind of a patch (application/<kind>+json).

        Raises:
            ApiRefusal: the server answered with an error status.
            ClusterError: the request failed.
        """
        method = {"patch": "PATCH", "create": "POST"}.get(verb, "GET")
        kind = f"application/{patch}+json" if verb == "patch" else "application/json"
        status, began = _NO_ANSWER, asyncio.get_running_loop().time()
        try:
            async with self._session.request(
                method,
                self._access.url + path,
                params=query,
                data=None if body is None else json.dumps(body).encode(),
                headers={"Content-Type": kind, "Accept": "application/json", **self._bearer()},
                ssl=self._authority(),
            ) as response:
                status = str(response.status)
                self.requests[verb, status] += 1  # an open watch counts, too
                self.record_message()
                logger.debug("%s %s: %s in %.3f s.", verb, path, status, (self.heard or began) - began)
                if response.status >= HTTPStatus.BAD_REQUEST:
                    raise ApiRefusal(response.status, _message(await response.text()), _retry_after(response))
                yield response
        except (aiohttp.ClientError, OSError) as error:
            raise ClusterError(
                f"the Kubernetes API at {self._access.url} cannot be reached ({str(error) or type(error).__name__})"
            ) from error
        finally:
            if status == _NO_ANSWER:
                self.requests[verb, status] += 1
                logger.debug("%s %s: no answer.", verb, path)

    def record_message(self) -> None:
        """Record that the server has sent a message."""
        self.heard = asyncio.get_running_loop().time()

    def _bearer(self) -> dict[str, str]:
        if self._access.account is None:
            return {}
        return {"Authorization": f"Bearer {(self._access.account / 'token').read_text().strip()}"}

    def _authority(self) -> ssl.SSLContext | bool:
        """Return the TLS context; create a new one after the kubelet has replaced the authority."""
        if self._access.account is None:
            return True
        file = self._access.account / "ca.crt"
        changed = file.stat().st_mtime_ns
        if self._trust is None or self._trust[0] != changed:
            context = ssl.create_default_context(cafile=str(file))
            # Python 3.13 and later require a keyUsage in the cluster's CA (RFC 5280, 4.2.1.3), which many lack.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            self._trust = (changed, context)
        return self._trust[1]


def _message(text: str) -> str:
    """Return the message of a Status object (meta/v1), or the text itself."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text[:500]


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    """Return the seconds of a Retry-After. The API server never sends a date (apiserver/pkg/endpoints/handlers)."""
    try:
        return float(response.headers["Retry-After"])
    except (KeyError, ValueError):
        return None
