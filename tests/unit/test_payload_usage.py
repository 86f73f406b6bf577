"""Figures from the files of a container's cgroup."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from k8spilot.payload.usage import Usage, read_traffic, read_usage

V1 = {
    "cpuacct.usage_user": "1500000000\n",
    "cpuacct.usage_sys": "250000000\n",
    "memory.stat": "cache 999\nrss 1\nshmem 2\ntotal_cache 999\ntotal_rss 4096\ntotal_shmem 8192\ntotal_rss_huge 0\n",
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
    "memory.limit_in_bytes": "77777\n",
}
V2 = {
    "cpu.stat": "usage_usec 1750000\nuser_usec 1500000\nsystem_usec 250000\nnr_periods 0\n",
    "memory.stat": "anon 4096\nfile 999\nshmem 8192\nanon_thp 5\n",
    "memory.events": "low 0\nhigh 0\nmax 9\noom 9\noom_kill 3\noom_group_kill 1\n",
    "memory.max": "77777\n",
}
BOTH = Usage(user_ns=1_500_000_000, system_ns=250_000_000, resident=12288, limit=77777, oom_kills=3)


@contextmanager
def opened(texts: dict[str, str]) -> Iterator[dict[str, int]]:
    """Files as payload-init hands them over."""
    files = {name: os.memfd_create(name) for name in texts}
    try:
        for name, text in texts.items():
            os.write(files[name], text.encode())
        yield files
    finally:
        for descriptor in files.values():
            os.close(descriptor)


@pytest.mark.parametrize("texts", [V1, V2], ids=["cgroup v1", "cgroup v2"])
def test_both_layouts_give_the_same_figures(texts: dict[str, str]) -> None:
    with opened(texts) as files:
        assert read_usage(files) == BOTH
        assert read_usage(files) == BOTH, "a second look reads from the beginning again"


def test_a_container_without_a_limit_has_none() -> None:
    with opened(V2 | {"memory.max": "max\n"}) as files:
        assert read_usage(files).limit is None


def test_what_is_missing_is_not_known() -> None:
    assert read_usage({}) == Usage()
    with opened({"cpu.stat": "user_usec 1\n"}) as files:
        assert read_usage(files) == Usage(user_ns=1000)


@pytest.mark.parametrize("text", ["", "\0\xff", "rss\n", "total_rss -1\n", "total_rss x\n", "a b c\n"])
def test_what_makes_no_sense_is_not_known(text: str) -> None:
    with opened({"memory.stat": text, "cpuacct.usage_user": text}) as files:
        assert read_usage(files) == Usage()


def test_a_file_that_has_gone_is_not_known() -> None:
    with opened(V1) as files:
        os.close(files["memory.stat"])
        files["memory.stat"] = os.open("/proc/self", os.O_RDONLY)  # reading a folder fails
        assert read_usage(files).resident is None


def test_traffic_is_counted_without_the_loopback() -> None:
    traffic = read_traffic()
    assert traffic.received >= 0
    assert traffic.sent >= 0


def test_usage_since_a_moment_is_without_what_was_used_before_and_has_the_memory_of_now() -> None:
    before = Usage(user_ns=1_000_000_000, system_ns=250_000_000, resident=4096, limit=70000, oom_kills=3)
    used = BOTH.since(before)
    assert used == Usage(user_ns=500_000_000, system_ns=0, resident=12288, limit=77777, oom_kills=0)
    assert Usage().since(before) == Usage()
    assert BOTH.since(Usage()) == BOTH
