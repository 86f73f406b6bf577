"""Requests of a job, from the job's ad, which the starter writes into the sandbox before it requests a container."""

import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from k8spilot.model.disk import LastRun

_NAME: Final = ".job.ad"
_SANDBOX: Final = "_CONDOR_SCRATCH_DIR="
_MOST_BYTES: Final = 4 * 1024 * 1024
_BEGINS: Final = ("JobLastStartDate", "JobCurrentStartDate", "JobCurrentStartExecutingDate")


@dataclass(frozen=True, slots=True)
class JobAd:
    """The ad of a job, where the engine sees the sandboxes: if HTCondor is root.

    A job can have any value here: its submit file sets attributes (`+Name = ...`), and it can write a file of its own.
    Such values steer the variables about GPUs that the job has anyway, its own limit of the disk below what the slot
    has, and the pod of the namespace whose status the pilot reads to hold this job: any name that a pod can have
    (condor/config.py). The job gets to see no more of that pod than the kubelet's words about the disk.
    """

    text: bytes | None
    """The ad; None if it cannot be read."""

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
            return cls(ad.read(_MOST_BYTES) if stat.S_ISREG(os.fstat(file).st_mode) else None)

    @property
    def gpus(self) -> int | None:
        """Number of GPUs that the job requested; None without an ad, or if the ad has an expression."""
        if self.text is None:
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
        match = re.fullmatch(rb'"(?:[^"@]*@)?([A-Za-z0-9._-]{1,600})"', value)
        vacated = self._number("LastVacateTime")
        if match is None or not vacated:
            return None
        begins = [begin for begin in map(self._number, _BEGINS) if begin is not None and begin <= vacated]
        return LastRun(match[1].decode(), vacated, max(begins, default=None), (self._number("NumJobStarts") or 0) < 2)

    def _number(self, name: str) -> int | None:
        value = self._value(name) or b""
        return int(value) if re.fullmatch(rb"\d{1,12}", value) else None

    def _value(self, name: str) -> bytes | None:
        """Return the expression of an attribute; None if the ad does not have it."""
        pattern = rb"^%s[ \t]*=([^\n]*)$" % name.encode()
        match = re.search(pattern, self.text or b"", re.IGNORECASE | re.MULTILINE)
        return match[1].strip() if match is not None else None
