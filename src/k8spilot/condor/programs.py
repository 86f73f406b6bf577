"""Installation of the programs that HTCondor runs: scripts/, docker-client, and their settings for one pilot."""

import logging
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from k8spilot.common import pilot_api
from k8spilot.common.errors import PilotError, PreflightError
from k8spilot.common.files import LIBEXEC, link, write
from k8spilot.condor.folders import Folders
from k8spilot.settings import Settings, SlotSettings

logger = logging.getLogger(__name__)

SCRIPTS: Final = Path(__file__).with_name("scripts")
DOCKER: Final = Path("/usr/bin/docker")
"""Docker's own client in the image."""
_CONDOR_STARTER: Final = Path("/usr/sbin/condor_starter")
STARTER: Final = LIBEXEC / "starter"
"""Path in the image of the program that confines condor_starter (condor/starter.c)."""
_TIDY: Final = LIBEXEC / "tidy"
ENGINE_GET: Final = LIBEXEC / "engine-get"
"""Path in the image of the program by which the scripts ask the engine (condor/engine-get.c)."""
DOCKER_CLIENT: Final = LIBEXEC / "docker-client"
"""Path in the image of the program that HTCondor runs as docker's client (condor/docker-client.c)."""
_TEMPORARY: Final = "/tmp /var/tmp"  # noqa: S108
"""Folders for temporary files of the starters of the only slot. Each of several has a part of /var/tmp, since in /tmp
every starter can write (condor/starter.c)."""
_TOOL_SECONDS: Final = 30.0
_QUOTED: Final = re.compile(r"'((?:[^']|'')*)'")
_WORD: Final = re.compile(r"(?:'(?:[^']|'')*'|[^\s'])+")


def install(
    settings: Settings,
    folders: Folders,
    *,
    rootless: bool,
    check_extra: Callable[[Sequence[str]], None],
) -> None:
    """Write the programs and their settings to the paths that HTCondor's configuration names.

    The configuration must exist already: this function reads it. The files belong to the user that installs them (root
    or HTCondor's) and are in a folder of that user, so that no job can change them.

    Args:
        settings: settings of the pilot.
        folders: paths of HTCondor's files.
        rootless: whether HTCondor runs without root.
        check_extra: raises PilotError for arguments of DOCKER_EXTRA_ARGUMENTS that the engine does not support.

    Raises:
        PreflightError: DOCKER_EXTRA_ARGUMENTS in the operator's configuration is invalid.
    """
    extra = _checked_arguments(folders, check_extra)
    write(folders.program_settings, assignments(_for_all_slots(settings, rootless=rootless)), 0o644)
    for slot in settings.slots:
        write(folders.slot_settings(slot.name), assignments(_for_slot(slot)), 0o644)
    for program in folders.programs:
        write(program, script(program.name).read_text(), 0o755)
    write(folders.docker_client_settings, words("yes" if rootless else "", str(DOCKER), *extra), 0o644)
    link(folders.docker_client, DOCKER_CLIENT)


def _for_all_slots(settings: Settings, *, rootless: bool) -> dict[str, str]:
    return {
        "starter": str(STARTER if settings.confine_starter and rootless else _CONDOR_STARTER),
        "tidy": str(_TIDY),
        "client": str(ENGINE_GET),
        "socket": str(settings.socket),
        "rootless": "yes" if rootless else "",
        "slot": settings.slots[0].name,
        "next_job": pilot_api.NEXT_JOB,
        "inventory": pilot_api.INVENTORY,
        "gpu_monitor": pilot_api.GPU_MONITOR,
    }


def _for_slot(slot: SlotSettings) -> dict[str, str]:
    return {
        "execute": str(slot.execute),
        "temporary": _TEMPORARY if slot.is_only else f"/var/tmp/{slot.sub_path}",  # noqa: S108
        "slot_socket": str(slot.socket),
        "docker_host": f"unix://{slot.htcondor_socket}",
    }


def script(name: str) -> Path:
    """Return the path of a program's source."""
    return SCRIPTS / f"{name}.sh"


def words(*texts: str) -> str:
    """Return settings of docker-client, which reads no shell's language: words that each end with a NUL."""
    return "".join(f"{text}\0" for text in texts)


def assignments(values: Mapping[str, str]) -> str:
    """Return settings of the programs for one pilot as shell assignments; each program lists those that it needs."""
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())


def split_arguments(text: str) -> list[str]:
    """Return the arguments that HTCondor makes of DOCKER_EXTRA_ARGUMENTS (arglist.cpp, AppendArgsV1RawOrV2Quoted).

    White space separates arguments. In a text in double quotes, single quotes group words, and a doubled quote stands
    for one quote.

    Raises:
        ValueError: a quote is not closed.
    """
    text = text.strip()
    if not text.startswith('"'):
        return text.split()
    if len(text) < 2 or not text.endswith('"'):
        raise ValueError("it begins with a double quote and does not end with one")
    inner = text[1:-1].replace('""', '"')
    arguments = [match[0] for match in _WORD.finditer(inner)]
    if "'" in _WORD.sub("", inner):
        raise ValueError("a single quote is not closed")
    return [_QUOTED.sub(lambda match: match[1].replace("''", "'"), argument) for argument in arguments]


def _checked_arguments(folders: Folders, check: Callable[[Sequence[str]], None]) -> list[str]:
    extra = _extra_arguments(folders)
    try:
        check(extra)
    except PilotError as error:
        raise PreflightError(str(error)) from None
    if extra:
        logger.info("docker create has the operator's arguments %s.", shlex.join(extra))
    return extra


def _extra_arguments(folders: Folders) -> list[str]:
    """Return the arguments of DOCKER_EXTRA_ARGUMENTS from the configuration that HTCondor's starters read."""
    command = ("condor_config_val", "-subsystem", "STARTER", "DOCKER_EXTRA_ARGUMENTS")
    environment = {**os.environ, "CONDOR_CONFIG": str(folders.config)}
    try:
        result = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_TOOL_SECONDS, check=False
        )
        # condor_config_val ends with 1 if the setting is undefined, and if there is no configuration.
        return split_arguments(result.stdout) if result.returncode == 0 else []
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PreflightError(
            f"condor_config_val does not run for DOCKER_EXTRA_ARGUMENTS ({error}); use k8spilot's image"
        ) from None
    except ValueError as error:
        raise PreflightError(
            f"DOCKER_EXTRA_ARGUMENTS in HTCondor's configuration is invalid: {error}; correct it in the ConfigMap "
            "condor-config"
        ) from None
