"""The record of the pod's GPUs: found once, and stored for later engines of the same pod.

The record has the evidence, not the verdict. Only root of the pilot container can write to it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from k8spilot.common.files import write
from k8spilot.gpu.discovery.evidence import Device, Evidence
from k8spilot.gpu.discovery.names import names
from k8spilot.gpu.discovery.pod_request import PodRequest
from k8spilot.gpu.discovery.verdict import STRATEGIES, GpuVerdict, judge

FILE: Final = "gpus.json"
"""File name in the exchange volume, which the payload container mounts read-only."""
_FORMAT: Final = "k8spilot-gpus-1"

Json = dict[str, Any]


@dataclass(frozen=True)
class GpuRecord:
    """The GPUs of this pod: the request, and the evidence."""

    request: PodRequest = field(default_factory=PodRequest)
    evidence: Evidence = field(default_factory=Evidence)
    failure: str = ""
    """Reason why the probe did not run in the payload container; there is no evidence then."""

    @cached_property
    def verdict(self) -> GpuVerdict:
        """The verdict on the evidence."""
        if not self.failure:
            return judge(self.evidence, self.request)
        requested = ", ".join([*self.request.nvidia, *self.request.others, *self.request.uncounted])
        problem = f"the pod requests {requested}, but {self.failure}; jobs get none" if requested else ""
        return GpuVerdict(reasons=(self.failure,), problem=problem)

    @property
    def usable(self) -> tuple[Device, ...]:
        """The devices that jobs may use."""
        return self.verdict.usable

    @property
    def summary(self) -> str:
        """The verdict in one line, without a full stop."""
        if self.verdict.problem:
            return self.verdict.problem
        if not self.usable:
            return "no GPU"
        kinds = sorted({device.name or "GPU of unknown type" for device in self.usable})
        return f"{len(self.usable)} x {', '.join(kinds)}: {', '.join(names(self.usable))} ({self.verdict.strategy})"

    def json(self) -> Json:
        """Return the verdict and its evidence as JSON."""
        verdict = self.verdict
        return {
            "strategy": verdict.strategy,
            "meaning": STRATEGIES[verdict.strategy],
            "reasons": list(verdict.reasons),
            "requested": self.request.summary or None,
            "expected": list(verdict.expected),
            "observed": [device.uuid for device in verdict.observed],
            "usable": [device.uuid for device in verdict.usable],
            "problem": verdict.problem or None,
            "words": self.summary,
            "evidence": self.evidence.json(),
        }

    def save(self, folder: Path) -> None:
        """Store the record in `folder`."""
        text = {
            _FORMAT: {
                "request": self.request.json(),
                "evidence": self.evidence.json(),
                "failure": self.failure,
            }
        }
        write(folder / FILE, json.dumps(text), 0o644)

    @classmethod
    def load(cls, folder: Path) -> "GpuRecord | None":
        """Return the record in `folder`, or None if there is none."""
        try:
            stored = json.loads((folder / FILE).read_text())[_FORMAT]
            return cls(PodRequest.of_json(stored["request"]), Evidence.of(stored["evidence"]), stored["failure"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            return cls(failure=f"the GPU record of an earlier engine cannot be read ({error!r})")


def report(gpus: GpuRecord) -> Iterator[str]:
    """Yield the verdict for people, line by line."""
    verdict = gpus.verdict
    yield f"strategy   {verdict.strategy}: {STRATEGIES[verdict.strategy]}"
    for position, reason in enumerate(verdict.reasons):
        yield f"{'' if position else 'evidence':10} {reason}"
    yield from _devices("expected", verdict.expected)
    yield from _devices("observed", [_line(device) for device in verdict.observed])
    yield from _devices("usable", [_line(device) for device in verdict.usable])
    yield f"problem    {verdict.problem}." if verdict.problem else "problem    none"


def _devices(label: str, lines: "list[str] | tuple[str, ...]") -> Iterator[str]:
    for position, line in enumerate(lines or ("none",)):
        yield f"{'' if position else label:10} {line}"


def _line(device: Device) -> str:
    memory = f", {device.memory_mb} MiB" if device.memory_mb is not None else ""
    return f"{device.uuid} {device.name}{memory}"
