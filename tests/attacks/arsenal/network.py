"""Attacks through sockets: the pod's containers have one network, and the exchange has payload-init's socket."""

import re
import socket
import ssl
import struct
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path

from .tools import EXCHANGE, MARK, attack, strangers

OTHERS = "k8spilot-attacked/"
"""Prefix of the abstract sockets that the test has made in the pilot container (tests/attacks/test_quiet.py)."""
KINDS = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM)


@attack
def docker_socket() -> list[str]:
    """By its path, through others' roots and descriptors, and by names that only look like it."""
    names = ("docker", "payload-1", "payload-2")
    ours = [f"/run/k8spilot/{door}{name}.sock" for name in names for door in ("", "htcondor-")]
    paths = [*ours, "/var/run/docker.sock", "/run/docker.sock", f"{EXCHANGE}/docker.sock"]
    paths += [f"/proc/{pid}/{way}{path}" for pid in strangers() for way in ("root", "cwd") for path in ours]
    paths += [f"/proc/{pid}/fd/{number}" for pid in strangers() for number in range(3, 8)]
    gained = []
    for path in paths:
        for name in (path, f"\0{path}"):
            with suppress(OSError), socket.socket(socket.AF_UNIX) as one:
                one.connect(name)
                gained.append(path)
    return gained


@attack
def abstract_sockets() -> list[str]:
    """Abstract sockets belong to the network namespace, which the pod shares: none of another container's answers."""
    assert _all_kinds_of(OTHERS), "nobody listens in the pilot container, so that this shows nothing"
    own = f"\0{MARK}-abstract"
    assert all(_reached(kind, own, listen=True) for kind in KINDS), "not even one's own can be used"
    return [f"{name} ({kind.name})" for name in _names() for kind in KINDS if _reached(kind, f"\0{name}")]


def _names() -> list[str]:
    """Abstract names that somebody has, without the zero byte in front."""
    rows = [row.split(None, 7) for row in Path("/proc/net/unix").read_text(errors="replace").splitlines()[1:]]
    return sorted({row[7][1:] for row in rows if len(row) == 8 and row[7].startswith("@")})


def _all_kinds_of(prefix: str) -> bool:
    """Wait until somebody has a socket of each kind whose name begins so; who makes them waits for this job."""
    end = time.monotonic() + 30
    while not all(any(one.startswith(f"{prefix}{kind.name}") for one in _names()) for kind in KINDS):
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def _reached(kind: socket.SocketKind, name: str, *, listen: bool = False) -> bool:
    """Whether a socket of that kind can be connected to, or sent something; with `listen`, one that is made here."""
    with ExitStack() as sockets:
        there, one, other = (sockets.enter_context(socket.socket(socket.AF_UNIX, kind)) for _ in range(3))
        if listen:
            there.bind(name)
            if kind is not socket.SOCK_DGRAM:
                there.listen()
        reached = False
        with suppress(OSError):
            one.connect(name)
            reached = True
        if kind is socket.SOCK_DGRAM:
            with suppress(OSError):
                other.sendto(b"x", name)
                reached = True
        return reached


def listening() -> list[tuple[str, int]]:
    """Addresses on which anything in the pod listens."""
    found = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, state = line.split()[1], line.split()[3]
        if state == "0A":
            address, port = local.split(":")
            found.append((socket.inet_ntoa(struct.pack("<I", int(address, 16))), int(port, 16)))
    return found


