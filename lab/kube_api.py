"""The cluster's API server by the `kubernetes` client: connections are kept, so that a look costs little.

A `kubectl` is a new program of 50 MB each time, and the two processors of a test machine pay for it. Measured there
(user and system time of one call, kubectl 1.36 and kubernetes 37):

    get pod -o json         81 ms as a program     0.6 ms here
    logs --tail=100         81 ms                  0.6 ms
    exec -- true            82 ms                  4 ms, with a new WebSocket and its TLS handshake

The package costs 0.6 s when it is loaded, so it is loaded by the first call. The typed classes (CoreV1Api) cost 1.0 s
and 90 MB more, and tests want the objects as JSON: paths are requested as they are.
"""

import functools
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lab.errors import LabError
from lab.shell import last_words

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

Json = dict[str, Any]
Query = Sequence[tuple[str, str | int]]

_CONNECT_S: Final = 10.0
_STDOUT, _STDERR, _ERROR = 1, 2, 3
"""Channels of an exec's WebSocket, beside stdin's (k8s.io/kubelet, remotecommand: v5.channel.k8s.io)."""
_STDIN: Final = 0
_PIECE_BYTES: Final = 32 * 1024
_APPLY: Final = "application/apply-patch+yaml"
"""Content of a server-side apply (Kubernetes, "Server-Side Apply"); JSON is YAML, too."""
_MANAGER: Final = "k8spilot-lab"

_lock = threading.Lock()


class ApiRefusal(LabError):
    """Raised when the API server refuses a request; it has the Status of the answer."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(f"Error from server ({reason}): {message}" if reason else f"Error from server: {message}")
        self.code = code


def connect(kubeconfig: Path) -> "KubeApi":
    """Return this process's client for a kubeconfig, which all its threads share."""
    with _lock:  # so that two threads do not load the package twice
        return _connect(kubeconfig, kubeconfig.stat().st_mtime_ns)


@functools.lru_cache(maxsize=4)
def _connect(kubeconfig: Path, _written_ns: int) -> "KubeApi":
    from kubernetes.client import ApiClient, Configuration  # noqa: PLC0415 -- loaded where it is used first
    from kubernetes.config import load_kube_config  # noqa: PLC0415

    configuration = Configuration()
    load_kube_config(str(kubeconfig), client_configuration=configuration)
    configuration.retries = False  # a caller's timeout is for all of it
    return KubeApi(ApiClient(configuration))


