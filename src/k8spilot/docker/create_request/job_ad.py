"""Requests of a job, from the job's ad, which the starter writes into the sandbox before it requests a container."""

import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from k8spilot.model.disk import LastRun

_NAME: Final = ".job.ad"
_SANDBOX: Final = "_CONDOR_SCRATCH_DIR="
_MOST_BYTES: Final = 4 * 1024 * 1024
_BEGINS: Final = ("JobLastStartDate", "JobCurrentStartDate", "JobCurrentStartExecutingDate")
_NAMES: Final = ("RequestGPUs", "RequestDisk", "LastRemoteHost", "LastVacateTime", "NumJobStarts", *_BEGINS)
_ATTRIBUTE: Final = re.compile(rb"^(%s)[ \t]*=([^\n]*)$" % "|".join(_NAMES).encode(), re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class JobAd:
    """The ad of a job, where the engine sees the sandboxes: if HTCondor is root.

    A job can have any value here: its submit file sets attributes (`+Name = ...`), and it can write a file of its own.
    A forged value affects three things only. The first two are the job's own GPU variables, and its own disk limit up
    to that of the slot. The third is the pod of the namespace whose status the pilot reads before it holds this job
    (condor/configuration/values.py): the job can name any pod, and sees only the kubelet's message about its disk.
    """

    values: Mapping[str, bytes] | None = field(repr=False)
    """Expressions of the attributes in _NAMES that the ad has, by their names in lower case; None without an ad."""

    @classmethod
    def read(cls, environment: Iterable[str], execute: str) -> "JobAd":
        """Read the ad.

        Args:
            environment: environment of the job, in which the starter names the sandbox.
            execute: folder of the sandboxes.
        """
        folder = Path(next((text.removeprefix(_SANDBOX) for text in environment if text.startswith(_SANDBOX)), "/"))
        if not folder.is_relative_to(execute) or ".." in folder.parts:
            return cls(None)
        try:
            file = os.open(folder / _NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return cls(None)
        with os.fdopen(file, "rb") as ad:
            return cls.of(ad.read(_MOST_BYTES)) if stat.S_ISREG(os.fstat(file).st_mode) else cls(None)

    @classmethod
    def of(cls, text: bytes) -> "JobAd":
        """Return the ad of a text, in one pass: a job may have a large ad. The first of equal names counts."""
        values: dict[str, bytes] = {}
        for match in _ATTRIBUTE.finditer(text):
            values.setdefault(match[1].decode().lower(), match[2].strip())
        return cls(values)

    @property
    def gpus(self) -> int | None:
        """Number of GPUs that the job requested; None without an ad, or if the ad has an expression."""
        if self.values is None:
            return None
        value = self._value("RequestGPUs")
        return 0 if value is None else int(value) if re.fullmatch(rb"\d{1,4}", value) else None

    @property
    def disk(self) -> int | None:
        """Disk that the job requested, in bytes.

        None if it requested nothing: condor_submit then writes the expression DiskUsage, which grows with the job.
        """
        value = self._value("RequestDisk")
        return int(value) * 1024 if value is not None and re.fullmatch(rb"\d{1,15}", value) else None

    @property
    def last_run(self) -> LastRun | None:
        """The job's last run, if the job was vacated.

        Its begin is the latest one before that: the schedd moves JobCurrentStartDate to JobLastStartDate when it starts
        the job again, and this ad may be of either side of that.
        """
        value = self._value("LastRemoteHost") or b""
        match = re.fullmatch(rb'"(?:([^"@]{0,100})@)?([A-Za-z0-9._-]{1,600})"', value)
        vacated = self._number("LastVacateTime")
        if match is None or not vacated:
            return None
        begins = [begin for begin in map(self._number, _BEGINS) if begin is not None and begin <= vacated]
        is_first, slot = (self._number("NumJobStarts") or 0) < 2, (match[1] or b"").decode(errors="replace")
        return LastRun(
            host=match[2].decode(), vacated=vacated, began=max(begins, default=None), is_first=is_first, slot=slot
        )

    def _number(self, name: str) -> int | None:
        value = self._value(name) or b""
        return int(value) if re.fullmatch(rb"\d{1,12}", value) else None

    def _value(self, name: str) -> bytes | None:
        """Return the expression of an attribute; None if the ad does not have it."""
        return (self.values or {}).get(name.lower())
