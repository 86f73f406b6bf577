"""The kernel's keyrings (keyrings(7)): a program that asks for keys, and processes without a system call filter."""

import ctypes
import os
import platform
import sys
from typing import Final

import pytest

NUMBERS: Final = {"x86_64": (248, 249, 250), "aarch64": (217, 218, 219)}.get(platform.machine())
"""Numbers of add_key(2), request_key(2) and keyctl(2) here; None: of an architecture that the tests do not know."""
ASK: Final = """
my ($add, $request, $control) = @ARGV;
my @own = ("user", "left-by-a-job", "secret");
print syscall($add, $own[0], $own[1], $own[2], 6, -4) < 0 ? 0 + $! : "a key", " ";
print syscall($request, $own[0], $own[1], 0, 0) < 0 ? 0 + $! : "a key", " ";
print syscall($control, 0, -4, 1) < 0 ? 0 + $! : "the uid's ring", " ";
print syscall(0x40000000 + $control, 0, -4, 1) < 0 ? 0 + $! : "the uid's ring";
"""
DENIED: Final = "1 1 1 1"
"""Output of ASK if the kernel denies all four system calls (EPERM)."""
KNOWN: Final = pytest.mark.skipif(NUMBERS is None, reason="the test does not know this machine's system calls")


def question() -> list[str]:
    """Return the command that asks for keys."""
    assert NUMBERS is not None
    return ["perl", "-e", ASK, *map(str, NUMBERS)]


def without_filters(program: str, *arguments: str) -> list[str]:
    """Return a command that runs a program to which the kernel answers EPERM when it asks for a system call filter."""
    return [sys.executable, __file__, program, *arguments]


class _Filter(ctypes.Structure):
    """struct sock_fprog (linux/filter.h)."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _refuse_filters() -> None:
    """Make the kernel refuse seccomp(2), and prctl(2) with PR_SET_SECCOMP, to this process (seccomp(2))."""
    seccomp, prctl = {"x86_64": (317, 157), "aarch64": (277, 167)}[platform.machine()]
    load, equal, answer = 0x20, 0x15, 0x06
    program = (
        (load, 0, 0, 0),  # the number
        (equal, 3, 0, seccomp),
        (equal, 0, 3, prctl),
        (load, 0, 0, 16),  # the first argument
        (equal, 0, 1, 22),
        (answer, 0, 0, 0x00050001),
        (answer, 0, 0, 0x7FFF0000),
    )
    code = b"".join(
        one.to_bytes(2, sys.byteorder) + bytes((yes, no)) + value.to_bytes(4, sys.byteorder)
        for one, yes, no, value in program
    )
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(_Filter(len(program), code)), 0, 0):
        raise OSError(ctypes.get_errno(), "no system call filter can be installed here")


if __name__ == "__main__":
    _refuse_filters()
    os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606 - the program under test
