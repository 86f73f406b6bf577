"""Kubernetes' quantities, such as 500m and 2Gi (apimachinery, resource.Quantity)."""

from typing import Final

_UNITS: Final = {
    "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50,
}  # fmt: skip


def quantity(value: object) -> float:
    """Return the number of a quantity.

    Raises:
        ValueError: it is no quantity.
    """
    text = str(value)
    number = text.rstrip("".join(_UNITS))
    unit = _UNITS.get(text[len(number) :])
    if unit is None:
        raise ValueError(f"{text!r} is not a Kubernetes quantity")
    return float(number) * unit
