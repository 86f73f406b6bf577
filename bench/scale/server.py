"""A second API server with its own etcd, ports and folder, beside the lab's."""

import asyncio
import contextlib
import json
import re
import shutil
import socket
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from bench.api_server import Counters, parse
from lab import pki
from lab.errors import LabError
from lab.processes import Daemon, Daemons, end
from lab.settings import SERVICE_NETWORK, Settings

ADDRESS = "127.0.0.1"
API, ETCD = "scale-kube-apiserver", "scale-etcd"
"""Names of the daemons. They differ from the lab's, whose daemons may be children of this process, too."""
_HEAP = re.compile(r"^go_memstats_heap_alloc_bytes (\S+)$", re.MULTILINE)
_PATIENCE_S = 60.0
_PREFIX = "k8spilot-scale-"
_LONGEST = aiohttp.ClientTimeout(total=60)
"""Time limit of an answer. The time before, in which a request waits for its turn, does not count."""
_AT_ONCE = 16
"""Number of simultaneous requests of the administrator."""


class Server:
    """The API server and its etcd, and their administrator."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._programs = settings.bin
        # The lab's ways to keep processes and to make certificates, with another place for both.
        self._settings = replace(settings, state=folder, kubeconfig=None)
        self._daemons = Daemons(self._settings)
        self._ports = _free_ports(3)
        self._session: aiohttp.ClientSession | None = None
        self._gate = asyncio.Semaphore(_AT_ONCE)

    @property
    def url(self) -> str:
        """URL of the API server."""
        return f"https://{ADDRESS}:{self._ports[0]}"

    @property
    def authority(self) -> Path:
        """Certificate of the authority that its clients are to trust."""
        return self._settings.pki / "ca.crt"

    @property
    def administrator(self) -> tuple[Path, Path]:
        """The administrator's certificate and key."""
        return self._settings.pki / "admin.crt", self._settings.pki / "admin.key"

    async def start(self) -> None:
        """Start both, and wait until the API server is ready. Raises LabError."""
        pki.ensure(self._settings)
        self._daemons.start(self._etcd())
        await self.start_api()

    async def start_api(self) -> float:
        """Start the API server; return the time at which it was ready (time.monotonic)."""
        self._daemons.start(self._api())
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            with contextlib.suppress(aiohttp.ClientError, OSError, LabError):
                await self.ask("GET", "/readyz")
                return time.monotonic()
            self._daemons.check(API)
            if time.monotonic() > deadline:
                raise LabError(f"the second API server is not ready (its log: {self._daemons.log(API)})")
            await asyncio.sleep(0.05)

    async def stop_api(self) -> None:
        """End the API server, as an upgrade does; etcd stays."""
        await asyncio.to_thread(self._daemons.stop, API)

    async def close(self) -> None:
        """End both."""
        if self._session is not None:
            await self._session.close()
        for name in (API, ETCD):
            await asyncio.to_thread(self._daemons.stop, name)

    def processes(self) -> dict[str, psutil.Process]:
        """Return both processes, by name."""
        found = {name: self._daemons.find(name) for name in (API, ETCD)}
        return {name: process for name, process in found.items() if process is not None}

    async def heap(self) -> float:
        """Return the heap in use of the API server after a garbage collection, MiB.

        Resident memory would depend on the past.
        """
        async with self._session_of().get(f"{self.url}/debug/pprof/heap?gc=1") as answer:
            await answer.read()
        found = _HEAP.search(await self.ask("GET", "/metrics"))
        if found is None:
            raise LabError("the second API server's metrics have no go_memstats_heap_alloc_bytes")
        return float(found[1]) / 2**20

    async def counters(self) -> Counters:
        """Return the API server's counters; this request is counted, too. Raises LabError."""
        return parse(await self.ask("GET", "/metrics"))

    async def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> str:
        """Make a request as administrator; return the text of the answer. Raises LabError."""
        session = self._session_of()
        data = None if body is None else json.dumps(body)
        kind = {"Content-Type": "application/json"}
        async with self._gate, session.request(method, self.url + path, data=data, headers=kind) as answer:
            text = await answer.text()
            if answer.status >= 300 and answer.status != 409:  # it is there already
                raise LabError(f"the second API server answers {answer.status} to {method} {path}: {text[:300]}")
            return text

    def _session_of(self) -> aiohttp.ClientSession:
        """Return the administrator's session; make one if there is none."""
        if self._session is None:
            trust = ssl.create_default_context(cafile=str(self.authority))
            trust.load_cert_chain(*self.administrator)
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=trust, limit=_AT_ONCE), timeout=_LONGEST
            )
        return self._session

    def _etcd(self) -> Daemon:
        client, peer = (f"http://{ADDRESS}:{port}" for port in self._ports[1:])
        options = {
            "data-dir": self._settings.state / "etcd",
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            "quota-backend-bytes": 8 * 2**30,
            "log-level": "warn",
        }
        # Not synced, as the lab's: what is measured here is the API server, not this machine's disk.
        return Daemon(ETCD, [self._programs / "etcd", "--unsafe-no-fsync", *_options(options)])

    def _api(self) -> Daemon:
        keys = self._settings.pki
        options = {
            "etcd-servers": f"http://{ADDRESS}:{self._ports[1]}",
            "bind-address": ADDRESS,
            "secure-port": self._ports[0],
            "tls-cert-file": keys / "apiserver.crt",
            "tls-private-key-file": keys / "apiserver.key",
            "client-ca-file": keys / "ca.crt",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": keys / "service-account.pub",
            "service-account-signing-key-file": keys / "service-account.key",
            "service-cluster-ip-range": SERVICE_NETWORK,
            "authorization-mode": "Node,RBAC",
            "allow-privileged": "true",
        }
        return Daemon(API, [self._programs / "kube-apiserver", *_options(options)])


@contextlib.asynccontextmanager
async def server(settings: Settings) -> AsyncIterator[Server]:
    """Run both while the context lasts; nothing of them stays. `settings` are the lab's."""
    end(_orphans())
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder:
        found = Server(settings, Path(folder))
        try:
            await found.start()
            yield found
        finally:
            await found.close()
            shutil.rmtree(folder, ignore_errors=True)


def _orphans() -> Iterator[psutil.Process]:
    """Find both processes of a killed run: they have no parent."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.ppid() == 1 and any(f"={tempfile.gettempdir()}/{_PREFIX}" in word for word in process.cmdline()):
                yield process


def _options(options: Mapping[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in options.items()]


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server((ADDRESS, 0)) for _ in range(count)]
    try:
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
