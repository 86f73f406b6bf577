"""Everything that has to be there before condor_master starts."""

import os
import pwd
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from k8spilot.common import engine_api
from k8spilot.common.errors import PreflightError
from k8spilot.condor import config, credentials, docker_client, gpu_monitor
from k8spilot.condor.folders import Folders, write
from k8spilot.gpu.htcondor import ask
from k8spilot.settings import Settings

STARTER: Final = Path("/opt/k8spilot/libexec/starter")
"""Where the image has the program that confines condor_starter (condor/starter.c)."""

_CONDOR_STARTER: Final = Path("/usr/sbin/condor_starter")
_TEMPORARY: Final = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 -- a starter's own in that container

"""Where the engine tells HTCondor of GPUs, on the Docker socket."""
_INVENTORY_SECONDS: Final = 180
"""The engine looks for GPUs first, for a minute at most; HTCondor reads its inventory once in its life."""
_GPUS: Final = f"""\
#!/bin/sh
# Prints HTCondor's inventory of GPUs, once the engine has found them; without an answer there are none.
{{python}} -IS {{program}} {{socket}} {engine_api.INVENTORY} {_INVENTORY_SECONDS} || echo DetectedGPUs=0
"""
_NEXT_SECONDS: Final = 300
"""Longer than an engine needs that is started again, and for what a job can have left."""
_STARTER: Final = f"""\
#!/bin/sh
# HTCondor's starter, once the engine says that nothing is left of earlier jobs: the first thing that a starter does is
# to bring the job's files. Without that word there is no starter, and the job goes back to the queue.
starter={{starter}}
{{functions}}case $1 in
    -classad) ;;
    *) {{before}}{{python}} -IS {{program}} {{socket}} {engine_api.NEXT_JOB} {_NEXT_SECONDS} >/dev/null \\
        || exit 1{{after}} ;;
esac
exec "$starter" "$@"
"""
_SWEEP: Final = """\
# HTCondor is not root, and what a starter was made to write, or left when it was killed, is of the same user as the
# next one's. No starter runs but this one, which has no sandbox yet. Sandboxes of lost jobs in which something is
# locked are opened to the jobs' user, who then opens that (the engine sees to it). If one stays all the same, there is
# no starter, either.
left() { find EXECUTE -mindepth 1 -maxdepth 1 ! -name 'dir_*.recover' "$@" 2>/dev/null; }
sweep() {
    find TEMPORARY -xdev -mindepth 1 -delete
    left -exec rm -rf {} +
    find EXECUTE -mindepth 1 -xdev -user "$(id -u)" -type d \\
        -exec chgrp "$(stat --format %g EXECUTE)" {} + -exec chmod g+rwxs {} +
} 2>/dev/null
"""

_GUARD: Final = """\
#!/bin/sh
# What HTCondor runs in the place of a job that is to have no container. The starter takes the file's text for the
# reason to hold the job, and anything but success for the need to.
echo 'this execution point runs jobs in containers only, and found no image for this one' > .worker_stdout
exit 1
"""


def prepare(settings: Settings, folders: Folders, *, started: int, facts: Mapping[str, str]) -> None:
    """Make HTCondor's folders, copy its credentials and write its configuration.

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
    docker_client.install(folders, rootless=not is_root)
    write(folders.guard, _GUARD, 0o755)
    words = {"python": sys.executable, "program": ask.__file__, "socket": str(settings.socket)}
    quoted = {name: shlex.quote(word) for name, word in words.items()}
    starter = STARTER if settings.confine_starter and not is_root else _CONDOR_STARTER
    sweeps = () if is_root else (folders.execute, *_TEMPORARY)
    write(folders.starter, starter_program(starter, quoted, sweeps), 0o755)
    write(folders.gpus, _GPUS.format(**quoted), 0o755)
    write(folders.gpu_monitor, gpu_monitor.program(settings), 0o755)


def starter_program(starter: Path, words: Mapping[str, str], sweeps: Sequence[Path] = ()) -> str:
    """What the startd runs for each job.

    Args:
        starter: the program that it becomes.
        words: `python`, `program` and `socket`: how the engine is asked, quoted for a shell.
        sweeps: where HTCondor is not root, EXECUTE and folders for temporary files, which are emptied first.
    """
    if not sweeps:
        return _STARTER.format(starter=shlex.quote(str(starter)), functions="", before="", after="", **words)
    execute, *temporary = (shlex.quote(str(folder)) for folder in sweeps)
    return _STARTER.format(
        starter=shlex.quote(str(starter)),
        functions=_SWEEP.replace("EXECUTE", execute).replace("TEMPORARY", " ".join(temporary)),
        before="sweep; ",
        after='; sweep; stays=$(left) && [ -z "$stays" ] || exit 1',  # where `left` cannot be run, something may
        **words,
    )


def _account(uid: int) -> str:
    """Name of the account that HTCondor's starter becomes, so that the sandbox is the payload's."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        raise PreflightError(
            f"the image has no account with the uid {uid} (K8SPILOT_PAYLOAD_UID), by whose name HTCondor could "
            "run jobs; use 65534, or add a line to /etc/passwd"
        ) from None
