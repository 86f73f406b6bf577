"""The lab's image registry: Debian's docker-registry on the node's address, its data in the cache.

The package is unpacked and not installed: its scripts start a service on this very port where systemd runs.
"""

import http.client
from pathlib import Path
from string import Template

from lab import machine
from lab.patience import scaled
from lab.processes import Daemon, Daemons
from lab.progress import Progress
from lab.settings import HERE, NODE_ADDRESS, REGISTRY_PORT, Settings

NAME = "registry"
PACKAGE = "docker-registry"
PATIENCE_S = scaled(15.0)
MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json, "
    "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json"
)


def program(settings: Settings, progress: Progress) -> Path:
    """Return the registry's program; fetch it if the cache has none. Raises LabError."""
    return machine.unpack_packages(settings, progress, PACKAGE, [PACKAGE]) / "usr/bin/docker-registry"


def ensure(settings: Settings, daemons: Daemons, progress: Progress) -> None:
    """Start the registry unless it runs; return when it answers."""
    serve(settings, daemons, progress, f"{NODE_ADDRESS}:{REGISTRY_PORT}")


def serve(settings: Settings, daemons: Daemons, progress: Progress, address: str) -> None:
    """Start a registry with the lab's images at `address` (host:port) unless it runs; return when it answers."""
    data = settings.cache / "registry"
    data.mkdir(parents=True, exist_ok=True)
    configuration = settings.state / "registry.yml"
    template = Template((HERE / "config/registry.yml").read_text())
    configuration.write_text(template.substitute(registry_data=data, registry_address=address))
    daemons.start(Daemon(NAME, [program(settings, progress), "serve", configuration]))
    daemons.wait_until(NAME, lambda: answers(address), f"the registry at {address} does not answer", PATIENCE_S)


def answers(address: str) -> bool:
    """Return whether a registry speaks plain HTTP at `address` (host:port)."""
    return _ask(address, "GET", "/v2/") in {200, 401}


def holds(address: str, name: str, tag: str) -> bool:
    """Return whether the registry at `address` has the image `name:tag`."""
    return _ask(address, "HEAD", f"/v2/{name}/manifests/{tag}") == 200


def _ask(address: str, method: str, path: str) -> int:
    connection = http.client.HTTPConnection(address, timeout=5)
    try:
        connection.request(method, path, headers={"Accept": MANIFESTS})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()
