"""The pool's credentials, copied from the operator's Secrets into folders that only root can read.

HTCondor rejects credentials that others can read. A Secret's files are links that others can read.
"""

import os
import time
from pathlib import Path

from k8spilot.common.errors import PreflightError
from k8spilot.condor import tokens as idtokens
from k8spilot.condor.folders import Folders
from k8spilot.settings import Settings

FROM_ENVIRONMENT = "k8spilot-token"
"""File name for the token of the setting TOKEN."""


def install(settings: Settings, folders: Folders) -> bool:
    """Copy tokens and passwords into the private folders, in place of those of an earlier start.

    Returns:
        Whether there is a pool password, so that PASSWORD is an authentication method.

    Raises:
        PreflightError: as for `read`.
    """
    tokens, passwords = read(settings, folders)
    _write(folders.tokens, {name: token.strip() + b"\n" for name, token in tokens.items()})
    _write(folders.passwords, passwords)
    return bool(passwords)


def read(settings: Settings, folders: Folders) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return the operator's tokens and passwords, by file name.

    Raises:
        PreflightError: there is no usable credential.
    """
    tokens = _read(folders.original_tokens)
    if settings.token:
        tokens[FROM_ENVIRONMENT] = settings.token.encode()
    passwords = _read(folders.original_passwords)
    if not tokens and not passwords:
        raise PreflightError(
            "there is no credential for the pool: mount a Secret with the pool's IDTOKEN (pool-token in the project's "
            f"manifests) at {folders.original_tokens} or set TOKEN"
        )
    faults = [f"{name}: {fault}" for name, text in tokens.items() for fault in token_faults(text, time.time())]
    if not passwords and len(faults) >= sum(len(idtokens.of_file(text)) or 1 for text in tokens.values()):
        raise PreflightError(f"no token for the pool is valid ({'; '.join(faults)}); ask the pool for a new one")
    return tokens, passwords


def token_faults(text: bytes, now: float) -> list[str]:
    """Return why HTCondor could not use the tokens of a file with this text at `now` (seconds since the epoch).

    Signatures are not checked: only the pool can verify them.

    Returns:
        One phrase for each invalid token, and one phrase if there is no token.
    """
    return [fault for token in idtokens.of_file(text) or [b""] if (fault := idtokens.fault(token, now))]


def _read(folder: Path) -> dict[str, bytes]:
    """Read the files of a mounted Secret, if there is one. Names that begin with a dot belong to the kubelet."""
    if not folder.is_dir():
        return {}
    try:
        paths = [file for file in sorted(folder.iterdir()) if not file.name.startswith(".") and file.is_file()]
        files = {file.name: file.read_bytes() for file in paths}
    except OSError as error:
        raise PreflightError(
            f"the pool's credential {error.filename} cannot be read ({error.strerror}); "
            "run the pilot as root, or let the Secret's defaultMode allow it to read"
        ) from error
    return {name: content for name, content in files.items() if content.strip()}


def installed_tokens(folders: Folders) -> dict[str, bytes]:
    """Return the tokens that HTCondor reads, by file name; those that cannot be read are left out."""
    try:
        return _read(folders.tokens)
    except PreflightError:
        return {}


def _write(folder: Path, files: dict[str, bytes]) -> None:
    for old in folder.iterdir():
        old.unlink()
    for name, content in files.items():
        with os.fdopen(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
