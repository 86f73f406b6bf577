"""The grammar of payload-init's messages."""

import pytest

from k8spilot.payload_init.messages import (
    Cleared,
    Exited,
    Failed,
    Hello,
    LeashAnswer,
    Message,
    Renewal,
    Started,
    Swept,
    TerminalOpened,
    parse,
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello 4 fresh scoped -", Hello(fresh=True, scoped=True, bind="-", names=())),
        ("hello 4 used open x1 root cpu", Hello(fresh=False, scoped=False, bind="x1", names=("root", "cpu"))),
        ("terminal 3", TerminalOpened(3)),
        ("started 3 71", Started(3)),
        ("failed 3 2 execve", Failed(3, 2, "execve")),
        ("exit 0 256", Exited(0, 256)),
        ("swept", Swept()),
        ("cleared", Cleared()),
        ("leash 0", LeashAnswer(0)),
        ("leash 4095", LeashAnswer(4095)),
        ("renewed", Renewal("")),
        ("worn limits", Renewal("limits")),
    ],
)
def test_each_message_has_one_form(text: str, message: Message) -> None:
    assert parse(text.encode()) == message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "hello 3 fresh scoped -",
        "hello 4 new scoped -",
        "hello 4 fresh scoped - cpu cpu",
        "started",
        "started 1",
        "started 1 2 3",
        "started -1 2",
        "started \u0661 2",  # a decimal digit, but not of ASCII
        "failed 1 x execve",
        "failed 1 4096 execve",
        "exit 0 127",  # a stopped process
        "exit 0 65536",
        "leash -1",
        "leash 4096",
        "leash 99999999999999999999",
        "worn",
        "worn ",
        "swept now",
        "unknown 1",
    ],
)
def test_another_form_is_no_message(text: str) -> None:
    assert parse(text.encode()) is None
