"""Everything that has to be there before condor_master starts."""

import os
import pwd
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from k8spilot.condor import config, gpu_monitor, tokens
from k8spilot.condor.folders import Folders
from k8spilot.errors import SurroundingsError
from k8spilot.gpu import ask
from k8spilot.settings import Settings

STARTER: Final = Path("/opt/k8spilot/libexec/starter")
"""Where the image has the program that confines condor_starter (condor/starter.c)."""

_CONDOR_STARTER: Final = Path("/usr/sbin/condor_starter")
_TEMPORARY: Final = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 -- a starter's own in that container

DOCKER_CLIENT: Final = """\
#!/bin/sh
# docker's own client, but for six things.
# A pull never fails. When one does (it finds a reference invalid before it asks anybody), HTCondor holds the job and
# keeps the slot for half a minute. The `create` that follows fails with the same words, and frees the slot at once.
# Standard input is delivered: HTCondor opens it for `docker start`, which reads it only when it is told to.
# An engine that dies is followed by another within a second. What only it could answer is asked of the next: HTCondor
# would hold the job, or have it that docker is gone from the machine. The next one does not know the job's container,
# so `start` fails, and the job goes back to the queue; on the way there, nobody's architecture is wrong.
# What HTCondor asks before each job though the answer is always the same is answered at once: which images there are
# (none), what they are tagged with, and an image's other name (it has none). That is five starts of the client less.
# HTCondor looks at a job's container once `docker start` has ended, and would take one that was never started for a job
# that has ended well: the client was killed before it could ask for anything. So that look fails, and the job goes back
# to the queue.
# Sessions beside a job are few. The job itself can ask the starter for them, by a socket in its sandbox, and each has a
# client here, whose memory is the pilot's.
docker=/usr/bin/docker
places=${0%/*}/sessions

ask_again() {
    for _ in 0 1 2 3 4 5 6 7 8 9; do
        said=$("$docker" "$@" 2>&1)
        status=$?
        case $status$said in
            [!0]*"error during connect: "* | [!0]*"Cannot connect to the Docker daemon"*) sleep 3 ;;
            *) break ;;
        esac
    done
    [ $status = 0 ] || exec >&2
    printf '%s\\n' "$said"
    exit $status
}

look_after_start() {
    said=$("$docker" "$@") || exit
    case $said in
        *'
ExitCode=0
StartedAt="0001-'*'
DockerError=""'*)
            echo "k8spilot: docker's client went away before it started the job, which goes back to the queue" >&2
            exit 1 ;;
    esac
    printf '%s\\n' "$said"
}

begin_session() {
    for place in 1 2 3 4 5 6 7 8; do
        exec 9>"$places/$place"
        flock --nonblock 9 && exec "$docker" "$@"  # which has the file open until it ends
    done
    echo "k8spilot: there are 8 sessions beside this job already; end one of them first" >&2
    exit 1
}

case "$1 $2 $3" in
    "pull "*) "$docker" "$@" || exit 0 ;;
    "create "*) shift; ask_again create --interactive "$@" ;;
    "info "*) ask_again "$@" ;;
    "start "*) shift; exec "$docker" start --interactive "$@" ;;
    "images --format "* | "tag "*) exit 0 ;;
    "inspect --format {{.Id}} {{.Metadata.LastTagTime}}") [ $# = 3 ] && exit 0; exec "$docker" "$@" ;;
    "inspect --format "*"StartedAt="*) look_after_start "$@" ;;
    "exec "*) begin_session "$@" ;;
    "inspect --format {{.Architecture}}") "$docker" "$@" 2>/dev/null || exit 0 ;;
    *) exec "$docker" "$@" ;;
esac
"""

