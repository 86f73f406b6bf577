"""What a pod's specification promises its payload container of GPUs."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

Json = dict[str, Any]

_NVIDIA: Final = re.compile(r"(?:[^/]+\.)?nvidia\.com/(?:gpu(?:[.-][^/]+)?|mig-[^/]+)")
_OTHERS: Final = re.compile(r"(?:amd\.com/gpu|gpu\.intel\.com/|habana\.ai/|aws\.amazon\.com/neuron|google\.com/tpu).*")
_SHARED: Final = ".shared"
"""What NVIDIA's device plugin puts behind the name of a resource that several pods have (renameByDefault)."""


@dataclass(frozen=True, slots=True)
class PodRequest:
    """The payload container's limits, as far as they are about devices."""

    nvidia: Mapping[str, int] = field(default_factory=dict)
    """Resources of NVIDIA's device plugin, and how many of each."""
    others: Mapping[str, int] = field(default_factory=dict)
    """Accelerators of other vendors."""
    unknown: tuple[str, ...] = ()
    """Extended resources that may be anything; most of them bring no GPU (smarter-devices/fuse)."""
    uncounted: tuple[str, ...] = ()
    """What may bring any number of GPUs: claims (dynamic resource allocation), or limits that nobody can look at."""

    @property
    def count(self) -> int:
        """How many NVIDIA devices; those of `unknown` and `uncounted` are not in it."""
        return sum(self.nvidia.values())

    @property
    def shared(self) -> bool:
        """Whether several of them may be one device."""
        return any(name.endswith(_SHARED) for name in self.nvidia)

    @property
    def words(self) -> str:
        """As `nvidia.com/gpu: 2`."""
        return ", ".join([*(f"{name}: {count}" for name, count in self.nvidia.items()), *self.unknown, *self.uncounted])

    def json(self) -> Json:
        """For `of_json`."""
        return asdict(self)

    @classmethod
    def of_json(cls, found: Json) -> "PodRequest":
        """Read what `json` has made; raises ValueError for anything else."""
        try:
            return cls(**{**found, **{name: tuple(found[name]) for name in ("unknown", "uncounted")}})
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"this is no promise of GPUs ({error!r})") from error

    @classmethod
    def of(cls, container: Json | None) -> "PodRequest":
        """Read a container of a pod's specification, as JSON."""
        resources: Json = (container or {}).get("resources") or {}
        asked = {
            name: _count(amount)
            for name, amount in {**(resources.get("requests") or {}), **(resources.get("limits") or {})}.items()
            # Extended resources have a domain that is not Kubernetes' own.
            if "/" in name and not re.match(r"(?:[^/]+\.)?kubernetes\.io/", name)
        }
        asked = {name: count for name, count in asked.items() if count}
        nvidia = {name: count for name, count in asked.items() if _NVIDIA.fullmatch(name)}
        others = {name: count for name, count in asked.items() if _OTHERS.fullmatch(name)}
        rest = [f"{name}: {count}" for name, count in asked.items() if name not in nvidia and name not in others]
        claims = [f"claim {claim['name']}" for claim in resources.get("claims") or ()]
        return cls(nvidia, others, tuple(rest), tuple(claims))


def _count(amount: object) -> int:
    """Of extended resources there are whole numbers; `1k` is one of them."""
    match = re.fullmatch(r"(\d+)([kMG]?)", str(amount))
    return int(match[1]) * {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}[match[2]] if match else 0


UNKNOWN: Final = PodRequest(uncounted=("what is not known here",))
"""Of a container whose pod nobody can look at."""
