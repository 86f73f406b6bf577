"""Attributes that differ between the slots of a pilot.

HTCondor sets an attribute in the ads of all slots or of none. So one attribute has an ad for each payload container,
and expressions in the configuration select the slot's own.
"""

from typing import Final

SLOTS: Final = "K8SSlots"
"""Attribute of all slots: an ad of ads, by `slot_key`."""
OWN: Final = {
    "K8SImageStatus": "ImageStatus",
    "K8SHoldJob": "HoldJob",
    "K8SHoldSince": "HoldSince",
    "K8SHoldReason": "HoldReason",
}
"""Attributes of a slot -> their names in its ad in SLOTS."""


def slot_key(number: int) -> str:
    """Return the name of the ad for the slot of a payload container, by its number."""
    return f"c{number}"


def own(name: str, before: int = 0) -> str:
    """Return the ClassAd expression of a slot's own attribute; `name` is that in SLOTS.

    The payload container 3 belongs to the slot with the id 3, or to the dynamic slot 3. A partitionable slot has none.
    The slots beside a partitionable slot of four containers begin with the id 2 and the payload container 5, so that
    `before` is 3.
    """
    slot = f"MY.SlotID + {before}" if before else "MY.SlotID"
    number = f"MY.DSlotID ?: (MY.PartitionableSlot =?= true ? 0 : {slot})"
    return f'MY.{SLOTS}[strcat("c", {number})]["{name}"]'
