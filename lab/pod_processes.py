"""The processes of a pod, found and signalled from this machine instead of from a container.

All functions raise LabError, and NothingToHitError if the process does not exist. Functions that find a process work on
the lab's own node only.
"""

import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psutil

from lab import cgroups
from lab.api import Lab
from lab.errors import LabError, NothingToHitError

_BETWEEN_LIVES_S = 5.0
"""Seconds to wait for a process: its container or its job may still be starting."""


def check_own(lab: Lab) -> None:
    """Raise LabError unless the node is the lab's."""
    if lab.settings.kubeconfig is not None:
        raise LabError("faults are made on the lab's own node only: unset KUBECONFIG")


def uid_of(lab: Lab, pod: str) -> str:
    """Return the pod's `metadata.uid`."""
    return lab.kubectl("get", "pod", pod, "-n", lab.namespace, "-o", "jsonpath={.metadata.uid}")


def container_id(lab: Lab, pod: str, container: str) -> str:
    """Return the runtime's id of a pod's container, without the scheme."""
    found = json.loads(lab.kubectl("get", "pod", pod, "-n", lab.namespace, "-o", "json"))["status"]
    statuses = [*found.get("initContainerStatuses", []), *found.get("containerStatuses", [])]
    status: dict[str, object] = next((one for one in statuses if one["name"] == container), {})
    if "containerID" not in status:
        raise NothingToHitError(f"the container {container} of pod {pod} has not been started yet")
    return str(status["containerID"]).rpartition("/")[2]


def payload_init(lab: Lab, pod: str, container: str = "payload") -> int:
    """Return the process id of the first process of a payload container of the pod."""
    check_own(lab)
    there = cgroups.processes(container_id(lab, pod, container))
    for process in there:
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended just now
            if process.parent() not in there:
                return int(process.pid)
    raise NothingToHitError(f"the container {container} of pod {pod} has no process")


def command_lines(lab: Lab, pod: str, pattern: str) -> dict[int, str]:
    """Return the command lines of the pod's processes in which `pattern` is found, by process id."""
    check_own(lab)
    found: dict[int, str] = {}
    for process in cgroups.processes(uid_of(lab, pod)):
        with contextlib.suppress(psutil.NoSuchProcess):
            line = " ".join(process.cmdline())
            if re.search(pattern, line):
                found[process.pid] = line
    return found


def oldest(lab: Lab, pod: str, pattern: str) -> int:
    """Return the process id of the pod's oldest process with `pattern` in its command line; wait some seconds for one.

    Args:
        lab: whose node.
        pod: a pod's name.
        pattern: a regular expression of the words of a command line, joined by spaces.
    """
    check_own(lab)
    uid, deadline = uid_of(lab, pod), time.monotonic() + _BETWEEN_LIVES_S
    while True:
        found: list[tuple[float, int]] = []
        for process in cgroups.processes(uid):
            with contextlib.suppress(psutil.NoSuchProcess):
                if re.search(pattern, " ".join(process.cmdline())):
                    found.append((process.create_time(), process.pid))
        if found:
            return min(found)[1]
        if time.monotonic() > deadline:
            raise NothingToHitError(f"no process of pod {pod} has {pattern!r} in its command line")
        time.sleep(0.1)


def hit(lab: Lab, pod: str, pattern: str, number: signal.Signals) -> None:
    """Send a signal to the process that `oldest` finds."""
    try:
        os.kill(oldest(lab, pod, pattern), number)
    except ProcessLookupError as error:
        raise NothingToHitError(f"the process of pod {pod} that was to be hit has just ended") from error


def network(lab: Lab, pod: str) -> int:
    """Open the pod's network namespace; return the descriptor, which is the caller's to close."""
    try:
        return os.open(f"/proc/{oldest(lab, pod, '')}/ns/net", os.O_RDONLY)
    except OSError as error:
        raise NothingToHitError(f"the first process of pod {pod} has just ended") from error


@contextmanager
def still(process: int) -> Iterator[None]:
    """Stop a process, and let it go on."""
    with ExitStack() as undo:
        try:
            handle = os.pidfd_open(process)
            undo.callback(os.close, handle)
            signal.pidfd_send_signal(handle, signal.SIGSTOP)
        except ProcessLookupError as error:
            raise NothingToHitError("the process to be stopped has just ended") from error
        undo.callback(_go_on, handle)
        yield


def _go_on(handle: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it was killed meanwhile
        signal.pidfd_send_signal(handle, signal.SIGCONT)
