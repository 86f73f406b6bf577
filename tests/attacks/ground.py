"""A pilot, alice who attacks it, and bob who comes after her."""

import hashlib
import json
import shutil
import zipapp
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from lab.jobs import Jobs
from tests.e2e.pool import Pool, Result, result

HERE = Path(__file__).parent
ARSENAL: Final = "arsenal.pyz"
"""The attacks as one file, which HTCondor takes to the job: `python3 ./arsenal.pyz NAME...`."""
WITNESS: Final = (HERE / "witness.py").read_text()

MARK: Final = "leftover-of-alice"
"""In the name or the content of whatever alice leaves."""

BASELINE: Final = pytest.mark.parametrize("level", ["baseline"], indirect=True, scope="session")
RESTRICTED: Final = pytest.mark.parametrize("level", ["restricted"], indirect=True, scope="session")
"""For what HTCondor does at one level alone."""


def packed() -> bytes:
    """The content of ARSENAL: the package tests/attacks/arsenal, which can be run (zipapp)."""
    with TemporaryDirectory() as folder, BytesIO() as target:
        shutil.copytree(HERE / "arsenal", f"{folder}/arsenal", ignore=shutil.ignore_patterns("__pycache__"))
        zipapp.create_archive(
            folder, target, interpreter="/usr/bin/python3", main="arsenal.program:main", compressed=True
        )
        return target.getvalue()


def python(text: str) -> str:
    """A shell script that runs a program in Python."""
    return f"python3 - <<'END'\n{text}\nEND"


class Ground(Pool):
    """The pilot that is attacked."""

    @property
    def python(self) -> dict[str, str]:
        """A job in an image with Python, HTCondor's tools and docker: the pilot's own, which everybody can have."""
        return {"container_image": f"docker://{self.lab.image}", "docker_override_entrypoint": "true"}

    def alice(self, script: str, *, count: int = 1, **commands: str) -> Jobs:
        """A shell script of hers, with her arsenal beside it."""
        more = {**self.python, "transfer_input_files": ARSENAL, **commands}
        return self.shell(script, files={ARSENAL: packed()}, count=count, **more)

    def attack(self, script: str, commands: Mapping[str, str] | None = None, timeout: float = 120) -> Result:
        """As that, and what came of it."""
        return result(self.alice(script, **(commands or {})), timeout=timeout)  # type: ignore[arg-type]

    def bob(self) -> Jobs:
        """The next user: looks for whatever another may have left, and computes something."""
        data = "bob's data\n" * 1000
        files = {"witness.py": WITNESS, "data": data}
        return self.shell(
            "python3 ./witness.py; [ -e sum ] || : >sum; exit 7",
            user="bob",
            files=files,
            transfer_input_files="witness.py, data",
            transfer_output_files="sum",
            **self.python,  # type: ignore[arg-type]
        )

    def is_fit(self, timeout: float = 120, bob: Jobs | None = None) -> None:
        """The next job of another user, which may be there, runs, sees nothing of the one before, and is right."""
        found = result(bob or self.bob(), timeout=timeout)
        assert (found.code, found.stderr) == (7, b""), found
        assert json.loads(found.stdout)["left"] == [], found.text[:2000]
        assert found.files["sum"].decode() == hashlib.sha256(b"bob's data\n" * 1000).hexdigest()
        status = json.loads(self.inside("k8spilot status --json; true"))
        assert status["fit"], status

    def lives(self) -> tuple[str, list[int]]:
        """What a pilot has one of in its life: engine, startd, containers."""
        status = self.status()["status"]
        statuses = [*status["initContainerStatuses"], *status["containerStatuses"]]
        restarts = [int(one["restartCount"]) for one in statuses if one["name"] in self.lab.containers]
        engine = "for p in /proc/[0-9]*; do grep -qsa [k]8spilot.engine $p/cmdline && echo ${p#/proc/}; done; true"
        return self.inside(f"{engine}; pidof condor_startd condor_master"), restarts

    def memory(self) -> int:
        """KiB that the engine has in use."""
        script = "for p in /proc/[0-9]*; do grep -qsa [k]8spilot.engine $p/cmdline && grep VmRSS $p/status; done; true"
        return sum(int(line.split()[1]) for line in self.inside(script).splitlines())
