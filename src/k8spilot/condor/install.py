"""Everything that has to be there before condor_master starts."""

import os
import pwd
from collections.abc import Mapping

from k8spilot.common.errors import PreflightError
from k8spilot.condor import config, credentials, programs
from k8spilot.condor.folders import Folders, write
from k8spilot.settings import Settings


def prepare(settings: Settings, folders: Folders, *, started: int, facts: Mapping[str, str]) -> None:
    """Make HTCondor's folders, copy its credentials, write its configuration and the programs that it runs.

    Args:
        settings: with all that the condor service needs.
        folders: where things go.
        started: when the pod started, in seconds since the epoch.
        facts: what else the slot's ad tells.

    Raises:
        PreflightError: an account, a folder or a credential is missing.
        SettingsError: an expression of the operator cannot be parsed.
    """
    is_root = os.geteuid() == 0
    folders.prepare()
    passwords = credentials.install(settings, folders)
    user = _account(settings.payload_uid)
    text = config.render(
        settings, folders, started=started, passwords=passwords, slot_user=user, facts=facts, rootless=not is_root
    )
    write(folders.config, text, 0o644)
    programs.install(settings, folders, rootless=not is_root)


def _account(uid: int) -> str:
    """Name of the account that HTCondor's starter becomes, so that the sandbox is the payload's."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        raise PreflightError(
            f"the image has no account with the uid {uid} (K8SPILOT_PAYLOAD_UID), by whose name HTCondor could "
            "run jobs; use 65534, or add a line to /etc/passwd"
        ) from None