def own_address() -> str:
    """The pod's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.connect(("10.255.255.255", 1))
        return str(one.getsockname()[0])


def ask(address: str, port: int, request: bytes, seconds: float = 2.0) -> bytes:
    """Send something, read what comes."""
    with socket.create_connection((address, port), timeout=seconds) as one:
        one.settimeout(seconds)
        one.sendall(request)
        found = b""
        with suppress(OSError):
            while data := one.recv(65536):
                found += data
        return found


@attack
def engine_by_tcp() -> list[str]:
    """The Engine API is nowhere but on its socket: not on the metrics' port, nor on another."""
    gained = []
    assert any(port == 9464 for _, port in listening()), "the metrics' port is not there, so this shows nothing"
    for _, port in listening():
        for path in ("/containers/json", "/v1.40/info", "/_ping", "/images/json", "/status", "/debug/pprof/", "/..%2f"):
            for method in ("GET", "POST", "DELETE"):
                with suppress(OSError):
                    words = ask(own_address(), port, f"{method} {path} HTTP/1.0\r\nHost: x\r\n\r\n".encode(), 1.0)
                    if re.match(rb"HTTP/1\.[01] (2|101)", words):
                        gained.append(f"{method} {path} at {port}")
    return gained


@attack
def metrics_tell_no_secret() -> list[str]:
    """Search for secrets in the metrics and probes, which everybody in the pod's network can read."""
    words = b"".join(
        ask(own_address(), 9464, f"GET {path} HTTP/1.0\r\n\r\n".encode(), 20.0)
        for path in ("/metrics", "/healthz", "/readyz")
    )
    assert b"k8spilot_state" in words
    found = re.search(rb"alice|bob|docker://|:5000/|token|eyJ|@sha256", words)
    return [repr(words[max(0, found.start() - 40) : found.end() + 40])] if found else []


@attack
def the_pilots_ports() -> list[str]:
    """Take them over, by every trick that sockets have."""
    gained = []
    for theirs, port in listening():
        for address in {"0.0.0.0", own_address() if theirs == "0.0.0.0" else theirs}:
            for options in (
                (),
                (socket.SO_REUSEADDR,),
                (socket.SO_REUSEPORT,),
                (socket.SO_REUSEADDR, socket.SO_REUSEPORT),
            ):
                with suppress(OSError), socket.socket(socket.AF_INET) as one:
                    for option in options:
                        one.setsockopt(socket.SOL_SOCKET, option, 1)
                    one.bind((address, port))
                    one.listen(1)
                    gained.append(f"{address}:{port} with {options}")
    return gained


@attack
def forged_reports() -> list[str]:
    """Speak for payload-init: say hello, tell of an end, of a sweep."""
    gained = []
    for words in (
        (b"hello 4 fresh scoped -", b"started 0 1", b"exit 0 0"),
        (b"exit 0 0",),
        (b"swept",),
        (b"terminal 0",),
        (b"",),
    ):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
            one.settimeout(2)
            one.connect(f"{EXCHANGE}/payload.sock")
            with suppress(OSError):
                for word in words:
                    one.send(word)
                if one.recv(1024):
                    gained.append(f"an answer to {words!r}")
            with suppress(OSError), open("/dev/zero", "rb") as zeros:
                socket.send_fds(one, [b"hello 4 fresh scoped - cpu.stat"], [zeros.fileno()])
                gained.append("descriptors are taken")
    return gained


@attack
def kubelets_ports() -> list[str]:
    """Pods reach their node: the kubelet runs commands and reads logs for who has credentials."""
    gateway = next(
        row.split()[2] for row in Path("/proc/net/route").read_text().splitlines()[1:] if row.split()[1] == "0" * 8
    )
    node = socket.inet_ntoa(struct.pack("<I", int(gateway, 16)))
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    gained, answers = [], 0
    for port, scheme in ((10250, "https"), (10255, "http")):
        for path in ("pods", "runningpods/", "metrics", "stats/summary", "logs/", "configz", "exec/a/b/c", "run/a/b/c"):
            try:
                with urllib.request.urlopen(f"{scheme}://{node}:{port}/{path}", context=context, timeout=3) as answer:
                    gained.append(f"{path} at {port}: {answer.status}")
            except urllib.error.HTTPError as error:
                answers += error.code in (401, 403)
            except OSError:
                continue
    assert answers, "the kubelet's port was not reached, so this shows nothing"
    return gained
