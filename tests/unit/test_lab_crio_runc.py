"""The program that CRI-O runs as runc: what it takes out of the configuration of a container."""

import json
import subprocess
from pathlib import Path

from lab.settings import HERE

PROCESS = {"oomScoreAdj": -997, "args": ["echo", '"oomScoreAdj": -5'], "noNewPrivileges": True}
MEMORY = {"memory": {"limit": 7}}
CONFIG = {
    "process": PROCESS,
    "linux": {"resources": {**MEMORY, "hugepageLimits": [{"pageSize": "2MB", "limit": 0}]}},
}


def run(folder: Path, *arguments: str) -> str:
    """Return the arguments that the program passes to runc."""
    for name, text in (
        ("crio-bin/runc", (HERE / "config/crio-runc.sh").read_text()),
        ("bin/runc", '#!/bin/sh\necho "$@"\n'),
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return subprocess.run([folder / "crio-bin/runc", *arguments], capture_output=True, text=True, check=True).stdout


def test_a_new_container_has_no_limits_of_huge_pages_and_the_machines_own_score(tmp_path: Path) -> None:
    arguments = ("--root", "/x", "create", "--bundle", str(tmp_path), "name")
    assert run(tmp_path, *arguments).split() == list(arguments)
    found = json.loads((tmp_path / "config.json").read_text())
    own = int(Path("/proc/self/oom_score_adj").read_text())
    assert found == {"process": {**PROCESS, "oomScoreAdj": own}, "linux": {"resources": MEMORY}}


def test_other_commands_change_nothing(tmp_path: Path) -> None:
    assert run(tmp_path, "start", "--bundle", str(tmp_path)).split() == ["start", "--bundle", str(tmp_path)]
    assert json.loads((tmp_path / "config.json").read_text()) == CONFIG
