"""HTCondor's configuration of the pool worker, and copies of the pool's tokens, which must be files of its own user."""

from pathlib import Path
from typing import Final

TOKENS: Final = Path("/etc/condor/tokens.d")
"""Mount point of the Secret with the pool's IDTOKEN. It needs the scope READ only."""
_TEMPLATE: Final = """\
CONDOR_HOST = {host}
COLLECTOR_HOST = {host}
USE_SHARED_PORT = False
SEC_CLIENT_AUTHENTICATION = PREFERRED
SEC_CLIENT_AUTHENTICATION_METHODS = IDTOKENS, SSL, ANONYMOUS
SEC_CLIENT_ENCRYPTION = PREFERRED
SEC_CLIENT_INTEGRITY = PREFERRED
# provisioner/pool/query_runner.py applies it to the collector.
COLLECTOR_AUTHENTICATION = {security}
COLLECTOR_AUTHENTICATION_METHODS = {methods}
SEC_TOKEN_DIRECTORY = {tokens}
SEC_TOKEN_SYSTEM_DIRECTORY = {tokens}
QUERY_TIMEOUT = 20
"""


class PoolConfiguration:
    """Files in a folder of the provisioner's own."""

    def __init__(self, folder: Path, condor_host: str, tokens: Path = TOKENS) -> None:
        """Initialize without I/O. `tokens` is the folder with the Secret's files, which may be missing."""
        self.file = folder / "condor_config"
        self.suspect = folder / "suspect"
        """File of the pool worker (worker.py)."""
        self._copies = folder / "tokens"
        self._condor_host = condor_host
        self._tokens = tokens
        self._known: dict[str, bytes] | None = None

    def refresh(self) -> bool:
        """Take over the tokens as they are now; return whether they have changed.

        With a token nobody in the network can answer in the collector's place. An access point may be unable to check
        the token: that takes the pool's signing key.

        Raises:
            OSError: they cannot be read or written.
        """
        found = {one.name: one.read_bytes() for one in _files(self._tokens)}
        if found == self._known:
            return False
        self._copies.mkdir(mode=0o700, exist_ok=True)
        for old in self._copies.iterdir():
            old.unlink()
        for name, text in found.items():
            copy = self._copies / name
            copy.touch(mode=0o600)
            copy.write_bytes(text)
        security = "REQUIRED" if found else "PREFERRED"
        # ANONYMOUS satisfies REQUIRED, and anybody can offer it.
        methods = "IDTOKENS, SSL" if found else "IDTOKENS, SSL, ANONYMOUS"
        values = {"host": self._condor_host, "tokens": self._copies, "security": security, "methods": methods}
        self.file.write_text(_TEMPLATE.format(**values))
        self._known = found
        return True


def _files(folder: Path) -> list[Path]:
    """Return the files of a mounted Secret. Names of the kubelet's own links and folders begin with dots."""
    return sorted(one for one in folder.iterdir() if one.name[0] != "." and one.is_file()) if folder.is_dir() else []
