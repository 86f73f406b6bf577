"""The slots of a pilot, and what differs between their payload containers: names, users, folders and sockets.

A pod with one payload container has the names and paths of the settings themselves. In a pod with several, the number
of the container ends its name, and each volume that jobs can write to has one folder for each container, with that
container's name, which the container mounts as a subPath.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from k8spilot.settings.fields import Settings

BIND: Final = "k8spilot/bind"
"""Annotation of the pod: the name of the last change of the payload container's image."""
MOST: Final = 64
"""Limit of the payload containers of a pod. The image has accounts for as many (Dockerfile)."""
_ONLY: Final = "slot"
"""Folder of the sandboxes of the only payload container, in the volume `execute`."""


@dataclass(frozen=True, slots=True)
class SlotSettings:
    """One slot: the payload container of one job at a time."""

    number: int
    """Number of the payload container, from 1."""
    is_only: bool
    """Whether the pod has no other payload container."""
    is_dynamic: bool
    """Whether the slot is a dynamic slot of the pod's partitionable slot, with the size that its job requests."""
    name: str
    """HTCondor's name of the slot. Dynamic slots have the lowest number that is free (IdDispenser in HTCondor), so that
    those of a pod with four payload containers are slot1_1 to slot1_4. Slots of GPUs follow: slot2, slot3."""
    gpus: int
    """Number of GPUs that its payload container has by the manifest, in a pod with several payload containers."""
    container: str
    """Name of the payload container."""
    uid: int
    """User id of its jobs."""
    gid: int
    """Group id of its jobs."""
    exchange: Path
    """Folder with payload-init's socket, in the engine's container."""
    execute: Path
    """EXECUTE of the slot's starters: its jobs' sandboxes, at the same path in both containers."""
    scratch_folders: tuple[Path, ...]
    """Folders of the other volumes that its jobs can write to, in the engine's container."""
    shared_memory: Path | None
    """The /dev/shm of its jobs, in the engine's container; None if that is the pod's."""
    socket: Path
    """Socket of the Docker Engine API."""
    htcondor_socket: Path
    """Socket of the same API for HTCondor's docker client only."""

    @property
    def emptied_folders(self) -> tuple[Path, ...]:
        """Folders that are emptied between its jobs: the scratch folders, and the /dev/shm of its own."""
        return self.scratch_folders if self.shared_memory is None else (*self.scratch_folders, self.shared_memory)

    @property
    def bind_annotation(self) -> str:
        """Annotation of the pod that names the last change of its image."""
        return BIND if self.is_only else f"{BIND}-{self.number}"

    @property
    def sub_path(self) -> str:
        """Name of the slot's folder in each volume of jobs; empty if it has the whole volume."""
        return "" if self.is_only else self.container


def slots_of(settings: "Settings") -> tuple[SlotSettings, ...]:
    """Return the slots of a pilot, in the order of their numbers."""
    return tuple(_slot(settings, number) for number in range(1, settings.payload_containers + 1))


def _slot(settings: "Settings", number: int) -> SlotSettings:
    is_only = settings.payload_containers == 1
    without_gpus = settings.payload_containers - settings.gpu_containers
    is_dynamic = settings.is_partitionable and number <= without_gpus
    static_name = f"slot{number - without_gpus + 1 if settings.is_partitionable else number}"
    container = settings.payload_container if is_only else f"{settings.payload_container}-{number}"
    part = "" if is_only else container  # the only one has the whole of each volume but that of the sandboxes
    socket = settings.socket if is_only else settings.socket.with_name(f"{container}.sock")
    return SlotSettings(
        number=number,
        is_only=is_only,
        is_dynamic=is_dynamic,
        name=f"slot1_{number}" if is_dynamic else static_name,
        gpus=settings.container_gpus if number > without_gpus else 0,
        container=container,
        uid=settings.payload_uid + number - 1,
        gid=settings.payload_gid + number - 1,
        exchange=settings.exchange / part,
        execute=settings.execute / (part or _ONLY),
        scratch_folders=tuple(folder / part for folder in settings.scratch_folders),
        shared_memory=None if settings.shared_memory is None else settings.shared_memory / part,
        socket=socket,
        htcondor_socket=socket.with_name(f"htcondor-{socket.name}"),
    )
