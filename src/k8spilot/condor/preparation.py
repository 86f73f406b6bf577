"""Everything that has to be there before condor_master starts."""

import os
import pwd
from pathlib import Path
from typing import Final

from k8spilot.condor import config, tokens
from k8spilot.condor.folders import Folders
from k8spilot.errors import SurroundingsError
from k8spilot.settings import Settings

_DOCKER_CLIENT: Final = """\
#!/bin/sh
# docker's own client, but for two things.
# A pull never fails. When one does (it finds a reference invalid before it asks anybody), HTCondor holds the job and
# keeps the slot for half a minute. The `create` that follows fails with the same words, and frees the slot at once.
# Standard input is delivered: HTCondor opens it for `docker start`, which reads it only when it is told to.
case "$1" in
    pull) /usr/bin/docker "$@" || exit 0 ;;
    create | start) verb=$1; shift; exec /usr/bin/docker "$verb" --interactive "$@" ;;
    *) exec /usr/bin/docker "$@" ;;
esac
"""

_GUARD: Final = """\
#!/bin/sh
# What HTCondor runs in the place of a job that is to have no container. The starter takes the file's text for the
# reason to hold the job, and anything but success for the need to.
echo 'this execution point runs jobs in containers only, and found no image for this one' > .worker_stdout
exit 1
"""


def prepare(settings: Settings, folders: Folders, *, started: int) -> None:
    """Make HTCondor's folders, copy its credentials and write its configuration.

    Args:
        settings: with all that the condor service needs.
        folders: where things go.
        started: when the pod started, in seconds since the epoch.

    Raises:
        SurroundingsError: an account, a folder or a credential is missing.
        SettingsError: an expression of the operator cannot be parsed.
    """
    folders.prepare()
    passwords = tokens.install(settings, folders)
    text = config.render(
        settings, folders, started=started, passwords=passwords, slot_user=_account(settings.payload_uid)
    )
    _write(folders.config, text, 0o644)
    _write(folders.docker_client, _DOCKER_CLIENT, 0o755)
    _write(folders.guard, _GUARD, 0o755)


def _write(target: Path, text: str, mode: int) -> None:
    """Write a file aside and rename it: after a restart in place, daemons of the last run may be about to read it."""
    aside = target.with_suffix(".new")
    aside.write_text(text)
    aside.chmod(mode)
    os.replace(aside, target)  # noqa: PTH105 -- the atomic one is meant


def _account(uid: int) -> str:
    """Name of the account that HTCondor's starter becomes, so that the sandbox is the payload's."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        raise SurroundingsError(
            f"the image has no account with the uid {uid} (K8SPILOT_PAYLOAD_UID), by whose name HTCondor could "
            "run jobs; use 65534, or add a line to /etc/passwd"
        ) from None
