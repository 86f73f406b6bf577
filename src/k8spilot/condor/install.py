"""Preparation for condor_master: folders, credentials, configuration and programs."""

import os
import pwd
from collections.abc import Callable, Mapping, Sequence

from k8spilot.common.errors import PreflightError
from k8spilot.common.files import write
from k8spilot.condor import credentials, programs
from k8spilot.condor.configuration import values
from k8spilot.condor.folders import Folders
from k8spilot.settings import Settings


def prepare(
    settings: Settings,
    folders: Folders,
    *,
    started: int,
    facts: Mapping[str, str],
    check_extra: Callable[[Sequence[str]], None],
) -> None:
    """Create HTCondor's folders, copy its credentials, and write its configuration and programs.

    Args:
        settings: settings, complete for the condor service.
        folders: folders of HTCondor.
        started: start of the pod, in seconds since the epoch.
        facts: further attributes of the slot's ad.
        check_extra: raises PilotError for arguments of DOCKER_EXTRA_ARGUMENTS that the engine does not support.

    Raises:
        PreflightError: an account, a folder or a credential is missing.
        SettingsError: an expression of the operator cannot be parsed.
    """
    is_root = os.geteuid() == 0
    folders.prepare()
    for left in (folders.end_reason, folders.was_in_pool):
        left.unlink(missing_ok=True)
    passwords = credentials.install(settings, folders)
    users = [_account(slot.uid) for slot in settings.slots]
    text = values.render(
        settings, folders, started=started, passwords=passwords, slot_users=users, facts=facts, rootless=not is_root
    )
    write(folders.config, text, 0o644)
    programs.install(settings, folders, rootless=not is_root, check_extra=check_extra)


def _account(uid: int) -> str:
    """Return the account that HTCondor's starter runs jobs as, so that the payload's user owns the sandbox."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        raise PreflightError(
            f"the image has no account with the uid {uid} (K8SPILOT_PAYLOAD_UID), which HTCondor needs to run jobs; "
            "use 65534, or add a line to /etc/passwd"
        ) from None
