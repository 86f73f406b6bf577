"""GPUs that a pod requests for its payload container: by limits, or by claims."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from k8spilot.gpu.discovery.claims import COMPUTE_DOMAIN, NO_CLAIMS, NVIDIA, NVIDIA_CLASSES, Claims

Json = dict[str, Any]

_NVIDIA: Final = re.compile(r"(?:[^/]+\.)?nvidia\.com/(?:gpu(?:[.-][^/]+)?|mig-[^/]+)")
_OTHERS: Final = re.compile(r"(?:amd\.com/gpu|gpu\.intel\.com/|habana\.ai/|aws\.amazon\.com/neuron|google\.com/tpu).*")
_OTHER_DRIVERS: Final = re.compile(r"gpu\.(?:amd|intel)\.com|gaudi\.intel\.com|tpu\.google\.com|neuron\.aws\.com")
_CLAIM: Final = "claim "
"""Prefix of claims among the resources; the name in the pod follows."""
_CLASS: Final = "deviceclass.resource.kubernetes.io/"
"""Prefix of resources that Kubernetes turns into a claim of a DeviceClass (KEP-5004); the name of the class follows."""
_NVIDIA_CLASS: Final = frozenset(_CLASS + name for name in NVIDIA_CLASSES)
_SHARED: Final = ".shared"
"""Suffix of resources that several pods share, from NVIDIA's device plugin (renameByDefault)."""


@dataclass(frozen=True, slots=True)
class PodRequest:
    """The payload container's limits for devices, and its claims."""

    nvidia: Mapping[str, int] = field(default_factory=dict)
    """Resources of NVIDIA's device plugin and claims of its DRA driver, with the number of each."""
    others: Mapping[str, int] = field(default_factory=dict)
    """Accelerators of other vendors."""
    unknown: tuple[str, ...] = ()
    """Other extended resources and claims. Most of them bring no GPU (smarter-devices/fuse)."""
    uncounted: tuple[str, ...] = ()
    """Requests for any number of GPUs: claims that cannot be read or have an unknown driver, or an unknown request."""

    @property
    def count(self) -> int:
        """Number of NVIDIA devices, without `unknown` and `uncounted`."""
        return sum(self.nvidia.values())

    @property
    def shared(self) -> bool:
        """Whether several of them may be the same device."""
        return any(name.endswith(_SHARED) for name in self.nvidia)

    @property
    def is_claimed(self) -> bool:
        """Whether all GPUs come by claims."""
        return bool(self.nvidia) and all(name.startswith(_CLAIM) for name in self.nvidia)

    @property
    def summary(self) -> str:
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
    def of(cls, container: Json | None, claims: Claims = NO_CLAIMS) -> "PodRequest":
        """Read a container of a pod's specification, as JSON, with the claims of the pod that are known."""
        resources: Json = (container or {}).get("resources") or {}
        requests = {
            name: _count(amount)
            for name, amount in {**(resources.get("requests") or {}), **(resources.get("limits") or {})}.items()
            # The domain of an extended resource is not a domain of Kubernetes.
            if "/" in name and (name.startswith(_CLASS) or not re.match(r"(?:[^/]+\.)?kubernetes\.io/", name))
        }
        requests = {name: count for name, count in requests.items() if count}
        nvidia = {name: count for name, count in requests.items() if _NVIDIA.fullmatch(name) or name in _NVIDIA_CLASS}
        others = {name: count for name, count in requests.items() if _OTHERS.fullmatch(name)}
        rest = [f"{name}: {count}" for name, count in requests.items() if name not in nvidia and name not in others]
        claimed = _Claimed()
        for entry in resources.get("claims") or ():
            claimed.add(entry, claims)
        return cls(
            nvidia | claimed.nvidia, others | claimed.others, (*rest, *claimed.unknown), tuple(claimed.uncounted)
        )


@dataclass
class _Claimed:
    """Requests of a container's claims; see PodRequest."""

    nvidia: dict[str, int] = field(default_factory=dict)
    others: dict[str, int] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    uncounted: list[str] = field(default_factory=list)

    def add(self, entry: Json, claims: Claims) -> None:
        """Add an entry of `resources.claims`: a whole claim, or one request of it."""
        request = entry.get("request")
        words = f"{_CLAIM}{entry['name']}{f'/{request}' if request else ''}"
        claim = claims.get(entry["name"])
        if claim is None:
            self.uncounted.append(words)
            return
        devices = [one for one in claim.devices if request in (None, "", one.request)]
        for driver in sorted({one.driver for one in devices if not one.is_monitored}):
            # Two shares of a device have one name.
            count = len({one.name for one in devices if one.driver == driver and not one.is_monitored})
            if driver == NVIDIA:
                self.nvidia[words] = count
            elif _OTHER_DRIVERS.fullmatch(driver):
                self.others[f"{words} ({driver})"] = count
            elif driver == COMPUTE_DOMAIN:
                self.unknown.append(f"{words} ({driver})")
            else:
                self.uncounted.append(f"{words} ({driver})")
        if any(one.is_monitored for one in devices):
            self.unknown.append(f"{words} (adminAccess)")


def _count(amount: object) -> int:
    """Return a quantity of an extended resource, which is a whole number such as `1k`."""
    match = re.fullmatch(r"(\d+)([kMG]?)", str(amount))
    return int(match[1]) * {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}[match[2]] if match else 0


UNKNOWN: Final = PodRequest(uncounted=("an unknown request",))
"""Request of a container whose pod cannot be read."""
