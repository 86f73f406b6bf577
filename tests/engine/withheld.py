"""Reports of payload-init that commands run, withheld from the engine until a test lets them through."""

import pytest

from k8spilot.payload_init.messages import Report, Started
from k8spilot.payload_init.process import Process


class WithheldReports:
    """Withholds the reports of the engine in this process from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._withheld: list[tuple[Process, Report]] | None = []
        self._handle = Process.handle

        def handle(process: Process, report: Report, descriptors: list[int]) -> bool:
            if not isinstance(report, Started) or self._withheld is None:
                return self._handle(process, report, descriptors)
            self._withheld.append((process, report))
            return True

        monkeypatch.setattr(Process, "handle", handle)

    def release(self) -> None:
        """Let them through, and later ones too."""
        withheld, self._withheld = self._withheld or [], None
        for process, report in withheld:
            self._handle(process, report, [])
