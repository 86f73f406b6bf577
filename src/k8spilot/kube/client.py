"""The connection to the API server, for the process that lives as long as the pod.

HTTP by aiohttp, and no more: the `kubernetes` package, which knows every object of the API, would take 23 MiB of this
process's memory for its client alone, and 101 MiB with the class of the core API (Rss added to the engine's imports,
kubernetes 37), for four kinds of requests. `k8spilot check` needs no more than these requests, too: it looks with the
pod's own account, before the first job, and shares this client. The lab and the benchmarks use the package
(lab/kube_api.py). Service accounts are used in its way (aio/config/incluster_config.py there).
"""

import asyncio
import json
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

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds token and authority of its service account."""

_SECONDS: Final = 30.0
_NO_ANSWER: Final = "none"


class ApiRefusal(ClusterError):
    """The API server answered, but not with what was asked for."""

    def __init__(self, status: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after  # RFC 9110, 10.2.3


@dataclass(frozen=True, slots=True)
class Access:
    """Where the API server is, and how it knows us."""

    url: str
    """Scheme, host and port."""
    account: Path | None = None
    """Folder with `token` and `ca.crt`; None for a server that asks for neither (tests)."""

    @classmethod
    def in_cluster(cls) -> Self:
        """Find it as every pod does.

        Raises:
            SurroundingsError: this is no pod, or no token is mounted.
        """
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
        if not host or not port:
            raise PreflightError(
                "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set, so there is no Kubernetes API to "
                "talk to; run in a pod"
            )
        for name in ("token", "ca.crt"):
            if not (ACCOUNT / name).is_file():
                raise PreflightError(
                    f"{ACCOUNT / name} is missing; mount a projected serviceAccountToken and kube-root-ca.crt there"
                )
        return cls(f"https://{f'[{host}]' if ':' in host else host}:{port}", ACCOUNT)


class Api:
    """Requests to the API server. Token and authority are read again as the kubelet renews them."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None), trust_env=False)
        self._trust: tuple[int, ssl.SSLContext] | None = None
        self.requests: Counter[tuple[str, str]] = Counter()
        """Requests so far by verb (as in RBAC) and by status, which is `none` where no answer came."""
        self.heard: float | None = None
        """When the server sent something last (the event loop's clock, seconds)."""

    @property
    def host(self) -> str:
        """The server's name or address, and its port if that is not HTTPS'."""
        return urlsplit(self._access.url).netloc

    async def __aenter__(self) -> Self:
        """Begin."""
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._session.close()

    async def read(self, verb: str, path: str, **wanted: Any) -> dict[str, Any]:
        """Make a request as `open` does, and return the JSON of its answer.

        Raises:
            ApiRefusal: the server answered with another status than success.
            ClusterError: it could not be asked, or answered with something else than JSON.
        """
        try:
            async with asyncio.timeout(_SECONDS), self.open(verb, path, **wanted) as response:
                answer = json.loads(await response.read())
        except TimeoutError:
            raise ClusterError(f"the Kubernetes API did not answer within {_SECONDS:.0f} s") from None
        except ValueError as error:
            raise ClusterError(f"the Kubernetes API answered with something else than JSON ({error})") from error
        if not isinstance(answer, dict):
            raise ClusterError("the Kubernetes API answered with something else than an object")
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
        """Make a request; its answer is there for as long as the context lasts. The caller sets the time limit.

        Args:
            verb: get, list, watch, create or patch, as in RBAC; decides the method.
            path: from the root on, `/api/v1/...`.
            query: of the URL.
            body: sent as JSON.
            patch: which kind, where it is one (application/<kind>+json).

        Raises:
            ApiRefusal: the server answered with another status than success.
            ClusterError: it could not be asked.
        """
        method = {"patch": "PATCH", "create": "POST"}.get(verb, "GET")
        kind = f"application/{patch}+json" if verb == "patch" else "application/json"
        status = _NO_ANSWER
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
                self.requests[verb, status] += 1  # a watch that is open counts, too
                self.hear()
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

    def hear(self) -> None:
        """Take note that the server has sent something."""
        self.heard = asyncio.get_running_loop().time()

    def _bearer(self) -> dict[str, str]:
        if self._access.account is None:
            return {}
        return {"Authorization": f"Bearer {(self._access.account / 'token').read_text().strip()}"}

    def _authority(self) -> ssl.SSLContext | bool:
        """Whom to trust; made anew when the kubelet has another authority for us."""
        if self._access.account is None:
            return True
        file = self._access.account / "ca.crt"
        changed = file.stat().st_mtime_ns
        if self._trust is None or self._trust[0] != changed:
            context = ssl.create_default_context(cafile=str(file))
            # Python 3.13 and later want a keyUsage in the cluster's CA (RFC 5280, 4.2.1.3), which many do not have.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            self._trust = (changed, context)
        return self._trust[1]


def _message(text: str) -> str:
    """The sentence in a Status object (meta/v1), or the text itself."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text[:500]


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    """Seconds of a Retry-After; the API server never sends a date (apiserver/pkg/endpoints/handlers)."""
    try:
        return float(response.headers["Retry-After"])
    except (KeyError, ValueError):
        return None
