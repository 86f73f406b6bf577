"""The differences between k8spilot and dockerd that are meant; test_scripts.py sees to it that each is as it says."""

from dataclasses import dataclass
from typing import Any, Final

from tests.oracle.engines import IMAGE


@dataclass(frozen=True)
class Difference:
    """Answers of both engines, and the reason of their difference."""

    why: str
    dockerd: Any
    k8spilot: Any


_NAME: Final = "NAME\n"
_UPGRADE: Final = (b"HTTP/1.1 101 UPGRADED\r\n", b"connection: upgrade\r\n", b"upgrade: tcp\r\n")
_FRAMES: Final = [(1, b"1\n"), (2, b"2\n"), (1, b"3\n")]
_RAW: Final = b"content-type: application/vnd.docker.raw-stream\r\n"
_MULTIPLEXED: Final = b"content-type: application/vnd.docker.multiplexed-stream\r\n"
_EXEC_FAILED: Final = "cannot be executed"

DIFFERENCES: Final[dict[str, Difference]] = {
    "exit-255": Difference(
        "HTCondor would tell 255 as 0, a failed job as a good one: inspect, which it reads, says 128 instead",
        ((255, b"", b""), 'exited false 255 false ""', (0, "255\n", "")),
        ((255, b"", b""), 'exited false 128 false ""', (0, "255\n", "")),
    ),
    "program-missing-without-init": Difference(
        "payload-init is always there: a program that is missing ends with 127 as with --init, which HTCondor passes",
        (1, "created 127", True),
        (127, "exited 127", False),
    ),
    "workdir-that-is-missing": Difference(
        "dockerd makes the folder as root; in a pod nobody can, and the job is told so",
        (0, b"/no/such/folder\n", b""),
        (127, b"", b"k8spilot: cannot enter '/no/such/folder': No such file or directory\n"),
    ),
    "capabilities-that-could-be-had": Difference(
        "SYS_PTRACE, which HTCondor asks for, is not in the pod's bounding set; a job has it in neither place, since "
        "it is not root and no-new-privileges lets nothing gain it",
        b"0000000000080000",
        b"0000000000000000",
    ),
    "kill-of-what-is-created": Difference(
        "HTCondor kills once and does not look at the answer: a job that is removed while its image is pulled must not "
        "run afterwards",
        ((1, "", "in another state"), 'created false 0 false ""', 0),
        ((0, _NAME, ""), 'exited false 143 false ""', 0),
    ),
    "start-of-what-has-ended": Difference(
        "a container is one run in a payload container; HTCondor makes a new one for every run",
        [(0, b"again\n", b""), (0, b"again\n", b"")],
        [(0, b"again\n", b""), (0, b"", b"")],
    ),
    "two-containers-at-once": Difference(
        "a pod has one payload container, and so its slot runs one job at a time",
        (0, "ID\n", ""),
        (1, "", "one at a time"),
    ),
    "pull-of-an-unknown-image": Difference(
        "create tells the error, with the same words: HTCondor keeps the slot for 46 s when a pull fails",
        (1, "", "not in the registry"),
        (0, f"{IMAGE.format('no-such-image')}\n", ""),
    ),
    "images-listed": Difference(
        "images are the kubelet's: with none in the list HTCondor pulls for each job and leaves their removal alone",
        [IMAGE.format("busybox")],
        [],
    ),
    "exec-of-what-is-no-program": Difference(
        "a program that is missing is 127, as for a shell, and one that cannot be run 126",
        [(126, _EXEC_FAILED)] * 4,
        [(127, _EXEC_FAILED), (127, _EXEC_FAILED), (126, _EXEC_FAILED), (127, _EXEC_FAILED)],
    ),
    "figures-of-what-does-not-run": Difference(
        "after the end the last figures stay, where dockerd has none: a late look must not make a job's usage zero",
        [(b"200", False), (b"200", False)],
        [(b"409", False), (b"200", True)],
    ),
    "frames": Difference(
        "API versions from 1.42 on call a stream of frames so, and this client has 1.41; the frames are the same",
        (sorted([*_UPGRADE, _RAW]), _FRAMES),
        (sorted([*_UPGRADE, _MULTIPLEXED]), _FRAMES),
    ),
    "logs-of-a-job": Difference(
        "the end of a job's output is kept in memory for people, though HTCondor asks for the log driver none",
        (1, "", "no logs"),
        (0, "hello\n", ""),
    ),
    "top": Difference("docker top is not served: `docker exec NAME ps` shows it", (0, True), (1, False)),
}

NOT_YET: Final[dict[str, str]] = {}
"""Scripts in which k8spilot has yet to do what dockerd does, and what is wrong there."""
