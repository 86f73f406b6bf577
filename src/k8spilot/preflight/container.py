"""The pilot's own container: programs, volumes and their space, user and capabilities."""

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

from k8spilot.payload_init.install import PROGRAM
from k8spilot.preflight.finding import Finding, fault, good, judged, warning
from k8spilot.preflight.writable_volumes import read_only
from k8spilot.settings import Settings

TESTED: Final = (25, 14)
"""The HTCondor that the tests run with."""
_OLDEST: Final = (25, 0)
"""Before it, a starter has no DEFAULT_CONTAINER_IMAGE as it is used here."""

_INODES: Final = 10_000
_MIB: Final = 1024 * 1024
_SMALL_MIB: Final = 16
"""What has to be free in volumes that are not the sandboxes'."""

CAPABILITIES: Final = {
    "CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "FSETID": 4, "KILL": 5, "SETGID": 6, "SETUID": 7
}  # fmt: skip
"""By number (linux/capability.h); the manifest says what each is for."""

_OF_THE_ENGINE: Final = (Path("/tmp"),)  # noqa: S108 -- its own
"""What the engine writes to of all that HTCondor does, where that is in another container."""
_STATUS: Final = Path("/proc/self/status")
_VERSION: Final = re.compile(r"\$CondorVersion: (\d+)\.(\d+)\.(\d+)")
_PROGRAM_SECONDS: Final = 10.0


def container_findings(settings: Settings) -> Iterator[Finding]:
    """Look at everything in the own container that takes no waiting."""
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
    """The volumes that this container writes to."""
    return [
        *((settings.execute,) if "condor" in settings.services else ()),
        *((*settings.scratch_folders, settings.exchange) if "engine" in settings.services else ()),
    ]


def _volumes(settings: Settings) -> Iterator[str]:
    for folder in read_only():
        if "condor" not in settings.services and folder not in _OF_THE_ENGINE:
            continue
        yield f"{folder} cannot be written to; mount an emptyDir there, since the root file system is read-only"
    for volume in _used(settings):
        try:
            with tempfile.NamedTemporaryFile(dir=volume, prefix=".k8spilot-"):
                pass
        except FileNotFoundError:
            yield f"{volume} is missing; mount the payload container's volume there"
        except OSError as error:
            if error.errno != 28:  # that it is full, is told below
                yield f"{volume} cannot be written to; mount the payload container's volume there, without readOnly"


def _space(settings: Settings) -> Iterator[Finding]:
    """Judge the volumes' free space; one that is missing was told already."""
    seen = []
    for volume in _used(settings):
        try:
            there = os.statvfs(volume)
        except OSError:
            continue
        needed = settings.min_free_mb if volume == settings.execute else min(settings.min_free_mb, _SMALL_MIB)
        free = there.f_bavail * there.f_frsize // _MIB
        if free < needed:
            yield fault(
                "space",
                f"{volume} has {free} MiB free, and {needed} MiB are needed; the node's disk is full, or the volume "
                "too small (K8SPILOT_MIN_FREE_MB says how much a site wants)",
            )
        # Some file systems make inodes as they need them, and count none.
        elif there.f_files and there.f_favail < min(_INODES, there.f_files // 2):
            yield fault(
                "space",
                f"{volume} has {there.f_favail} inodes free, and {_INODES} are needed; the node's disk has too many "
                "files",
            )
        else:
            seen.append(f"{volume} {free} MiB")
        if volume == settings.execute and settings.payload_disk_mb > free >= needed:
            yield warning(
                "space",
                f"{volume} has {free} MiB free, less than the {settings.payload_disk_mb} MiB that the payload "
                "container's limit promises; request as much ephemeral storage as the limit is",
            )
    if seen:
        yield good("space", f"free: {', '.join(seen)}")


def _user(settings: Settings) -> Iterator[str]:
    if "condor" not in settings.services:
        return
    uid = os.geteuid()
    if uid != 0 and "engine" in settings.services:
        # HTCondor reads jobs' outputs with its own uid, and follows links.
        yield (
            f"the pilot runs with uid {uid}, so that a job's output could be the pilot's API token; set runAsUser: 0 "
            "for it, or give engine and HTCondor a container each (components/restricted)"
        )
    elif uid != 0 and not _is_known(uid):
        yield f"the image has no account with the uid {uid}, without which HTCondor does not start; use condor's"
    elif uid != 0 and settings.confine_starter and not has_landlock():
        yield (
            "the node's kernel has no Landlock, without which a job's output could be the pool's token; use nodes with "
            "Linux 5.19 or newer and Landlock enabled, or the base, or set K8SPILOT_CONFINE_STARTER=false if jobs' "
            "owners may have the token"
        )
    elif uid == 0:
        held = int(re.findall(r"^CapEff:\s*([0-9a-f]+)", _STATUS.read_text(), re.MULTILINE)[0], 16)
        if missing := [name for name, number in CAPABILITIES.items() if not held >> number & 1]:
            yield f"the pilot lacks the capabilities {', '.join(missing)}; add them in its securityContext"
    if not _is_known(settings.payload_uid):
        yield (
            f"the image has no account with the uid {settings.payload_uid} (K8SPILOT_PAYLOAD_UID), by whose name "
            "HTCondor could run jobs; use 65534, or add a line to /etc/passwd"
        )


def _good_user(settings: Settings) -> str:
    if os.geteuid() == 0:
        return "root, with the capabilities that a pilot needs"
    return f"uid {os.geteuid()}, without capabilities, for {' and '.join(settings.services)}"


def has_landlock() -> bool:
    """Ask the kernel, and whatever filters system calls, for landlock(7)."""
    create_ruleset, version = 444, 1
    return bool(ctypes.CDLL(None).syscall(create_ruleset, None, ctypes.c_size_t(0), version) > 0)


def _is_known(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


async def htcondor_finding() -> Finding:
    """Ask HTCondor for its version."""
    try:
        process = await asyncio.create_subprocess_exec(
            "condor_version", stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        async with asyncio.timeout(_PROGRAM_SECONDS):
            said, _ = await process.communicate()
    except (OSError, TimeoutError) as error:
        return fault("HTCondor", f"condor_version does not run ({error or 'no answer'}); use k8spilot's image")
    return version_finding(said.decode(errors="replace"))


def version_finding(said: str) -> Finding:
    """Judge what condor_version says."""
    match = _VERSION.search(said)
    if match is None:
        return fault("HTCondor", f"condor_version says {said[:80]!r}, which is no version; use k8spilot's image")
    version = tuple(int(part) for part in match.groups())
    text = ".".join(match.groups())
    if version < _OLDEST:
        return fault("HTCondor", f"HTCondor {text} is too old; use 25.0 or newer")
    if version[:2] < TESTED:
        return warning("HTCondor", f"HTCondor {text} is older than {TESTED[0]}.{TESTED[1]}, with which this was tested")
    return good("HTCondor", f"version {text}")
