"""Containers as local processes."""

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import psutil

from tests.simulator.programs import Programs

_FIRST_UID: Final = 47000
_UIDS: Final = 10_000
_OF_A_POD: Final = 4


def own_uid() -> int:
    """A uid for the containers of this test process, which no other test process that runs now has.

    The next ones are for further payload containers of its pod. container.c takes no uid outside of this range, and
    says why.
    """
    return _FIRST_UID + os.getpid() * _OF_A_POD % _UIDS


def now() -> str:
    """The time as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class LocalContainer:
    """One container that has been started."""

    image: str
    """The reference that the pod's spec had."""
    image_id: str
    """repository@digest."""
    identifier: str
    process: asyncio.subprocess.Process
    cgroup: Path
    """Its folder of cgroup files, which a test may rewrite."""
    started: str = field(default_factory=now)
    out_of_memory: bool = False
    """The kernel's OOM killer has been here: a test says so."""

    @classmethod
    async def start(
        cls,
        programs: Programs,
        folder: Path,
        *,
        uid: int,
        groups: Sequence[int] = (),
        image: str,
        image_id: str,
        mounts: Sequence[str],
        environment: Mapping[str, str],
        command: Sequence[str],
        runtime: str = "containerd",
    ) -> "LocalContainer":
        """Start `command` under `uid`, in one supplementary group at most, in a root file system of `mounts`."""
        identifier = os.urandom(32).hex()
        root, cgroup = folder / identifier[:12], folder / f"{identifier[:12]}-cgroup"
        root.mkdir()
        _make_cgroup(cgroup)
        with (folder / "log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                programs.container,
                ":".join(map(str, (uid, *groups))),
                root,
                *mounts,
                f"{cgroup}:/sys/fs/cgroup:ro",
                "--",
                *command,
                env=dict(environment),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return cls(image, image_id, f"{runtime}://{identifier}", process, cgroup)

    async def stop(self, grace: float) -> None:
        """End it as the kubelet does: SIGTERM, and SIGKILL when the pod's grace period (seconds) is over."""
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        try:
            async with asyncio.timeout(grace):
                await self.process.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """End it at once, with all that runs in it."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()

    @property
    def pid(self) -> int:
        """The process id of the container's command, payload-init, as this process sees it."""
        first = psutil.Process(self.process.pid).children()[0]
        return first.children()[0].pid

    def kill_first(self) -> None:
        """Kill payload-init alone, as the kernel's OOM killer or a job can.

        Raises psutil.NoSuchProcess or IndexError when it has not begun or has ended.
        """
        psutil.Process(self.pid).kill()

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.process.returncode is None

    @property
    def terminated(self) -> dict[str, object]:
        """state.terminated of its status, once it has ended."""
        code = self.process.returncode
        reason = "OOMKilled" if self.out_of_memory else ("Completed" if code == 0 else "Error")
        return {
            "containerID": self.identifier,
            "exitCode": code,
            "reason": reason,
            "startedAt": self.started,
            "finishedAt": now(),
        }

    def count_oom_kill(self) -> None:
        """Make the container's cgroup tell that the kernel has killed a process of it."""
        (self.cgroup / "memory/memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")


def _make_cgroup(folder: Path) -> None:
    """The files that payload-init opens, in the layout of cgroup v1."""
    for name, text in {
        "cpuacct/cpuacct.usage_user": "1500000000\n",
        "cpuacct/cpuacct.usage_sys": "500000000\n",
        "memory/memory.stat": "rss 4096\ntotal_rss 8388608\ntotal_shmem 1048576\n",
        "memory/memory.limit_in_bytes": f"{256 << 20}\n",
        "memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
