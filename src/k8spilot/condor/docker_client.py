"""Installation of HTCondor's DOCKER: the program between HTCondor and docker's client (scripts/docker-client.sh)."""

import json
import logging
import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from k8spilot.common.errors import PreflightError
from k8spilot.condor.folders import Folders, write
from k8spilot.settings import SENDS_CREDENTIALS

logger = logging.getLogger(__name__)

PROGRAM: Final = Path(__file__).with_name("scripts") / "docker-client.sh"
DOCKER: Final = Path("/usr/bin/docker")
"""Docker's own client in the image."""
_TOOL_SECONDS: Final = 30.0
_QUOTED: Final = re.compile(r"'((?:[^']|'')*)'")
_WORD: Final = re.compile(r"(?:'(?:[^']|'')*'|[^\s'])+")


def install(folders: Folders, *, rootless: bool) -> None:
    """Write the program and its settings to the paths that HTCondor's configuration names.

    The configuration must exist already: this function reads it.

    Args:
        folders: paths of HTCondor's files.
        rootless: whether HTCondor runs without root.

    Raises:
        PreflightError: DOCKER_EXTRA_ARGUMENTS in the operator's configuration is invalid.
    """
    extra = _extra_arguments(folders)
    if extra:
        logger.info("docker create has the operator's arguments %s.", shlex.join(extra))
    text = settings(DOCKER, folders.execute if rootless else None, extra)
    write(folders.docker_client_settings, text, 0o644)
    headers = json.dumps({"HttpHeaders": {SENDS_CREDENTIALS: "true"}})
    write(folders.docker_config_of_senders / "config.json", headers, 0o644)
    write(folders.docker_client, PROGRAM.read_text(), 0o755)


def settings(docker: Path, execute: Path | None = None, extra: Sequence[str] = ()) -> str:
    """Return the program's settings for one pilot, as shell assignments.

    Args:
        docker: docker's own client.
        execute: HTCondor's EXECUTE if HTCondor is not root. The program then opens the sandboxes there for their jobs.
        extra: arguments of DOCKER_EXTRA_ARGUMENTS.
    """
    values = {"docker": str(docker), "execute": str(execute or ""), "extra": shlex.join(extra)}
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
