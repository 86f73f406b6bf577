"""HTCondor's DOCKER: the program between HTCondor and docker's command line client (scripts/docker-client.sh)."""

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
_SECONDS: Final = 30.0
_QUOTED: Final = re.compile(r"'((?:[^']|'')*)'")
_WORD: Final = re.compile(r"(?:'(?:[^']|'')*'|[^\s'])+")


def install(folders: Folders, *, rootless: bool) -> None:
    """Write the program and its settings to where HTCondor's configuration names it.

    The configuration is read for this, so it has to be written before.

    Args:
        folders: where HTCondor's files are.
        rootless: whether HTCondor is not root.

    Raises:
        SurroundingsError: DOCKER_EXTRA_ARGUMENTS in the operator's configuration cannot be read.
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
    """What the program reads of one pilot, as assignments of a shell.

    Args:
        docker: docker's own client.
        execute: HTCondor's EXECUTE where HTCondor is not root, in which the program opens sandboxes for their jobs.
        extra: the words of DOCKER_EXTRA_ARGUMENTS.
    """
    values = {"docker": str(docker), "execute": str(execute or ""), "extra": shlex.join(extra)}
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
