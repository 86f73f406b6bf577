"""Observation of a pilot by an operator while real jobs run in it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from lab import jobs, pilot, prometheus
from lab.api import Lab
from lab.errors import LabError
from lab.http import opened
from lab.prometheus import Prometheus
from lab.settings import PILOT_NAMESPACE
from tests.e2e.pool import IMAGE_HOLD, Pool, hold_reason, result, until

PORT = 9464


@pytest.fixture
def address(pool: Pool) -> str:
    """Address of the pilot's metrics."""
    if pool.lab.settings.kubeconfig is not None:
        pytest.skip("KUBECONFIG is set: pods are not reached from this machine")
    return f"{pool.status()['status']['podIP']}:{PORT}"


@pytest.fixture
def scraper(pool: Pool, address: str) -> Iterator[Prometheus]:
    """A Prometheus that scrapes the pilot."""
    with prometheus.scraping(pool.lab, [address]) as found:
        yield found


def read(address: str, path: str) -> str:
    with opened(f"http://{address}/{path}") as answer:
        return str(answer.read().decode())


def status(pool: Pool) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(pool.inside("k8spilot status --json || true"))
    return found


def events(lab: Lab, pod: str) -> list[dict[str, Any]]:
    """The pilot's own Events."""
    selector = f"involvedObject.name={pod},source=k8spilot"
    text = lab.kubectl("get", "events", "-n", PILOT_NAMESPACE, "--field-selector", selector, "-o", "json")
    found: list[dict[str, Any]] = json.loads(text)["items"]
    return found


def test_a_prometheus_scrapes_a_pilot_that_runs_jobs(pool: Pool, address: str, scraper: Prometheus) -> None:
    (target,) = until(lambda: scraper.get("targets")["activeTargets"], "Prometheus has its target")
    until(lambda: scraper.get("targets")["activeTargets"][0]["health"] == "up", f"{target['scrapeUrl']} is up")
    ended = 'k8spilot_payload_exits_total{reason="exited"}'
    before = until(lambda: scraper.value(f"{ended} + 1"), "the series is there")
    assert result(pool.shell("exit 3")).code == 3
    until(lambda: scraper.value(f"{ended} >= {before}"), "the job is counted")
    assert scraper.value('k8spilot_binds_total{result="bound"}')
    assert scraper.value("histogram_quantile(0.9, k8spilot_bind_duration_seconds_bucket)")
    assert scraper.value("sum(k8spilot_state)") == 1
    assert scraper.value('k8spilot_api_requests_total{verb="patch",code="200"}')
    assert scraper.value("time() - k8spilot_api_last_contact_timestamp_seconds < 100") is not None
    assert scraper.value("k8spilot_in_pool") == 1
    assert scraper.value("time() - k8spilot_pool_last_update_timestamp_seconds < 700") is not None
    assert scraper.value("process_resident_memory_bytes")
    assert scraper.value("k8spilot_build_info") == 1


def test_promtool_finds_nothing_wrong_with_the_metrics(address: str, scraper: Prometheus) -> None:
    assert scraper.lint(read(address, "metrics")) == ""


def test_the_kubelet_finds_a_pilot_ready(pool: Pool) -> None:
    def is_ready() -> bool:
        return any(one["type"] == "Ready" and one["status"] == "True" for one in pool.status()["status"]["conditions"])

    until(is_ready, "the pod is ready", 60)


