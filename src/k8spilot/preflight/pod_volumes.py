"""Checks of the volumes in the pod's spec: what jobs can write to, and who else mounts it."""

from collections.abc import Iterator
from typing import Any, Final

from k8spilot.settings import PILOT, Settings, SlotSettings

PAYLOAD_TEMPORARY: Final = ("/tmp", "/var/tmp")  # noqa: S108 -- in the payload container
CLEANED_OTHERWISE: Final = ("/dev/shm",)  # noqa: S108
"""Writable mounts of the payload container that the pilot empties without mounting them."""

Json = dict[str, Any]


def _sandbox_faults(payload: Json, slot: SlotSettings, pilot: Json, engine: Json, settings: Settings) -> Iterator[str]:
    name, payload_mounts = slot.container, mounts_of(payload)
    execute, own = str(settings.execute), str(slot.execute)
    sandboxes = mounts_of(pilot).get(execute)
    if engine is pilot and slot.is_only:
        if not _is_shared(payload_mounts.get(execute), sandboxes):
            yield f"mount the volume execute at {execute} in both {name} and {PILOT}"
    elif (
        not _is_shared(payload_mounts.get(own), sandboxes)
        or payload_mounts[own].get("subPath") != slot.execute.name
        or execute in payload_mounts
    ):
        # Without root, no process could take the volume's own folder from the job.
        reason = "a job could replace that folder" if slot.is_only else "a job could reach other slots' sandboxes"
        yield (
            f"mount the volume execute at {execute} in {PILOT}, and its subPath: {slot.execute.name} at {own} in "
            f"{name}; otherwise {reason}"
        )


def volume_faults(
    payload: Json, slot: SlotSettings, pilot: Json, engine: Json, spec: Json, settings: Settings
) -> Iterator[str]:
    """Check the volumes of a payload container.

    Args:
        payload: the container in the pod's specification.
        slot: its slot.
        pilot: the container that runs HTCondor.
        engine: the container that runs the engine; it may be the same.
        spec: the pod's specification.
        settings: settings of the pilot.
    """
    yield from _sandbox_faults(payload, slot, pilot=pilot, engine=engine, settings=settings)
    name, other = slot.container, engine["name"]
    payload_mounts, engine_mounts = mounts_of(payload), mounts_of(engine)
    exchange, programs = str(settings.exchange), f"{settings.exchange}/bin"
    if not _is_shared(payload_mounts.get(exchange), engine_mounts.get(exchange)):
        yield f"mount the volume exchange at {exchange} in both {name} and {other}"
    if not payload_mounts.get(programs, {}).get("readOnly"):
        yield (
            f"mount a separate volume at {programs} in {name} with readOnly: true (the one that `k8spilot install` "
            "fills); otherwise an image could contain its own payload-init there"
        )
    if exchange in payload_mounts and not payload_mounts[exchange].get("readOnly"):
        yield f"mount {exchange} with readOnly: true in {name}; otherwise a job could change the next job's programs"
    for path in PAYLOAD_TEMPORARY:
        if path not in payload_mounts:
            yield f"mount an emptyDir at {path} in {name}, which the pilot can empty between jobs"
    yield from _leftover_faults(payload_mounts, slot, engine=engine, spec=spec, settings=settings)


def _leftover_faults(
    payload_mounts: dict[str, Json], slot: SlotSettings, engine: Json, spec: Json, settings: Settings
) -> Iterator[str]:
    """Check that the pilot can empty what jobs can write to, and that slots share nothing of it."""
    name, other, engine_mounts = slot.container, engine["name"], mounts_of(engine)
    exchange, programs = str(settings.exchange), f"{settings.exchange}/bin"
    emptied = {
        engine_mounts[str(folder)]["name"] for folder in settings.scratch_folders if str(folder) in engine_mounts
    }
    for path, mount in payload_mounts.items():
        if path in CLEANED_OTHERWISE:
            yield from _memory_faults(path, mount, slot=slot, engine=engine, settings=settings)
        if path == programs or path in CLEANED_OTHERWISE:
            continue
        if not slot.is_only and mount["name"] in emptied | {_name(payload_mounts, exchange)}:
            yield from _part_faults(path, mount, slot)
        if path in (exchange, str(settings.execute), str(slot.execute)):
            continue
        if not mount.get("readOnly") and not _is_read_only(mount, spec) and mount["name"] not in emptied:
            yield (
                f"mount the volume {mount['name']} ({path} in {name}) in {other} as well and name the folder in "
                "K8SPILOT_SCRATCH_FOLDERS, or mount it with readOnly: true; otherwise a job could leave files for the "
                "next job"
            )


def _memory_faults(path: str, mount: Json, slot: SlotSettings, engine: Json, settings: Settings) -> Iterator[str]:
    """Check the volume at /dev/shm of a payload container, one of several."""
    if slot.is_only:
        return
    yield from _part_faults(path, mount, slot)
    volume = str(settings.shared_memory)
    if mounts_of(engine).get(volume, {}).get("name") != mount["name"]:
        yield (
            f"mount the volume {mount['name']} ({path} in {slot.container}) in {engine['name']} as well and name the "
            "folder in K8SPILOT_SHARED_MEMORY; otherwise the pilot cannot empty it between jobs"
        )


def _part_faults(path: str, mount: Json, slot: SlotSettings) -> Iterator[str]:
    """Check that a payload container, one of several, mounts its own part of a volume."""
    if mount.get("subPath") != slot.sub_path:
        yield (
            f"set subPath: {slot.sub_path} for the volume {mount['name']} ({path} in {slot.container}); otherwise jobs "
            "of several slots reach each other's files"
        )


def _name(mounts: dict[str, Json], path: str) -> str | None:
    return mounts[path]["name"] if path in mounts else None


def _is_shared(mount: Json | None, other: Json | None) -> bool:
    return mount is not None and other is not None and mount["name"] == other["name"]


def _is_read_only(mount: Json, spec: Json) -> bool:
    volume = by_name(spec.get("volumes")).get(mount["name"], {})
    return any(kind in volume for kind in ("configMap", "secret", "projected", "downwardAPI", "image"))


def mounts_of(container: Json) -> dict[str, Json]:
    """Return the mounts of a container by their paths."""
    return {mount["mountPath"].rstrip("/"): mount for mount in container.get("volumeMounts", [])}


def by_name(items: list[Json] | None) -> dict[str, Json]:
    """Return the items by their names."""
    return {item["name"]: item for item in items or []}
