"""The lab's own kubectl commands: which are done in this process, and by which requests."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from kubernetes.stream.ws_client import WSClient
from websocket import ABNF

from lab import kube_api, kubectl
from lab.apply import path_of
from lab.errors import LabError
from lab.kube_api import KubeApi

WEB_SOCKET_UUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""RFC 6455, section 1.3."""
POD: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": "1", "managedFields": [{}]}}


class Server:
    """An API server that answers what it is told to, and remembers the requests."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.bodies: list[Any] = []
        self.answers: list[tuple[int, list[Any]]] = []
        """Status and JSON texts, for one request after another."""
        self.messages: list[bytes] = []
        """The server sends these to a GET with `Upgrade`, each with its channel in front, and closes the WebSocket."""
        told = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                told.requests.append(f"{self.command} {self.path}")
                if self.headers.get("Upgrade"):
                    self._send_messages()
                    return
                if length := int(self.headers.get("Content-Length", 0)):
                    told.bodies.append(json.loads(self.rfile.read(length)))
                status, texts = told.answers.pop(0)
                body = b"".join(json.dumps(one).encode() + b"\n" for one in texts)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _send_messages(self) -> None:
                key = f"{self.headers['Sec-WebSocket-Key']}{WEB_SOCKET_UUID}".encode()
                accept = hashlib.sha1(key, usedforsecurity=False).digest()
                self.send_response(101)
                self.send_header("Upgrade", "websocket")
                self.send_header("Connection", "Upgrade")
                self.send_header("Sec-WebSocket-Accept", base64.b64encode(accept).decode())
                self.end_headers()
                frames = [(ABNF.OPCODE_BINARY, one) for one in told.messages] + [(ABNF.OPCODE_CLOSE, b"\x03\xe8")]
                self.wfile.write(b"".join(ABNF(1, 0, 0, 0, code, 0, data).format() for code, data in frames))
                self.close_connection = True

            do_GET = do_DELETE = do_PATCH = _answer  # noqa: N815 -- http.server's names

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def server() -> Iterator[Server]:
    """An API server of this test's own."""
    made = Server()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def api(server: Server, tmp_path: Path) -> Iterator[KubeApi]:
    """A client of it."""
    address = f"http://127.0.0.1:{server.server.server_address[1]}"
    named: dict[str, dict[str, Any]] = {"clusters": {"cluster": {"server": address}}, "users": {"user": {}}}
    config: dict[str, Any] = {kind: [{"name": "one", **one}] for kind, one in named.items()}
    config["contexts"] = [{"name": "one", "context": {"cluster": "one", "user": "one"}}]
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "one", **config}))
    client = kube_api.connect(path)
    yield client
    client.close()


def do(api: KubeApi, *arguments: str, timeout: float = 5) -> str:
    """The output of a command that is known here."""
    command = kubectl.known(arguments)
    assert command is not None
    return command(api, timeout)


@pytest.mark.parametrize(
    "line",
    [
        "apply -f -",
        "get pods -n x",
        "get pods -A -o json",
        "get pod p -o json",
        "get pod p q -n x -o json",
        "get pod/p job/q -n x -o json",
        "get deployment d -n x -o json",
        "get pod p -n x -o yaml",
        "get pod p -n x -o jsonpath={.metadata.labels['a']}",
        "get pod p -n x -o jsonpath={.a}{.b}",
        "get --raw /metrics",
        "delete pod -n x",
        "delete -n x -f file",
        "delete pod p -n x --force --grace-period=5",
        "delete pod p -n x --cascade=orphan",
        "logs p -n x --since=1m",
        "logs p -n x --follow",
        "exec -it p -n x -- sh",
        "exec p -- sh",
        "wait pod/p -n x --for=delete",
        "wait pod/p pod/q -n x --for=condition=Ready",
    ],
)
def test_other_commands_are_the_programs(line: str) -> None:
    assert kubectl.known(line.split()) is None


def test_input_is_the_programs_where_there_is_much_or_no_exec() -> None:
    command = ("exec", "-i", "p", "-n", "x", "--", "cat")
    assert kubectl.known(command, "a") is not None
    assert kubectl.known(command, "a" * 100_000) is None
    assert kubectl.known(("get", "pod", "p", "-n", "x", "-o", "json"), "a") is None


@pytest.mark.parametrize(
    ("form", "output"),
    [
        ("name", "pod/p\n"),
        ("jsonpath={.metadata.uid}", "1"),
        ("jsonpath={.metadata.nothing}", ""),
        ("jsonpath={.list[*].a}", "x y"),
        ("jsonpath={.list[1].a}", "y"),
        ("jsonpath={.list[0]}", '{"a":"x"}'),
    ],
)
def test_a_part_of_an_object_is_printed(server: Server, api: KubeApi, form: str, output: str) -> None:
    server.answers = [(200, [{**POD, "list": [{"a": "x"}, {"b": 1}, {"a": "y"}][:: 1 if "*" in form else 2]}])]
    assert do(api, "get", "pod", "p", "-n", "x", "-o", form) == output
    assert server.requests == ["GET /api/v1/namespaces/x/pods/p"]


