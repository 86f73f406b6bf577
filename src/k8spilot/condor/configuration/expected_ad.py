"""The ad of a slot that a pilot with some settings would have, for matching without a pilot.

The configuration is the pilot's own (values.py), and HTCondor's library expands its macros. The attributes that the
startd and the starter add are those of the image's HTCondor; a test (test_expected_ad.py) compares with a pilot.
"""

import asyncio
import json
import os
import platform
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from k8spilot.common.aio import output_of
from k8spilot.common.errors import SettingsError
from k8spilot.condor.configuration.classads import quoted
from k8spilot.condor.configuration.values import machine_name, render
from k8spilot.condor.folders import Folders
from k8spilot.settings import Settings

_EXPAND_SECONDS: Final = 60.0
"""Limit of the program that expands the configuration."""
_ABILITIES: Final = (
    "HasContainer",
    "HasDocker",
    "HasDockerURL",
    "HasFileTransfer",
    "HasIOProxy",
    "HasJICLocalConfig",
    "HasJICLocalStdin",
    "HasJobDeferral",
    "HasJobNetworking",
    "HasJobTransferPlugins",
    "HasOsUser",
    "HasPerFileEncryption",
    "HasReconnect",
    "HasSelfCheckpointTransfers",
    "HasTDP",
    "HasTransferInputRemaps",
)
"""Abilities that HTCondor's starter reports (`condor_starter -classad`)."""
_FACTS: Final = {
    "Activity": '"Idle"',
    "CondorVersion": '"$CondorVersion: 25.14.1 2026-10-16 $"',
    "DockerNetworks": '"bridge"',
    "HasCommonFilesTransfer": "2",
    "HasFileTransferPluginMethods": '"box,data,dav,davs,file,ftp,gdrive,http,https,onedrive,s3,gs"',
    "HasVM": "false",
    "MyType": '"Machine"',
    "OpSys": '"LINUX"',
    "OpSysAndVer": '"Debian0"',
    "OpSysName": '"Debian"',
    "OpSysShortName": '"Debian"',
    "SlotID": "1",
    "State": '"Unclaimed"',
    "TargetType": '"Job"',
}


async def expected_attributes(settings: Settings, now: float, *, rootless: bool) -> dict[str, str]:
    """Return attributes of all slots of such a pilot, and their ClassAd expressions in HTCondor's old syntax.

    Resources are not among them.

    Args:
        settings: settings of the pilot, with those of the condor service.
        now: time of the pilot's start, in seconds since the epoch.
        rootless: whether HTCondor runs without root.

    Raises:
        SettingsError: the settings are invalid for HTCondor.
    """
    with tempfile.TemporaryDirectory(prefix="k8spilot-ad-") as root:
        folders = Folders(execute_volume=settings.execute, root=Path(root))
        file = Path(root) / "condor_config"
        file.write_text(render(settings, folders, started=int(now), rootless=rootless))
        parameters = await _expanded(file)
    attributes = dict(_FACTS)
    attributes |= dict.fromkeys(_ABILITIES, "true")
    names = {name.lower(): name for name in parameters["STARTD_ATTRS"].replace(",", " ").split()}
    attributes |= {name: parameters[name] for name in names.values() if parameters.get(name)}
    attributes["Start"] = parameters["START"]
    attributes["Requirements"] = "Start"
    attributes["Arch"] = quoted({"x86_64": "X86_64"}.get(platform.machine(), platform.machine()))
    attributes["Machine"] = quoted(machine_name(settings))
    attributes["Name"] = quoted(f"slot1@{machine_name(settings)}")
    return attributes


async def _expanded(file: Path) -> Mapping[str, str]:
    """Return parameters of a configuration, by a process of its own: HTCondor's library reads its file once."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "k8spilot.condor.configuration.expand",
        env={**os.environ, "CONDOR_CONFIG": str(file)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(_EXPAND_SECONDS):
        output = await output_of(process)
    if process.returncode:
        raise SettingsError(
            "HTCondor cannot read the configuration of such a pilot; run `k8spilot check --manifest` on its manifest"
        )
    parameters: dict[str, str] = json.loads(output)
    return parameters
