"""Checks of the pilot's own container: programs, volumes and their space, user and capabilities."""

import asyncio
import ctypes
import os
import pwd
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from k8spilot.common.aio import output_of
from k8spilot.payload_init.install import PROGRAM
from k8spilot.preflight.finding import Finding, fault, good, judged, warning
from k8spilot.preflight.writable_volumes import read_only
from k8spilot.settings import Settings

TESTED: Final = (25, 14)
"""HTCondor version that the tests use."""
_OLDEST: Final = (25, 0)
"""Oldest supported HTCondor version: older starters do not support DEFAULT_CONTAINER_IMAGE as k8spilot uses it."""

_INODES: Final = 10_000
_MIB: Final = 1024 * 1024
_SMALL_MIB: Final = 16
"""Required free space of volumes other than the sandboxes', in MiB."""

CAPABILITIES: Final = {
    "CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "FSETID": 4, "KILL": 5, "SETGID": 6, "SETUID": 7
}  # fmt: skip
"""Required capabilities, with their numbers (linux/capability.h). The manifest states the purpose of each."""

_OF_THE_ENGINE: Final = (Path("/tmp"),)  # noqa: S108 -- of the engine's container
"""Folders that an engine without HTCondor writes to."""
_STATUS: Final = Path("/proc/self/status")
_VERSION: Final = re.compile(r"\$CondorVersion: (\d+)\.(\d+)\.(\d+)")
_PROGRAM_SECONDS: Final = 10.0


def container_findings(settings: Settings) -> Iterator[Finding]:
    """Make all checks of the own container that need no waiting."""
    yield from judged("programs", _programs(settings), "all programs are installed")
    yield from judged("volumes", _volumes(settings), "all are mounted and writable")
    yield from _space(settings)
    yield from judged("user", _user(settings), _good_user(settings))


def _programs(settings: Settings) -> Iterator[str]:
    for service, program in (("condor", "condor_master"), ("condor", "docker"), ("engine", "skopeo")):
        if service in settings.services and not shutil.which(program):
            yield f"{program} is not on PATH; use k8spilot's image, or one with HTCondor and the docker CLI installed"
    first = settings.exchange / PROGRAM
    if "engine" in settings.services and not os.access(first, os.X_OK):
        yield (
            f"{first} is missing; an init container must run `k8spilot install` with the exchange volume at "
            f"{settings.exchange}"
        )


def _used(settings: Settings) -> list[Path]:
    """Return the volumes that this container writes to."""
    return [
        *((settings.execute,) if "condor" in settings.services else ()),
        *((*settings.scratch_folders, settings.exchange) if "engine" in settings.services else ()),
    ]


def _volumes(settings: Settings) -> Iterator[str]:
    for folder in read_only():
        if "condor" not in settings.services and folder not in _OF_THE_ENGINE:
            continue
        yield f"{folder} is not writable; mount an emptyDir there, because the root file system is read-only"
    for volume in _used(settings):
        try:
            with tempfile.NamedTemporaryFile(dir=volume, prefix=".k8spilot-"):
                pass
        except FileNotFoundError:
            yield f"{volume} is missing; mount the payload container's volume there"
        except OSError as error:
            if error.errno != 28:  # ENOSPC: the check of the space reports it
                yield f"{volume} is not writable; mount the payload container's volume there, without readOnly"


