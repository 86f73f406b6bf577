"""Chirp: a job talks to its access point through its starter, from inside of its container."""

from typing import Any

import pytest

from tests.e2e.pool import Pool, ads, result

SCRIPT = """
chirp() { /usr/libexec/condor/condor_chirp "$@" || echo "$1 failed"; }
read address port cookie < $_CONDOR_CHIRP_CONFIG; echo $address
chirp get_job_attr Owner
chirp set_job_attr ChirpNow '"at once"'
chirp set_job_attr_delayed ChirpLater '"with the next update"'
chirp fetch data.txt fetched; cat fetched
printf 'from the job \\000\\377' > made; chirp put made stored
chirp ulog 'half way'
"""


@pytest.mark.parametrize("image", ["container_image", "docker_image"])
def test_attributes_and_files_go_both_ways(pool: Pool, image: str) -> None:
    where: Any = {"container_image": f"docker://{pool.lab.pool_image}"}
    if image == "docker_image":
        where = {"universe": "docker", "docker_image": pool.lab.pool_image, "container_image": ""}
    jobs = pool.shell(SCRIPT, files={"data.txt": "from the access point\n"}, **{**where, "+WantIOProxy": "True"})
    done = result(jobs)
    assert done.text.splitlines() == ["127.0.0.1", '"alice"', "from the access point"], done.stderr
    assert done.files["stored"] == b"from the job \0\xff"
    told = [event.attributes["Info"] for event in jobs.events if event.kind == "GenericEvent"]
    assert told == ["half way"]
    ad = ads(jobs)[0]
    assert (ad["ChirpNow"], ad["ChirpLater"]) == ("at once", "with the next update")


def test_without_asking_for_it_a_job_has_delayed_attributes_alone(pool: Pool) -> None:
    done = result(pool.shell(SCRIPT, container_image=f"docker://{pool.lab.pool_image}", files={"data.txt": "x"}))
    assert "fetch failed" in done.text
    assert "set_job_attr failed" in done.text
    assert "set_job_attr_delayed failed" not in done.text
