"""The bound on what is remembered of others: the latest keys stay."""

from k8spilot.common.lru import LruDict


def test_the_latest_keys_stay_and_one_that_is_set_again_is_the_last() -> None:
    latest: LruDict[str, int] = LruDict(2)
    latest["a"] = 1
    latest["b"] = 2
    latest["a"] = 3
    latest["c"] = 4
    assert dict(latest) == {"a": 3, "c": 4}
    assert list(latest) == ["a", "c"]