class KubeApi:
    """Requests to one API server. Its methods raise LabError; any number of threads may call them."""

    def __init__(self, client: "ApiClient") -> None:
        self._client = client

    def close(self) -> None:
        """End the connections that are idle."""
        self._client.close()

    def get(self, path: str, query: Query = (), *, timeout: float) -> Json:
        """Return the object, or list of objects, at a path of the API."""
        found: Json = json.loads(self.read(path, query, timeout=timeout))
        return found

    def read(self, path: str, query: Query = (), *, timeout: float) -> bytes:
        """Return the content at a path of the API."""
        with self._response("GET", path, query, timeout=timeout) as response:
            content: bytes = response.read()
            return content

    def delete(self, path: str, options: Json, query: Query = (), *, timeout: float) -> Json:
        """Ask for the deletion of an object, or of those that `query` selects of a list, with DeleteOptions.

        Return the answer: the object, a list, or a Status.
        """
        with self._response("DELETE", path, query, options, timeout=timeout) as response:
            answer: Json = json.loads(response.read())
            return answer

    def apply(self, path: str, manifest: Json, *, timeout: float) -> None:
        """Create or change the object at a path of the API, by server-side apply."""
        query: Query = [("fieldManager", _MANAGER), ("force", "true"), ("fieldValidation", "Strict")]
        with self._response("PATCH", path, query, json.dumps(manifest), timeout=timeout) as response:
            response.read()

    def watch(self, path: str, query: Query, *, timeout: float) -> Iterator[Json]:
        """Yield events of a list's watch until it ends, `timeout` seconds from now at the latest."""
        asked = [*query, ("watch", "true"), ("timeoutSeconds", max(1, int(timeout)))]
        with self._response("GET", path, asked, timeout=timeout + 5) as response:
            rest = b""
            for piece in response.response.stream(None, decode_content=True):
                *lines, rest = (rest + piece).split(b"\n")
                yield from map(json.loads, lines)

    def execute(self, path: str, query: Query, stdin: bytes | None, *, timeout: float) -> str:
        """Run a program by a pod's `exec` resource; return its standard output.

        Raises:
            LabError: the program has not ended with 0: its last words, as of lab.shell.run; or it was not run at all.
            TimeoutError: it has not ended within `timeout` seconds.
        """
        with self._web_socket(path, query) as socket:
            deadline = time.monotonic() + timeout
            if stdin is not None:
                for start in range(0, len(stdin), _PIECE_BYTES):
                    socket.write_channel(_STDIN, stdin[start : start + _PIECE_BYTES])
                    socket.update(timeout=0)  # the program may wait until its output is read
                socket.close_channel(_STDIN)
            while socket.is_open():
                if (left := deadline - time.monotonic()) <= 0:
                    raise TimeoutError
                socket.update(timeout=left)
            # read_channel() of an open socket can also receive the close, and output that came before it is then lost.
            stdout, stderr, error = (socket.read_channel(one) for one in (_STDOUT, _STDERR, _ERROR))
        _check_ended(json.loads(error or "null"), stderr.decode(errors="replace"))
        output: str = stdout.decode(errors="replace")
        return output

    @contextmanager
    def _response(
        self, method: str, path: str, query: Query = (), body: Json | str | None = None, *, timeout: float
    ) -> Iterator[Any]:
        from kubernetes.client.exceptions import ApiException  # noqa: PLC0415
        from urllib3.exceptions import HTTPError, ProtocolError, ReadTimeoutError  # noqa: PLC0415

        request = functools.partial(self._request, method, path, query, body, timeout)
        try:
            try:
                response = request()
            except ProtocolError:  # the server ended a kept connection at this very moment
                if method not in ("GET", "PATCH", "DELETE"):  # a second apply, or deletion, changes nothing
                    raise
                response = request()
            try:
                if response.status >= 400:
                    raise _refusal(response.status, response.read())
                yield response
            finally:
                response.response.close()  # a watch may not have come to its end; a connection that is idle is kept
        except ReadTimeoutError as problem:
            raise TimeoutError from problem
        except (HTTPError, ApiException) as problem:  # the client makes an ApiException of an error of TLS
            raise LabError(f"the API server cannot be asked: {problem}") from problem

    def _request(self, method: str, path: str, query: Query, body: Json | str | None, timeout: float) -> Any:
        headers = {"Content-Type": _APPLY} if method == "PATCH" else {}
        asked = self._client.param_serialize(
            method, path, query_params=list(query), header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        return self._client.call_api(*asked, _request_timeout=(min(_CONNECT_S, timeout), timeout))

    @contextmanager
    def _web_socket(self, path: str, query: Query) -> Iterator[Any]:
        import websocket  # noqa: PLC0415
        from kubernetes.stream.ws_client import WSClient  # noqa: PLC0415

        websocket.setdefaulttimeout(_CONNECT_S)  # WSClient has no argument for it, and waits by poll() for what comes
        _, url, headers, *_ = self._client.param_serialize(
            "GET", path, query_params=list(query), auth_settings=["BearerToken"]
        )
        try:
            socket = WSClient(
                self._client.configuration, url.replace("http", "ws", 1), headers, capture_all=False, binary=True
            )
            try:
                yield socket
            finally:
                socket.sock.shutdown()  # WSClient.close() leaves it open where the server has closed it
        except websocket.WebSocketBadStatusException as problem:
            raise _refusal(problem.status_code, problem.resp_body or b"") from problem
        except websocket.WebSocketTimeoutException as problem:
            raise TimeoutError from problem
        except (websocket.WebSocketException, OSError) as problem:
            if isinstance(problem, TimeoutError):
                raise
            raise LabError(f"error: the connection to the pod is lost: {problem}") from problem


def _check_ended(status: Json | None, words: str) -> None:
    """Raise LabError unless the Status that ends an exec says Success."""
    if status is None:
        raise LabError("error: the connection to the pod ended before the command")
    if status["status"] == "Success":
        return
    causes = status.get("details", {}).get("causes", ())
    codes = [int(one["message"]) for one in causes if one.get("reason") == "ExitCode"]
    if not codes:
        raise LabError(f"error: {status.get('message')}")
    raise LabError(last_words(f"{words}\ncommand terminated with exit code {codes[0]}", codes[0]))


def _refusal(code: int, body: bytes) -> ApiRefusal:
    try:
        status = json.loads(body)
        return ApiRefusal(code, status.get("reason") or "", status["message"])
    except (ValueError, KeyError, TypeError):
        return ApiRefusal(code, str(code), body.decode(errors="replace").strip()[:600] or "no reason is given")
