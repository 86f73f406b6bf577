"""GPUs that a pod's specification requests for its payload container."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

Json = dict[str, Any]

_NVIDIA: Final = re.compile(r"(?:[^/]+\.)?nvidia\.com/(?:gpu(?:[.-][^/]+)?|mig-[^/]+)")
_OTHERS: Final = re.compile(r"(?:amd\.com/gpu|gpu\.intel\.com/|habana\.ai/|aws\.amazon\.com/neuron|google\.com/tpu).*")
_SHARED: Final = ".shared"
"""Suffix of resources that several pods share, from NVIDIA's device plugin (renameByDefault)."""


@dataclass(frozen=True, slots=True)
class PodRequest:
    """The payload container's limits for devices."""

    nvidia: Mapping[str, int] = field(default_factory=dict)
    """Resources of NVIDIA's device plugin, with the number of each."""
    others: Mapping[str, int] = field(default_factory=dict)
    """Accelerators of other vendors."""
    unknown: tuple[str, ...] = ()
    """Other extended resources. Most of them bring no GPU (smarter-devices/fuse)."""
    uncounted: tuple[str, ...] = ()
    """Requests for any number of GPUs: claims (dynamic resource allocation), or limits that cannot be read."""

    @property
    def count(self) -> int:
        """Number of NVIDIA devices, without `unknown` and `uncounted`."""
        return sum(self.nvidia.values())

    @property
    def shared(self) -> bool:
        """Whether several of them may be the same device."""
        return any(name.endswith(_SHARED) for name in self.nvidia)

    @property
    def words(self) -> str:
        """Text such as `nvidia.com/gpu: 2`."""
        return ", ".join([*(f"{name}: {count}" for name, count in self.nvidia.items()), *self.unknown, *self.uncounted])

    def json(self) -> Json:
        """Return a JSON object for `of_json`."""
        return asdict(self)

    @classmethod
    def of_json(cls, values: Json) -> "PodRequest":
        """Read an object of `json`.

        Raises:
            ValueError: the object has another form.
        """
        try:
            return cls(**{**values, **{name: tuple(values[name]) for name in ("unknown", "uncounted")}})
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"this is not a request of GPUs ({error!r})") from error

    @classmethod
    def of(cls, container: Json | None) -> "PodRequest":
        """Read a container of a pod's specification, as JSON."""
        resources: Json = (container or {}).get("resources") or {}
        requests = {
            name: _count(amount)
            for name, amount in {**(resources.get("requests") or {}), **(resources.get("limits") or {})}.items()
            # The domain of an extended resource is not a domain of Kubernetes.
            if "/" in name and not re.match(r"(?:[^/]+\.)?kubernetes\.io/", name)
        }
        requests = {name: count for name, count in requests.items() if count}
        nvidia = {name: count for name, count in requests.items() if _NVIDIA.fullmatch(name)}
        others = {name: count for name, count in requests.items() if _OTHERS.fullmatch(name)}
        rest = [f"{name}: {count}" for name, count in requests.items() if name not in nvidia and name not in others]
        claims = [f"claim {claim['name']}" for claim in resources.get("claims") or ()]
        return cls(nvidia, others, tuple(rest), tuple(claims))


def _count(amount: object) -> int:
    """Return a quantity of an extended resource, which is a whole number such as `1k`."""
    match = re.fullmatch(r"(\d+)([kMG]?)", str(amount))
    return int(match[1]) * {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}[match[2]] if match else 0


UNKNOWN: Final = PodRequest(uncounted=("an unknown request",))
"""Request of a container whose pod cannot be read."""
