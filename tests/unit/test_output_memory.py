"""Memory of a job's output in the engine: the job chooses how many writes it makes, and never how much they cost."""

import tracemalloc
from collections.abc import Callable

import pytest

from k8spilot.docker.logs import Follower
from k8spilot.payload.command.output_buffer import KEPT_BYTES, OutputBuffer


def _memory_of(build: Callable[[], object]) -> int:
    """Bytes that what `build` returns holds."""
    tracemalloc.start()
    try:
        built = build()
        assert built is not None
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("alternates", [False, True], ids=["one stream", "both streams in turn"])
def test_output_in_single_bytes_costs_no_more_memory_than_the_limit(alternates: bool) -> None:
    def build() -> OutputBuffer:
        tail = OutputBuffer()
        for number in range(50_000):
            tail.add(1 + number % 2 if alternates else 1, b"%d" % (number % 10))
        return tail

    assert _memory_of(build) < 2 * KEPT_BYTES


def test_output_of_one_stream_in_single_bytes_is_kept_whole_in_few_pieces() -> None:
    tail = OutputBuffer()
    for _ in range(200_000):
        tail.add(1, b"x")
    assert len(list(tail)) < 20_000
    assert sum(len(piece.data) for piece in tail) == 200_000


def test_output_in_large_writes_is_kept_up_to_the_limit() -> None:
    tail = OutputBuffer()
    tail.add(1, b"x")
    tail.add(1, b"y" * (KEPT_BYTES + 1))
    assert [piece.data for piece in tail] == [b"y" * KEPT_BYTES]


async def _feed(follower: Follower) -> None:
    for number in range(5_000_000):
        await follower.take(1 + number % 2, b"%d" % (number % 10))


async def test_a_follower_that_does_not_read_costs_no_more_memory_than_the_limit_however_small_the_pieces() -> None:
    follower = Follower()
    tracemalloc.start()
    try:
        with pytest.raises(ConnectionResetError):
            await _feed(follower)
        assert tracemalloc.get_traced_memory()[0] < 8 * KEPT_BYTES
    finally:
        tracemalloc.stop()
    assert await follower.next() == (1, b"0")
