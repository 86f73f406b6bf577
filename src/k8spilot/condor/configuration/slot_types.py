"""HTCondor's slot types: the partitionable slot or slots of equal size, and one type for each container with GPUs."""

from collections.abc import Iterator, Sequence
from typing import Final

from k8spilot.gpu.htcondor.inventory import mark
from k8spilot.settings import Settings, SlotSettings

_MOST_TYPES: Final = 10
"""HTCondor's own limit of slot types (MAX_SLOT_TYPES)."""


def lines(settings: Settings) -> Iterator[str]:
    """Yield the types of the slots, in the order of the slots' numbers (HTCondor's slot_builder.cpp)."""
    plain = [slot for slot in settings.slots if not slot.gpus]
    types = [*([plain] if plain else []), *([slot] for slot in settings.gpu_slots)]
    numbers = [1 if slots[0].is_dynamic else len(slots) for slots in types]
    yield f"NUM_SLOTS = {sum(numbers)}"
    yield f"MAX_SLOT_TYPES = {max(len(types), _MOST_TYPES)}"
    for place, (slots, number) in enumerate(zip(types, numbers, strict=True), 1):
        yield f"NUM_SLOTS_TYPE_{place} = {number}"
        yield f"SLOT_TYPE_{place} = {_share(settings, slots)}"
        yield f"SLOT_TYPE_{place}_PARTITIONABLE = {slots[0].is_dynamic}"


def _share(settings: Settings, slots: Sequence[SlotSettings]) -> str:
    """Return what a slot of the type for these payload containers has. HTCondor rounds fractions down."""
    first, every = slots[0], len(settings.slots)
    if not settings.gpu_slots and (first.is_only or first.is_dynamic):
        return "100%"
    containers = len(slots) if first.is_dynamic else 1
    cpus, mebibytes = (settings.num_cpus or settings.payload_cpus or 0), memory(settings)
    part = f"{containers}/{every}"
    share = f"cpus={containers * cpus}, memory={containers * mebibytes}, disk={part}, swap={part}"
    if first.gpus:  # HTCondor binds the devices that have this attribute
        return f"{share}, GPUs={first.gpus} : {mark(first.number)} =?= true"
    return f"{share}, GPUs=0" if settings.gpu_slots else share


def memory(settings: Settings) -> int:
    """Return a slot's memory in MiB. Settings has checked that it is known."""
    return settings.memory or settings.payload_memory_mb or 0