def test_a_list_has_kubectls_kind_and_no_account_of_who_manages_fields(server: Server, api: KubeApi) -> None:
    pods = {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [{"metadata": POD["metadata"]}]}
    server.answers = [(200, [pods])]
    found = json.loads(do(api, "get", "pods", "-n", "x", "-l", "a=b", "--field-selector", "c=d", "-o", "json"))
    assert server.requests == ["GET /api/v1/namespaces/x/pods?labelSelector=a%3Db&fieldSelector=c%3Dd"]
    assert found["kind"] == "List"
    assert found["items"] == [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": "1"}}]


def test_a_refusal_has_kubectls_words(server: Server, api: KubeApi) -> None:
    status = {"kind": "Status", "reason": "NotFound", "message": 'pods "p" not found'}
    server.answers = [(404, [status])] * 3
    with pytest.raises(LabError, match=r'^Error from server \(NotFound\): pods "p" not found$'):
        do(api, "get", "pod", "p", "-n", "x", "-o", "json")
    assert not do(api, "get", "pod", "p", "-n", "x", "-o", "json", "--ignore-not-found")
    assert not do(api, "delete", "pod", "p", "-n", "x", "--ignore-not-found")


@pytest.mark.parametrize(
    ("options", "request_body"),
    [
        ((), {"propagationPolicy": "Background"}),
        (("--grace-period=0",), {"propagationPolicy": "Background", "gracePeriodSeconds": 1}),
        (("--force", "--grace-period=0"), {"propagationPolicy": "Background", "gracePeriodSeconds": 0}),
        (("--cascade=foreground", "--grace-period", "7"), {"propagationPolicy": "Foreground", "gracePeriodSeconds": 7}),
    ],
)
def test_a_deletion_is_waited_for(
    server: Server, api: KubeApi, options: tuple[str, ...], request_body: dict[str, Any]
) -> None:
    listed = {"items": [POD], "metadata": {"resourceVersion": "5"}}
    events = [{"type": "MODIFIED", "object": POD}, {"type": "DELETED", "object": POD}]
    server.answers = [(200, [POD]), (200, [listed]), (200, events)]
    assert do(api, "delete", "pod", "p", "-n", "x", *options) == 'pod "p" deleted from x namespace\n'
    assert server.bodies == [{"apiVersion": "v1", "kind": "DeleteOptions", **request_body}]
    assert [one.partition("&timeoutSeconds")[0] for one in server.requests] == [
        "DELETE /api/v1/namespaces/x/pods/p",
        "GET /api/v1/namespaces/x/pods?fieldSelector=metadata.name%3Dp",
        "GET /api/v1/namespaces/x/pods?fieldSelector=metadata.name%3Dp&resourceVersion=5&watch=true",
    ]


def test_a_deletion_ends_where_another_object_has_the_name(server: Server, api: KubeApi) -> None:
    other = {**POD, "metadata": {"name": "p", "uid": "2"}}
    server.answers = [(200, [POD]), (200, [{"items": [other], "metadata": {"resourceVersion": "5"}}])]
    do(api, "delete", "pod", "p", "-n", "x")


def test_a_condition_that_does_not_come_has_kubectls_words(server: Server, api: KubeApi) -> None:
    listed = {"items": [POD], "metadata": {"resourceVersion": "5"}}
    server.answers = [(200, [listed]), (200, [])] * 10_000
    with pytest.raises(LabError, match=r"^error: timed out waiting for the condition on pods/p$"):
        do(api, "wait", "pod/p", "-n", "x", "--for=condition=Ready", "--timeout=0s")
    ready = {**POD, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    server.answers = [(200, [listed]), (200, [{"type": "MODIFIED", "object": ready}])]
    assert do(api, "wait", "pod/p", "-n", "x", "--for=condition=Ready") == "pod/p condition met\n"


def test_the_log_of_the_default_container_is_read(server: Server, api: KubeApi) -> None:
    pod = {**POD, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}}
    server.answers = [(200, [pod]), (200, ["line"])]
    assert do(api, "logs", "p", "-n", "x", "--tail=3", "--since=60s", "--previous") == '"line"\n'
    query = "container=a&tailLines=3&sinceSeconds=60&previous=true"
    assert server.requests[1:] == [f"GET /api/v1/namespaces/x/pods/p/log?{query}"]


def test_output_that_comes_after_errors_and_with_the_end_is_whole(
    server: Server, api: KubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WSClient, "_frames_immediately_available", lambda _: False)  # each message comes by itself
    server.messages = [b"\x02an ", b"\x02error", b"\x01output", b'\x03{"status": "Success"}']
    assert do(api, "exec", "p", "-n", "x", "-c", "c", "--", "program") == "output"


def test_a_server_that_is_not_there_is_a_sentence(server: Server, api: KubeApi) -> None:
    server.server.shutdown()
    server.server.server_close()
    with pytest.raises(LabError, match=r"the API server cannot be asked: .*refused"):
        do(api, "get", "pod", "p", "-n", "x", "-o", "json")


@pytest.mark.parametrize(
    ("version", "kind", "namespace", "path"),
    [
        ("v1", "ConfigMap", "pilots", "/api/v1/namespaces/pilots/configmaps/one"),
        ("v1", "Namespace", "", "/api/v1/namespaces/one"),
        ("apps/v1", "Deployment", "pilots", "/apis/apps/v1/namespaces/pilots/deployments/one"),
        ("networking.k8s.io/v1", "NetworkPolicy", "p", "/apis/networking.k8s.io/v1/namespaces/p/networkpolicies/one"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole", "", "/apis/rbac.authorization.k8s.io/v1/clusterroles/one"),
    ],
)
def test_an_object_is_applied_at_its_path(version: str, kind: str, namespace: str, path: str) -> None:
    manifest = {"apiVersion": version, "kind": kind, "metadata": {"name": "one", "namespace": namespace}}
    assert path_of(manifest) == path


def test_an_object_is_applied_by_the_server_which_checks_its_fields(server: Server, api: KubeApi) -> None:
    server.answers = [(200, [POD])]
    api.apply("/api/v1/namespaces/n/pods/p", POD, timeout=5)
    (request,) = server.requests
    assert request.startswith("PATCH /api/v1/namespaces/n/pods/p?")
    assert "fieldValidation=Strict" in request
    assert server.bodies == [POD]
