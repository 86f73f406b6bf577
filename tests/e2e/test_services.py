"""Container services: a job listens on a port, and who watches the queue can reach it."""

import pytest

from tests.e2e.pool import Pool, result, until

SERVE = """
echo served by $(hostname) > index.html
httpd -p 8080 -h . && while [ ! -e over ]; do sleep 0.1; done
"""

FETCH = "import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())"


@pytest.mark.landing
def test_the_queue_shows_a_services_port_and_the_port_serves(pool: Pool) -> None:
    jobs = pool.shell(SERVE, container_service_names="web, none", web_container_port="8080", none_container_port="8081")
    jobs.wait("ExecuteEvent")

    def ports() -> list[str]:
        query = f"condor_q {jobs.cluster}.0 -af web_HostPort none_HostPort"
        return [port for port in pool.lab.access_point("alice", query).split() if port != "undefined"]

    # On a busy node the starter's first update may be too early; the next one comes 120 s later.
    assert until(ports, "the queue has the ports", 150) == ["8080", "8081"]
    address = pool.status()["status"]["podIP"]
    page = pool.lab.access_point("alice", ["python3", "-c", FETCH, f"http://{address}:8080/index.html"])
    assert page == f"served by {pool.pod}\n"
    pool.inside("cd /var/lib/condor/execute/slot/dir_*/scratch && touch over")
    assert result(jobs).code == 0


def test_a_port_that_the_pod_itself_listens_on_is_refused(pool: Pool) -> None:
    # The metrics port, of which the job cannot have a second one: the network of the pod is that of the job.
    held = pool.submit({"container_service_names": "mine", "mine_container_port": "9464"}).held().attributes
    assert held["HoldReasonCode"] == 35
    assert "9464" in held["HoldReason"]
