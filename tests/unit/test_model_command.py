"""Commands on the wire, and results off it."""

import pytest

from k8spilot.model.command import Command
from k8spilot.model.outcome import Outcome


def test_a_command_is_records_that_end_with_nul() -> None:
    command = Command(
        arguments=(b"sh", b"-c", b""),
        environment=(b"A=1\n2", b"B="),
        removed=(b"HOME", b"KUBERNETES_*"),
        directory=b"/work",
        umask=0o027,
    )
    records = command.encode().split(b"\0")
    assert records == [b"uHOME", b"uKUBERNETES_*", b"eA=1\n2", b"eB=", b"ash", b"a-c", b"a", b"m27", b"d/work", b""]


def test_without_a_folder_none_is_sent() -> None:
    assert Command(arguments=(b"x",)).encode() == b"ax\0m22\0"


def test_any_byte_but_nul_can_be_sent() -> None:
    text = bytes(range(1, 256))
    assert b"a" + text + b"\0" in Command(arguments=(text,)).encode()


@pytest.mark.parametrize(
    "command",
    [
        Command(arguments=(b"a\0b",)),
        Command(arguments=(b"a",), environment=(b"A=\0",)),
        Command(arguments=(b"a",), removed=(b"\0",)),
        Command(arguments=(b"a",), directory=b"/\0"),
    ],
)
def test_nul_is_refused_wherever_it_is(command: Command) -> None:
    with pytest.raises(ValueError, match="NUL"):
        command.encode()


def test_no_arguments_are_no_command() -> None:
    with pytest.raises(ValueError, match="no command"):
        Command(arguments=()).encode()


@pytest.mark.parametrize(
    ("status", "code"), [(0, 0), (7 << 8, 7), (255 << 8, 255), (9, 137), (15, 143), (11 | 128, 139)]
)
def test_a_wait_status_becomes_dockers_exit_code(status: int, code: int) -> None:
    assert Outcome.of(status).code == code
    assert not Outcome.of(status).out_of_memory


def test_out_of_memory_is_a_kill() -> None:
    outcome = Outcome.killed_for_memory()
    assert (outcome.code, outcome.out_of_memory) == (137, True)
