"""For how long a slot takes no jobs with an image that was not available."""

from k8spilot.model.avoided_images import AvoidedImages

NOW = 1_800_000_000.0
HOUR = 3600


def seconds(avoided: AvoidedImages, name: str, now: float) -> float:
    """For how long `name` is avoided from `now` on."""
    return avoided.at(now).get(name, now) - now


def test_each_further_failure_doubles_the_time_up_to_a_limit() -> None:
    avoided, now, found = AvoidedImages(), NOW, []
    for _ in range(8):
        avoided.add("a.example", now)
        found.append(seconds(avoided, "a.example", now))
        now += found[-1]
        assert avoided.at(now) == {}
    assert found == [600, 1200, 2400, 4800, 9600, 19200, 6 * HOUR, 6 * HOUR]


def test_a_failure_of_a_job_that_was_there_already_counts_as_the_same() -> None:
    avoided = AvoidedImages()
    avoided.add("a.example", NOW)
    avoided.add("a.example", NOW + 5)
    assert seconds(avoided, "a.example", NOW + 5) == 595


def test_each_name_has_its_own_end() -> None:
    avoided = AvoidedImages()
    for name, now in (("a.example", NOW), ("a.example", NOW + 600), ("b.example", NOW + 700)):
        avoided.add(name, now)
    assert avoided.at(NOW + 700) == {"a.example": NOW + 1800, "b.example": NOW + 1300}
    assert avoided.at(NOW + 1300) == {"a.example": NOW + 1800}


def test_what_has_not_failed_for_long_begins_anew() -> None:
    avoided = AvoidedImages()
    for now in (NOW, NOW + HOUR, NOW + 20 * HOUR):
        avoided.add("a.example", now)
    assert seconds(avoided, "a.example", NOW + 20 * HOUR) == 600


def test_users_cannot_make_the_list_grow() -> None:
    avoided = AvoidedImages()
    for number in range(1000):
        avoided.add(f"{number}.example", NOW)
    assert list(avoided.at(NOW)) == [f"{number}.example" for number in range(968, 1000)]
    for number in range(32):
        avoided.add("x" * 250 + str(number), NOW)
    assert sum(map(len, avoided.at(NOW))) <= 4096
