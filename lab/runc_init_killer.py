"""Program: kill the first process of a pod's next container while the runtime prepares it (`runc init`).

Each millisecond counts: it runs under a realtime policy, and imports only these modules (lab/pod_faults.py).
"""

import os
import sys
import time
from pathlib import Path


def main() -> int:
    """Look for new containers below the pod's cgroup folder until one has a process of the uid to kill."""
    folder, uid = sys.argv[1:]
    before = _containers(folder)
    print("looks")
    while True:
        for name in _containers(folder) - before:
            for pid in _processes(f"{folder}/{name}/cgroup.procs"):
                if _is_runc_init(pid, uid):
                    os.kill(int(pid), 9)
                    return 0
        time.sleep(0.0005)


def _containers(folder: str) -> set[str]:
    return {one.name for one in os.scandir(folder) if one.is_dir()}


def _processes(path: str) -> list[str]:
    try:
        return Path(path).read_text().split()
    except OSError:
        return []


def _is_runc_init(pid: str, uid: str) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    return status.startswith("Name:\trunc:[2:INIT]") and f"\nUid:\t{uid}\t{uid}\t" in status


if __name__ == "__main__":
    sys.exit(main())
