"""Common parts of all attacks: their list, a look at the other processes of the pod, ways to try something."""

import ctypes
import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

Attack = Callable[[], list[str]]
"""Makes an attack; returns what it has gained."""

ATTACKS: dict[str, Attack] = {}
"""Attacks that one job makes one after the other, by name."""

LIBC = ctypes.CDLL(None, use_errno=True)
EXCHANGE = "/k8spilot"
MARK = "leftover-of-alice"
"""In the name or the content of whatever is left."""

SECRET = re.compile(rb"eyJ[A-Za-z0-9_-]{10,}\.eyJ|BEGIN [A-Z ]*PRIVATE KEY|\"auths\"|Bearer ")
"""Tokens of Kubernetes and of HTCondor, keys, registry credentials."""


def attack(made: Attack) -> Attack:
    """Put it into the list."""
    ATTACKS[made.__name__] = made
    return made


def processes() -> Iterator[int]:
    """All that can be seen."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            yield int(name)


def text(pid: int, file: str) -> str:
    """A file of a process's; empty if it cannot be read."""
    try:
        return Path(f"/proc/{pid}/{file}").read_text(errors="replace")
    except OSError:
        return ""


def strangers() -> list[int]:
    """Processes that are not this job's: of others, and payload-init."""
    found = []
    for pid in processes():
        status = dict(line.split(":\t", 1) for line in text(pid, "status").splitlines() if ":\t" in line)
        if status and (status["Uid"].split()[0] != str(os.getuid()) or status["Name"] == "payload-init"):
            found.append(pid)
    assert len(found) > 1 or os.getuid() == 0, "the pilot's processes cannot be seen, so that this shows nothing"
    return found


def system_call(number: int, *arguments: int) -> int:
    """A system call without a function of libc's; its error if it fails, as a negative number."""
    ctypes.set_errno(0)
    answer: int = LIBC.syscall(ctypes.c_long(number), *(ctypes.c_long(one) for one in arguments))
    return -ctypes.get_errno() if answer == -1 else answer


def tries(*wanted: tuple[str, Callable[..., object], *tuple[object, ...]]) -> list[str]:
    """Names of those that raise nothing: each is a name, what to call, and with what."""
    gained = []
    for name, act, *arguments in wanted:
        with suppress(OSError):
            act(*arguments)
            gained.append(name)
    return gained


def opened(path: str, flags: int = os.O_WRONLY) -> None:
    """Open something, and do nothing with it."""
    os.close(os.open(path, flags))


def written(path: str, words: str) -> None:
    """Write to a file."""
    Path(path).write_text(words)


def called(number: int, *arguments: int) -> None:
    """A system call that raises what it answers."""
    checked(system_call(number, *arguments))


def checked(answer: int) -> int:
    """Raise what a system call has answered."""
    if answer < 0:
        raise OSError(-answer, os.strerror(-answer))
    return answer


def files_in(folder: str) -> Iterator[str]:
    """Paths of all files below a folder."""
    for where, _, names in os.walk(folder):
        yield from (f"{where}/{name}" for name in names)


def has_secret(path: str) -> bool:
    """Whether a file can be read and has something in it that looks like a secret; this program itself has not."""
    with suppress(OSError):
        if "arsenal" not in path and stat.S_ISREG(os.stat(path).st_mode):
            with open(path, "rb") as file:
                return bool(SECRET.search(file.read(65536)))
    return False


def content(path: str) -> None:
    """Read something; raise if there is nothing in it."""
    if not Path(path).read_bytes():
        raise OSError(errno.ENODATA, "it is empty")