def test_the_status_tells_of_the_job_that_runs(pool: Pool) -> None:
    running = pool.shell("sleep 60")
    running.wait("ExecuteEvent")
    until(lambda: status(pool)["slots"][0]["state"] == "running", "it runs")
    found = status(pool)
    assert found["fit"], found["problems"]
    assert found["slots"][0]["job"] == f"{running.cluster}.0"
    claim = found["slots"][0]["htcondor"]
    assert (claim["state"], claim["job"]) == ("Claimed", f"{running.cluster}.0")
    assert found["htcondor"]["to_die"] > found["htcondor"]["to_retire"]
    assert found["pool"]["in_pool"]
    text = pool.inside("k8spilot status")
    assert f"in the pool as slot1@lab.{pool.pod} of {pool.lab.pool_host}" in text
    assert f"{running.cluster}.0, runs for" in text
    log = pool.lab.kubectl("logs", "-n", PILOT_NAMESPACE, pool.pod, "-c", "pilot", "--since=60s")
    assert f"job={running.cluster}.0 slot=slot1" in log
    of_startd = [line for line in log.splitlines() if " condor.startd: " in line]
    assert not [line for line in of_startd if "slot1: " in line], "HTCondor's lines about each job are of level DEBUG"
    assert "command request" not in log, "the pilot's own question whether HTCondor answers is no line of its log"


def test_a_refused_image_is_an_event_on_the_pod_and_the_last_fault(lab: Lab, owner: str, pool: Pool) -> None:
    own = pool.of_pod(f"e2e-{owner}-refused")  # a pilot that other tests use may be at its limit of Events
    pilot.deploy(lab, own.pod)
    try:
        jobs.wait_in_pool(lab, own.pod)
        held = own.submit({"container_image": own.image("there-is-none")})
        reason = hold_reason(held, IMAGE_HOLD)
        until(lambda: _told(lab, own.pod, "ImageRefused", "there-is-none"), "the Event is there")
        fault = status(own)["last_fault"]
        assert fault["what"] == "ImageRefused"
        assert fault["words"].rstrip(".").rpartition(": ")[2] in reason
    finally:
        pilot.discard(lab, own.pod)


def test_a_pilots_life_is_told_in_events(lab: Lab, owner: str) -> None:
    """An engine that was killed and the end of the pod; and nothing of it in JSON that is not JSON."""
    name = f"e2e-{owner}-told"
    pilot.deploy(lab, name, {"K8SPILOT_LOG_FORMAT": "json"})
    try:
        jobs.wait_in_pool(lab, name)
        until(lambda: _told(lab, name, "InPool"), "the first engine has told it")  # the pool has the slot before that
        inside = ("exec", "-n", PILOT_NAMESPACE, name, "-c", "pilot", "--", "sh", "-c")
        lab.kubectl(*inside, "kill -9 $(pgrep -f k8spilot.engine | head -1)")
        until(lambda: _told(lab, name, "Recovered"), "the engine's death is told")
        until(lambda: _status(lab, name).get("fit"), "the pilot is fit again")
        assert _told(lab, name, "Fit")
        until(lambda: _counts(lab, name, "InPool") == [2], "both engines have told it")
        assert _status(lab, name)["engine"]["restarts"] == 1
        log = lab.kubectl("logs", "-n", PILOT_NAMESPACE, name, "-c", "pilot")
        assert {"time", "level", "logger", "message"} <= {key for line in log.splitlines() for key in json.loads(line)}
        assert "condor.master" in {json.loads(line)["logger"] for line in log.splitlines()}
    finally:
        pilot.delete(lab, name)
    assert _told(lab, name, "Draining")
    (drained,) = [one["message"] for one in events(lab, name) if one["reason"] == "Drained"]
    assert "the pod was deleted" in drained


def _counts(lab: Lab, name: str, reason: str) -> list[int]:
    """Return the count of each Event of a reason."""
    return [one["count"] for one in events(lab, name) if one["reason"] == reason]


def _told(lab: Lab, name: str, reason: str, words: str = "") -> bool:
    return any(one["reason"] == reason and words in one["message"] for one in events(lab, name))


def _status(lab: Lab, name: str) -> dict[str, Any]:
    command = ("exec", "-n", PILOT_NAMESPACE, name, "-c", "pilot", "--", "sh", "-c", "k8spilot status --json || true")
    try:
        found: dict[str, Any] = json.loads(lab.kubectl(*command))
    except LabError:
        return {}
    return found
