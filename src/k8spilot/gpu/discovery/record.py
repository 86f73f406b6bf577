"""The pod's GPUs, found once, and kept for every engine that comes later in the same pod.

What is kept is what was seen, not what was made of it. It lies where nobody but root of the pilot container can write.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from k8spilot.gpu.discovery.evidence import Device, Evidence
from k8spilot.gpu.discovery.pod_request import PodRequest
from k8spilot.gpu.discovery.verdict import STRATEGIES, GpuVerdict, judge
from k8spilot.gpu.htcondor.inventory import inventory, names

FILE: Final = "gpus.json"
"""In the exchange volume, which the payload container has read-only."""
_FORMAT: Final = "k8spilot-gpus-1"

Json = dict[str, Any]


@dataclass(frozen=True)
class GpuRecord:
    """What is known of the GPUs of this pod."""

    promise: PodRequest = field(default_factory=PodRequest)
    evidence: Evidence = field(default_factory=Evidence)
    failure: str = ""
    """Why the payload container could not be looked into; then nothing was seen."""

    @cached_property
    def verdict(self) -> GpuVerdict:
        """What is to be made of it."""
        if not self.failure:
            return judge(self.evidence, self.promise)
        asked = ", ".join([*self.promise.nvidia, *self.promise.others])
        problem = f"the pod asks for {asked}, but {self.failure}; jobs get none" if asked else ""
        return GpuVerdict(reasons=(self.failure,), problem=problem)

    @property
    def usable(self) -> tuple[Device, ...]:
        """The devices that jobs may have."""
        return self.verdict.usable

    @property
    def inventory(self) -> str:
        """They, for HTCondor."""
        return inventory(self.usable, self.evidence.driver)

    @property
    def words(self) -> str:
        """All of it in a line, without a stop."""
        if self.verdict.problem:
            return self.verdict.problem
        if not self.usable:
            return "no GPU"
        kinds = sorted({one.name or "GPU of an unknown kind" for one in self.usable})
        return f"{len(self.usable)} x {', '.join(kinds)}: {', '.join(names(self.usable))} ({self.verdict.strategy})"

    def json(self) -> Json:
        """For whoever asks: the verdict and what it stands on."""
        found = self.verdict
        return {
            "strategy": found.strategy,
            "meaning": STRATEGIES[found.strategy],
            "reasons": list(found.reasons),
            "promised": self.promise.words or None,
            "expected": list(found.expected),
            "observed": [one.uuid for one in found.observed],
            "usable": [one.uuid for one in found.usable],
            "problem": found.problem or None,
            "words": self.words,
            "evidence": self.evidence.json(),
        }

    def save(self, folder: Path) -> None:
        """Keep it in `folder`."""
        text = {
            _FORMAT: {
                "promise": self.promise.json(),
                "evidence": self.evidence.json(),
                "failure": self.failure,
            }
        }
        aside = folder / f".{FILE}.new"
        aside.write_text(json.dumps(text))
        aside.chmod(0o644)
        os.replace(aside, folder / FILE)  # noqa: PTH105 -- the atomic one is meant

    @classmethod
    def load(cls, folder: Path) -> "GpuRecord | None":
        """What was kept in `folder`; None if nothing was."""
        try:
            found = json.loads((folder / FILE).read_text())[_FORMAT]
            return cls(PodRequest.of_json(found["promise"]), Evidence.of(found["evidence"]), found["failure"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            return cls(failure=f"what an earlier engine has found cannot be read ({error!r})")


def report(gpus: GpuRecord) -> Iterator[str]:
    """What is known, for people, a line each."""
    found = gpus.verdict
    yield f"strategy   {found.strategy}: {STRATEGIES[found.strategy]}"
    for at, reason in enumerate(found.reasons):
        yield f"{'' if at else 'evidence':10} {reason}"
    yield from _devices("expected", found.expected)
    yield from _devices("observed", [_line(one) for one in found.observed])
    yield from _devices("usable", [_line(one) for one in found.usable])
    yield f"problem    {found.problem}." if found.problem else "problem    none"


def _devices(word: str, lines: "list[str] | tuple[str, ...]") -> Iterator[str]:
    for at, line in enumerate(lines or ("none",)):
        yield f"{'' if at else word:10} {line}"


def _line(device: Device) -> str:
    memory = f", {device.memory_mb} MiB" if device.memory_mb is not None else ""
    return f"{device.uuid} {device.name}{memory}"