def _space(settings: Settings) -> Iterator[Finding]:
    """Check the volumes' free space. The check of the volumes reports a missing one."""
    free_spaces = []
    for volume in _used(settings):
        try:
            space = os.statvfs(volume)
        except OSError:
            continue
        needed = settings.min_free_mb if volume == settings.execute else min(settings.min_free_mb, _SMALL_MIB)
        free = space.f_bavail * space.f_frsize // _MIB
        if free < needed:
            yield fault(
                "space",
                f"{volume} has {free} MiB free, and {needed} MiB are needed; free space on the node's disk, enlarge "
                "the volume, or lower K8SPILOT_MIN_FREE_MB",
            )
        # Some file systems allocate inodes on demand, and report none.
        elif space.f_files and space.f_favail < min(_INODES, space.f_files // 2):
            yield fault(
                "space",
                f"{volume} has {space.f_favail} inodes free, and {_INODES} are needed; remove files from the node's "
                "disk",
            )
        else:
            free_spaces.append(f"{volume} {free} MiB")
        limit = len(settings.slots) * settings.payload_disk_mb
        if volume == settings.execute and limit > free >= needed:
            yield warning(
                "space",
                f"{volume} has {free} MiB free, less than the {limit} MiB of the payload container's limit; set the "
                "request for ephemeral storage to the limit",
            )
    if free_spaces:
        yield good("space", f"free: {', '.join(free_spaces)}")


def _user(settings: Settings) -> Iterator[str]:
    if "condor" not in settings.services:
        return
    uid = os.geteuid()
    if uid != 0 and "engine" in settings.services:
        # HTCondor reads jobs' outputs with its own uid, and follows links.
        yield (
            f"the pilot runs with uid {uid}, so that a job could output the pilot's API token; set runAsUser: 0 "
            "for it, or run engine and HTCondor in a container each (components/restricted)"
        )
    elif uid != 0 and not _is_known(uid):
        yield f"the image has no account with the uid {uid}, and HTCondor does not start; use the uid of condor"
    elif uid != 0 and settings.confine_starter and not has_landlock():
        yield (
            "the node's kernel has no Landlock, so that a job could output the pool's token; use nodes with "
            "Linux 5.19 or newer and Landlock enabled, or the base, or set K8SPILOT_CONFINE_STARTER=false if jobs' "
            "owners may have the token"
        )
    elif uid == 0:
        held = int(re.findall(r"^CapEff:\s*([0-9a-f]+)", _STATUS.read_text(), re.MULTILINE)[0], 16)
        if missing := [name for name, number in CAPABILITIES.items() if not held >> number & 1]:
            yield f"the pilot lacks the capabilities {', '.join(missing)}; add them in its securityContext"
    for slot in settings.slots:
        if not _is_known(slot.uid):
            yield (
                f"the image has no account with the uid {slot.uid} (K8SPILOT_PAYLOAD_UID), which HTCondor needs to run "
                "jobs; use one that it has, or add a line to /etc/passwd"
            )


def _good_user(settings: Settings) -> str:
    if os.geteuid() == 0:
        return "root, with the capabilities that a pilot needs"
    return f"uid {os.geteuid()}, without capabilities, for {' and '.join(settings.services)}"


def has_landlock() -> bool:
    """Return whether the kernel has landlock(7) and no system call filter forbids it."""
    create_ruleset, version = 444, 1
    return bool(ctypes.CDLL(None).syscall(create_ruleset, None, ctypes.c_size_t(0), version) > 0)


def _is_known(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


async def htcondor_finding() -> Finding:
    """Ask HTCondor for its version. It needs no configuration, and the pilot's (CONDOR_CONFIG) may not be there yet."""
    environment = {name: value for name, value in os.environ.items() if name != "CONDOR_CONFIG"}
    try:
        process = await asyncio.create_subprocess_exec(
            "condor_version", stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL, env=environment,
        )  # fmt: skip
        async with asyncio.timeout(_PROGRAM_SECONDS):
            output = await output_of(process)
    except (OSError, TimeoutError) as error:
        return fault("HTCondor", f"condor_version does not run ({error or 'no answer'}); use k8spilot's image")
    return version_finding(output.decode(errors="replace"))


def version_finding(output: str) -> Finding:
    """Check the output of condor_version."""
    match = _VERSION.search(output)
    if match is None:
        return fault("HTCondor", f"condor_version prints {output[:80]!r} instead of a version; use k8spilot's image")
    version = tuple(int(part) for part in match.groups())
    text = ".".join(match.groups())
    if version < _OLDEST:
        return fault("HTCondor", f"HTCondor {text} is too old; use 25.0 or newer")
    if version[:2] < TESTED:
        return warning("HTCondor", f"HTCondor {text} is older than {TESTED[0]}.{TESTED[1]}, the tested version")
    return good("HTCondor", f"version {text}")
