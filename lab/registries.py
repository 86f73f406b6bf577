"""Additional registries for tests, on the lab's own address: one with a password, one with faults on demand.

The pods' skopeo takes every port of that address for plain HTTP (lab/pool.py); containerd reads a registry's
folder at each pull, so that the node need not be made anew.
"""

import base64
import json
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from string import Template

from lab import faulty, registry
from lab.api import Lab
from lab.errors import LabError
from lab.patience import scaled
from lab.processes import Daemon, Daemons
from lab.settings import HERE, NODE_ADDRESS, Settings

PATIENCE_S = scaled(15.0)

_USER, _PASSWORD = "puller", "let-me-in"
_HTPASSWD = f"{_USER}:$2b$04$lqDWRbA/2d4UjbUYG.VZzOXNycVlgLx539kv6J4zurKt1AEJBYJwW\n"
"""The password's bcrypt hash, as Apache's htpasswd makes it; registries take no other."""


@dataclass(frozen=True)
class PrivateRegistry:
    """A registry that lets nobody in without a password."""

    address: str
    """host:port."""
    user: str = _USER
    password: str = _PASSWORD

    def docker_config(self, password: str | None = None) -> str:
        """Return the credentials as Docker's config.json has them, or wrong ones."""
        secret = base64.b64encode(f"{self.user}:{password or self.password}".encode()).decode()
        return json.dumps({"auths": {self.address: {"auth": secret}}})


@contextmanager
def private_registry(lab: Lab) -> Iterator[PrivateRegistry]:
    """Run an empty private registry. Raises LabError."""
    _check(lab)
    found = PrivateRegistry(_free_address())
    daemons = Daemons(lab.settings)
    name = f"private-registry-{found.address.rpartition(':')[2]}"
    folder = lab.settings.state / name
    folder.mkdir()
    try:
        program = registry.program(lab.settings, lab.progress)
        daemons.start(Daemon(name, [program, "serve", _configuration(folder, found.address)]))
        words = f"the registry at {found.address} does not answer"
        daemons.wait_until(name, lambda: registry.answers(found.address), words, PATIENCE_S)
        with _plain_http(lab.settings, found.address):
            yield found
    finally:
        daemons.stop(name)
        shutil.rmtree(folder)


@contextmanager
def faulty_registry(lab: Lab) -> Iterator[faulty.FaultyRegistry]:
    """Run a proxy before the lab's registry, with faults on demand. Raises LabError."""
    _check(lab)
    with (
        faulty.serving(faulty.FaultyRegistry(f"http://{lab.registry}")) as found,
        _plain_http(lab.settings, found.address),
    ):
        yield found


def _check(lab: Lab) -> None:
    if lab.settings.kubeconfig is not None:
        raise LabError("other registries can be had in the lab's own cluster only: unset KUBECONFIG")


def _configuration(folder: Path, address: str) -> Path:
    passwords = folder / "htpasswd"
    passwords.write_text(_HTPASSWD)
    text = Template((HERE / "config/registry.yml").read_text()).substitute(
        registry_data=folder / "data", registry_address=address
    )
    configuration = folder / "registry.yml"
    configuration.write_text(f"{text}auth: {{htpasswd: {{realm: lab, path: {passwords}}}}}\n")
    return configuration


def _free_address() -> str:
    with socket.create_server((NODE_ADDRESS, 0)) as server:
        return f"{NODE_ADDRESS}:{server.getsockname()[1]}"


@contextmanager
def _plain_http(settings: Settings, address: str) -> Iterator[None]:
    """Let the node's containerd speak plain HTTP to the registry at `address`."""
    folder = settings.state / "certs.d" / address
    folder.mkdir(parents=True, exist_ok=True)
    text = Template((HERE / "config/hosts.toml").read_text()).substitute(registry_address=address)
    (folder / "hosts.toml").write_text(text)
    try:
        yield
    finally:
        shutil.rmtree(folder)
