"""The leash of a payload-init: what happens to the terminals that it is offered."""

import errno
import signal
from collections.abc import Iterator

import pytest

from k8spilot.payload_init.leash import Leash
from k8spilot.payload_init.terminals import Terminal, Terminals


class _Terminal(Terminal):
    """A terminal that says what became of it."""

    def __init__(self, home: Terminals) -> None:
        super().__init__(home)
        self.fate = ""

    def give_back(self) -> None:
        self.fate = "given back"
        super().give_back()

    def hang_up(self) -> None:
        self.fate = "hung up"
        super().hang_up()


@pytest.fixture
def terminals() -> Iterator[Terminals]:
    """Terminals, none of which is kept."""
    found = Terminals()
    yield found
    found.close()


async def test_an_accepted_terminal_can_kill_and_is_hung_up_once(terminals: Terminals) -> None:
    leash, terminal = Leash(), _Terminal(terminals)
    leash.offer(terminal)
    was_attached = [leash.is_attached]
    assert leash.handle(0)
    was_attached.append(leash.is_attached)
    hung_up = [leash.hang_up(), leash.hang_up()]
    assert terminal.fate == "hung up"
    assert [*was_attached, leash.is_attached] == [False, True, False]
    assert hung_up == [True, False]


async def test_a_refused_terminal_is_given_back_and_another_one_can_be_offered(terminals: Terminals) -> None:
    leash, first, second = Leash(), _Terminal(terminals), _Terminal(terminals)
    leash.offer(first)
    assert leash.handle(errno.EPERM)
    assert first.fate == "given back"
    assert leash.answer.result() == errno.EPERM
    leash.offer(second)
    assert leash.handle(0)
    assert leash.is_attached
    leash.give_back()
    assert second.fate == "given back"


async def test_a_terminal_without_an_answer_stays_on_offer_and_is_given_back_at_the_end(terminals: Terminals) -> None:
    leash, terminal, another = Leash(), _Terminal(terminals), _Terminal(terminals)
    leash.offer(terminal)
    with pytest.raises(AssertionError):
        leash.offer(another)
    another.close()
    leash.cancel()
    assert leash.is_offered
    assert not leash.is_attached
    leash.give_back()
    assert terminal.fate == "given back"


async def test_an_answer_comes_once_and_after_an_offer(terminals: Terminals) -> None:
    leash = Leash()
    assert not leash.handle(0)
    leash.offer(_Terminal(terminals))
    assert leash.handle(0)
    assert not leash.handle(0)
    leash.give_back()


async def test_a_leash_that_was_attached_leaves_the_signal_that_it_allows_among_the_deadly_ones(
    terminals: Terminals,
) -> None:
    leash = Leash()
    assert signal.SIGHUP not in leash.deadly_signals
    leash.offer(_Terminal(terminals))
    assert leash.handle(0)
    leash.give_back()
    assert signal.SIGHUP in leash.deadly_signals