INVENTORY: Final = "/k8spilot/gpus/inventory"
"""Where the engine tells HTCondor of GPUs, on the Docker socket."""
_INVENTORY_SECONDS: Final = 180
"""The engine looks for GPUs first, for a minute at most; HTCondor reads its inventory once in its life."""
_GPUS: Final = f"""\
#!/bin/sh
# Prints HTCondor's inventory of GPUs, once the engine has found them; without an answer there are none.
{{python}} -IS {{program}} {{socket}} {INVENTORY} {_INVENTORY_SECONDS} || echo DetectedGPUs=0
"""
_BY_ROOT: Final = """\
    "create "*) shift; ask_again create --interactive "$@" ;;
"""
_BY_ANOTHER: Final = """\
    "create "*) shift; (create "$@") || exit; open_sandbox; exit 0 ;;
"""
_OPEN_SANDBOX: Final = """\
# HTCondor is not root, and sandboxes are its own: the job, whose container has the group of their folder, may
# change what is in this one, but put nothing in its place. Not before the container of the job before has ended, which
# it has when `create` is answered.
open_sandbox() {
    for folder in EXECUTE/dir_*; do
        find "$folder/scratch" "$folder/user" -xdev ! -type l -user "$(id -u)" \\
            -exec chgrp "$(stat --format %g EXECUTE)" {} + -exec chmod g+rwX {} + -type d -exec chmod g+s {} +
    done 2>/dev/null
}

# The engine has no sandboxes here, so that how many of the slot's GPUs the job has asked for is to be told: HTCondor
# names all of them to each job.
create() {
    case " $*" in
        *" CUDA_VISIBLE_DEVICES=GPU-"* | *" CUDA_VISIBLE_DEVICES=MIG-"*)
            set -- --label "k8spilot.gpus=$(count_gpus "$@")" "$@" ;;
    esac
    ask_again create --interactive "$@"
}

# Nothing where that is not known. A job can have put a link or a pipe in the place of its ad, and any figure into it.
count_gpus() {
    for one; do
        case $one in
            _CONDOR_SCRATCH_DIR=*)
                said=$(dd "if=${one#*=}/.job.ad" iflag=nofollow,nonblock bs=64K count=64 2>/dev/null) || return
                said=$(printf '%s\\n' "$said" |
                    sed -n '/^RequestGPUs[ \\t]*=/I{s/^[^=]*=[ \\t]*//;s/[ \\t\\r]*$//;p;q}')
                case ${said:=0} in *[!0-9]* | ?????*) ;; *) echo "$said" ;; esac
                return ;;
        esac
    done
}

ask_again() {"""

NEXT_JOB: Final = "/k8spilot/next-job"
"""Where the engine tells that nothing is left of earlier jobs, on the Docker socket."""
_NEXT_SECONDS: Final = 300
"""Longer than an engine needs that is started again, and for what a job can have left."""
_STARTER: Final = f"""\
#!/bin/sh
# HTCondor's starter, once the engine says that nothing is left of earlier jobs: the first thing that a starter does is
# to bring the job's files. Without that word there is no starter, and the job goes back to the queue.
starter={{starter}}
{{functions}}case $1 in
    -classad) ;;
    *) {{before}}{{python}} -IS {{program}} {{socket}} {NEXT_JOB} {_NEXT_SECONDS} >/dev/null || exit 1{{after}} ;;
esac
exec "$starter" "$@"
"""
_SWEEP: Final = """\
# HTCondor is not root, and what a starter was made to write, or left when it was killed, is of the same user as the
# next one's. No starter runs but this one, which has no sandbox yet. Sandboxes of lost jobs in which something is
# locked are opened to the jobs' user, who then opens that (the engine sees to it). If one stays all the same, there is
# no starter, either.
left() { find EXECUTE -mindepth 1 -maxdepth 1 -name 'dir_*' -type d "$@" 2>/dev/null; }
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
        SurroundingsError: an account, a folder or a credential is missing.
        SettingsError: an expression of the operator cannot be parsed.
    """
    is_root = os.geteuid() == 0
    folders.prepare()
    passwords = tokens.install(settings, folders)
    user = _account(settings.payload_uid)
    text = config.render(
        settings, folders, started=started, passwords=passwords, slot_user=user, facts=facts, rootless=not is_root
    )
    _write(folders.config, text, 0o644)
    _write(folders.docker_client, DOCKER_CLIENT if is_root else rootless_client(folders.execute), 0o755)
    _write(folders.guard, _GUARD, 0o755)
    words = {"python": sys.executable, "program": ask.__file__, "socket": str(settings.socket)}
    quoted = {name: shlex.quote(word) for name, word in words.items()}
    starter = STARTER if settings.confine_starter and not is_root else _CONDOR_STARTER
    sweeps = () if is_root else (folders.execute, *_TEMPORARY)
    _write(folders.starter, starter_program(starter, quoted, sweeps), 0o755)
    _write(folders.gpus, _GPUS.format(**quoted), 0o755)
    _write(folders.gpu_monitor, gpu_monitor.program(settings), 0o755)


def rootless_client(execute: Path) -> str:
    """The docker client where HTCondor is not root."""
    opening = _OPEN_SANDBOX.replace("EXECUTE", shlex.quote(str(execute)))
    return DOCKER_CLIENT.replace("ask_again() {", opening, 1).replace(_BY_ROOT, _BY_ANOTHER)


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
