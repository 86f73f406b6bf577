"""The programs that HTCondor runs for k8spilot: the shell programs in scripts/, and what they read of one pilot."""

import json
import logging
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from k8spilot.common import engine_api, unix_http
from k8spilot.common.errors import PreflightError
from k8spilot.condor.folders import Folders, write
from k8spilot.settings import SENDS_CREDENTIALS, Settings

logger = logging.getLogger(__name__)

SCRIPTS: Final = Path(__file__).with_name("scripts")
DOCKER: Final = Path("/usr/bin/docker")
"""Docker's own client in the image."""
_CONDOR_STARTER: Final = Path("/usr/sbin/condor_starter")
_LIBEXEC: Final = Path("/opt/k8spilot/libexec")
STARTER: Final = _LIBEXEC / "starter"
"""Where the image has the program that confines condor_starter (condor/starter.c)."""
_TIDY: Final = _LIBEXEC / "tidy"
_TEMPORARY: Final = ("/tmp", "/var/tmp")  # noqa: S108 -- a starter's own in that container
_SECONDS: Final = 30.0
_QUOTED: Final = re.compile(r"'((?:[^']|'')*)'")
_WORD: Final = re.compile(r"(?:'(?:[^']|'')*'|[^\s'])+")


def install(settings: Settings, folders: Folders, *, rootless: bool) -> None:
    """Write the programs and their settings to where HTCondor's configuration names them.

    The configuration is read for this, so it has to be written before. The programs, and what they read, are files of
    the user that installs them, which is root or HTCondor's, in a folder of that user: no job can change them.

    Args:
        settings: the pilot's.
        folders: where HTCondor's files are.
        rootless: whether HTCondor is not root.

    Raises:
        SurroundingsError: DOCKER_EXTRA_ARGUMENTS in the operator's configuration cannot be read.
    """
    extra = _extra_arguments(folders)
    if extra:
        logger.info("docker create has the operator's arguments %s.", shlex.join(extra))
    values = {
        "docker": str(DOCKER),
        "extra": shlex.join(extra),
        "starter": str(STARTER if settings.confine_starter and rootless else _CONDOR_STARTER),
        "execute": str(folders.execute) if rootless else "",
        "temporary": " ".join(_TEMPORARY),
        "tidy": str(_TIDY),
        "python": sys.executable,
        "client": unix_http.__file__,
        "socket": str(settings.socket),
        "next_job": engine_api.NEXT_JOB,
        "inventory": engine_api.INVENTORY,
        "gpu_monitor": engine_api.GPU_MONITOR,
    }
    write(folders.program_settings, assignments(values), 0o644)
    headers = json.dumps({"HttpHeaders": {SENDS_CREDENTIALS: "true"}})
    write(folders.docker_config_of_senders / "config.json", headers, 0o644)
    for program in folders.programs:
        write(program, script(program.name).read_text(), 0o755)


def script(name: str) -> Path:
    """Where the source of a program is."""
    return SCRIPTS / f"{name}.sh"


def assignments(values: Mapping[str, str]) -> str:
    """What the programs read of one pilot, as assignments of a shell; each program says which it needs."""
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())


def words(text: str) -> list[str]:
    """The arguments that HTCondor makes of DOCKER_EXTRA_ARGUMENTS (arglist.cpp, AppendArgsV1RawOrV2Quoted).

    White space divides them. In a text in double quotes, single quotes keep words together, and two quotes of a kind
    stand for one.

    Raises:
        ValueError: a quote has no other one.
    """
    text = text.strip()
    if not text.startswith('"'):
        return text.split()
    if len(text) < 2 or not text.endswith('"'):
        raise ValueError("it begins with a double quote and does not end with one")
    inner = text[1:-1].replace('""', '"')
    found = [match[0] for match in _WORD.finditer(inner)]
    if "'" in _WORD.sub("", inner):
        raise ValueError("a single quote has no other one")
    return [_QUOTED.sub(lambda match: match[1].replace("''", "'"), one) for one in found]


def _extra_arguments(folders: Folders) -> list[str]:
    """The words of DOCKER_EXTRA_ARGUMENTS in the configuration that HTCondor's starters are going to read."""
    command = ("condor_config_val", "-subsystem", "STARTER", "DOCKER_EXTRA_ARGUMENTS")
    environment = {**os.environ, "CONDOR_CONFIG": str(folders.config)}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False)
        # It ends with 1 where the setting is not defined, and where there is no configuration to read it in.
        return words(done.stdout) if done.returncode == 0 else []
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PreflightError(f"condor_config_val cannot be run for DOCKER_EXTRA_ARGUMENTS ({error})") from None
    except ValueError as error:
        raise PreflightError(
            f"DOCKER_EXTRA_ARGUMENTS in HTCondor's configuration cannot be read: {error}; mend it in the ConfigMap "
            "condor-config"
        ) from None
