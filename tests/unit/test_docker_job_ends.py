"""Whose job a container is."""

import pytest

from k8spilot.docker.job_ends import owner_of


@pytest.mark.parametrize(
    ("host", "owner"),
    [
        ("alice-12.3-site.pilot-7", "alice"),
        ("alice-b-12.3-x", "alice-b"),
        ("al.ice_x-12.3-x-12.3-y", "al.ice_x"),
        ("alice-12.4-site.pilot-7", ""),
        ("a-1.1-12.3-x", ""),
        ("-12.3-x", ""),
        ("alice-12.3", ""),
        ("", ""),
        (None, ""),
        (["alice-12.3-x"], ""),
    ],
)
def test_htcondors_host_name_tells_the_owner(host: object, owner: str) -> None:
    assert owner_of("12.3", {"Hostname": host}) == owner
