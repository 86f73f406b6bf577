"""The contestant "k8spilot before": a pilot of another commit, with the image and the manifests of that commit."""

import contextlib
import os
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.execution_points import BEFORE, ExecutionPoint
from lab import pilot
from lab.api import Lab
from lab.jobs import wait_in_pool
from lab.settings import CHECKOUT, PILOT_NAMESPACE
from lab.shell import run

_FOLDER: Final = CHECKOUT / "build/before"
_DEPLOY: Final = """
import dataclasses, sys
from lab import pilot
from lab.api import Lab
from lab.images import Images
lab = Lab.attach()
image = Images(lab.settings, lab.progress).project()
pilot.deploy(dataclasses.replace(lab, image=image), sys.argv[1])
"""
"""Program that the lab of the other commit runs. These names must exist in that commit."""
_BUILD_S: Final = 600.0


@contextlib.contextmanager
def before(commit: str, lab: Lab, name: str, _slots: int) -> Iterator[ExecutionPoint]:
    """Deploy a pilot pod with one slot by the lab of `commit`, from that commit's manifests and image.

    Raises LabError: there is no such commit, or its lab cannot deploy a pilot.
    """
    folder = _checkout(commit)
    try:
        run(
            [sys.executable, "-c", _DEPLOY, name],
            what=f"deploy a pilot of commit {commit}",
            cwd=folder,
            env={"PYTHONPATH": os.pathsep.join(map(str, (folder, folder / "src")))},
            timeout=_BUILD_S,
        )
        wait_in_pool(lab, name)
        yield ExecutionPoint(lab, BEFORE, name, PILOT_NAMESPACE, "pilot")
    finally:
        pilot.delete(lab, name)


def _checkout(commit: str) -> Path:
    """Write the files of a commit into a folder of its own below build/, and return it."""
    git = ["git", "-C", str(CHECKOUT)]
    full = run([*git, "rev-parse", "--verify", f"{commit}^{{commit}}"], what=f"find the commit {commit}").strip()
    folder = _FOLDER / full[:12]
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as parent:
            archive = Path(parent) / "files.tar"
            run([*git, "archive", "--output", str(archive), full], what=f"write the files of {commit}")
            with tarfile.open(archive) as files:
                files.extractall(Path(parent) / "files", filter="data")
            (Path(parent) / "files").rename(folder)
    return folder
