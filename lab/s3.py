"""An S3 server with TLS, which verifies signatures, started on demand: Versity's gateway. It keeps objects as files."""

import secrets
import shutil
import socket
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab import binaries, pki
from lab.errors import LabError
from lab.http import opened
from lab.patience import scaled
from lab.pki import Identity
from lab.processes import Daemon, Daemons
from lab.progress import Progress
from lab.settings import NODE_ADDRESS, Settings

BUCKET: Final = "bucket"
REGION: Final = "lab"
SERVER: Final = Identity("server", "server", hosts=(NODE_ADDRESS,))
"""Subject of the certificates: every server of this machine, by the address that pods reach it at."""
_HEALTH: Final = "/health"
_PATIENCE_S: Final = scaled(30.0)


@dataclass(frozen=True)
class S3:
    """A running server with one bucket and one user."""

    address: str
    """host:port."""
    key_id: str
    secret: str
    keys: Path
    """Folder with ca.crt, the authority that has signed its certificate, and with server.crt and server.key."""
    objects: Path
    """Folder with the bucket's objects."""

    def url(self, name: str) -> str:
        """Return the URL of an object as users of HTCondor write it (HTCondor manual, "File Transfer Using a URL")."""
        return f"s3://{self.address}/{BUCKET}/{name}"


@contextmanager
def serving(settings: Settings, progress: Progress) -> Iterator[S3]:
    """Run a server while the body runs. Raises LabError."""
    if settings.kubeconfig is not None:
        raise LabError("KUBECONFIG is set: an S3 server of this machine is reached by pods of the lab's own node only")
    (programs,) = binaries.ensure(settings, progress, [binaries.S3])
    with socket.create_server((NODE_ADDRESS, 0)) as server:
        port = server.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="s3-", dir=settings.state))
    found = S3(
        f"{NODE_ADDRESS}:{port}", secrets.token_hex(10), secrets.token_hex(20), folder, folder / "objects" / BUCKET
    )
    daemons, name = Daemons(settings), f"s3-{port}"
    try:
        found.objects.mkdir(parents=True)
        pki.new_server(folder, SERVER)
        daemons.start(_daemon(name, programs / "versitygw", found))
        daemons.wait_until(name, lambda: _answers(found), "versitygw does not answer", _PATIENCE_S)
        yield found
    finally:
        daemons.stop(name)
        shutil.rmtree(folder)


def _daemon(name: str, program: Path, server: S3) -> Daemon:
    options = {
        "port": server.address,
        "region": REGION,
        "cert": server.keys / f"{SERVER.file}.crt",
        "key": server.keys / f"{SERVER.file}.key",
        "health": _HEALTH,
    }
    variables = (f"ROOT_ACCESS_KEY_ID={server.key_id}", f"ROOT_SECRET_ACCESS_KEY={server.secret}")
    arguments = [f"--{option}={value}" for option, value in options.items()]
    return Daemon(name, ["/usr/bin/env", *variables, program, *arguments, "posix", server.objects.parent])


def _answers(server: S3) -> bool:
    trust = ssl.create_default_context(cafile=str(server.keys / "ca.crt"))
    try:
        with opened(f"https://{server.address}{_HEALTH}", context=trust) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
