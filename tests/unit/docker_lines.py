"""Lines that HTCondor writes for docker."""

from collections.abc import Sequence
from typing import Final

CONTAINER: Final = "HTCJob1_0_slot1_PID7"
IMAGE: Final = "registry.example.org/image:1"
DEVICES: Final = ("--device", "/dev/nvidiactl", "--device", "/dev/nvidia-uvm")


def create(
    *command: str,
    variables: Sequence[str] = (),
    mounts: Sequence[str] = (),
    extra: Sequence[str] = (),
    image: str = IMAGE,
    name: str = CONTAINER,
) -> list[str]:
    """Return the command line of HTCondor for `docker create` (docker-api.cpp, createContainer)."""
    return [
        *("create", "--cpu-shares=100", "--memory=1024m", "--cap-drop=all", "--cap-add=SYS_PTRACE"),
        *("--security-opt", "no-new-privileges", "--init", "--name", name, "--label=org.htcondorproject=True"),
        *("--log-driver", "none"),
        *(word for variable in variables for word in ("-e", variable)),
        *("--volume", "/var/lib/condor/execute:/var/lib/condor/execute", *mounts),
        *("--workdir", "/tmp", "--user", "65534:65534"),
        *("--group-add", "65534", "--hostname", "alice-1.0-lab", *extra, image, *command),
    ]
