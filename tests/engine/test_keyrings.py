"""The kernel's keyrings, which belong to a uid of the node: no process of a job and none of HTCondor's may use them."""

import platform
import subprocess

import pytest

from tests.engine.rings import Engine

NUMBERS = {"x86_64": (248, 249, 250), "aarch64": (217, 218, 219)}
"""add_key(2), request_key(2) and keyctl(2), by machine."""
ASK = """
my ($add, $request, $control) = @ARGV;
my @own = ("user", "left-by-a-job", "secret");
print syscall($add, $own[0], $own[1], $own[2], 6, -4) < 0 ? 0 + $! : "a key", " ";
print syscall($request, $own[0], $own[1], 0, 0) < 0 ? 0 + $! : "a key", " ";
print syscall($control, 0, -4, 1) < 0 ? 0 + $! : "the uid's ring", " ";
print syscall(0x40000000 + $control, 0, -4, 1) < 0 ? 0 + $! : "the uid's ring";
"""
DENIED = b"1 1 1 1"
"""EPERM, four times."""


@pytest.fixture
def numbers() -> list[str]:
    """Numbers of the system calls here."""
    if platform.machine() not in NUMBERS:
        pytest.skip(f"the numbers of {platform.machine()}'s system calls are not in this test")
    return [str(one) for one in NUMBERS[platform.machine()]]


async def test_neither_a_job_nor_a_session_beside_it_can_use_keyrings(engine: Engine, numbers: list[str]) -> None:
    result = await engine.run(engine.image("debian"), "perl", "-e", ASK, *numbers)
    assert result.stdout == DENIED
    job = await engine.begin_shell(engine.image("debian"), "sleep 60")
    assert (await engine.exec(job.name, "perl", "-e", ASK, *numbers)).stdout == DENIED


def test_without_the_filter_this_machine_has_keyrings(numbers: list[str]) -> None:
    """Else the test above shows nothing."""
    find_the_uids = "print syscall($ARGV[0], 0, -4, 1)"
    done = subprocess.run(["perl", "-e", find_the_uids, numbers[-1]], capture_output=True, check=True)
    assert int(done.stdout) > 0
