"""A pod that cannot be a pilot says why."""

import json
from collections.abc import Mapping

import pytest
import yaml

from lab import pilot
from lab.api import Lab
from lab.settings import CHECKOUT, PILOT_NAMESPACE
from tests.e2e.pool import until


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        pytest.param({"GLIDEIN_Site": ""}, "GLIDEIN_Site must be set", marks=pytest.mark.nightly),
        ({"CONDOR_HOST": ""}, "CONDOR_HOST (or POOL) must be set"),
        pytest.param({"K8SPILOT_VACATE_SECONDS": "600"}, "terminationGracePeriodSeconds", marks=pytest.mark.nightly),
        pytest.param({"K8SPILOT_PAYLOAD_CONTAINER": "other"}, "other", marks=pytest.mark.nightly),
        pytest.param({"K8SPILOT_MIN_FREE_MB": "1000000000"}, "MiB are needed", marks=pytest.mark.landing),
        ({"K8SPILOT_VACATE_SECONDS": "600", "TOKEN": "x", "K8SPILOT_PAYLOAD_UID": "4321"}, " faults: (1) "),
    ],
)
def test_its_last_word_is_one_sentence(lab: Lab, owner: str, environment: Mapping[str, str], words: str) -> None:
    name = f"e2e-{owner}-wrong"
    pilot.delete(lab, name)
    pilot.delete_events(lab, name)
    try:
        lab.kubectl("apply", "-k", str(pilot.write_overlay(lab, name, environment)))
        query = ("get", "pod", name, "-n", PILOT_NAMESPACE, "-o")
        container = "{.status.containerStatuses[0]"
        paths = f"jsonpath={container}.state.terminated.message}}{container}.lastState.terminated.message}}"
        message = until(lambda: lab.kubectl(*query, paths).strip(), "the pilot has ended", 60)
        assert words in message
        assert len(message.splitlines()) == 1
        assert "Traceback" not in message
        status = json.loads(lab.kubectl(*query, "json"))["status"]["containerStatuses"][0]
        ended = status["state"].get("terminated") or status["lastState"]["terminated"]
        assert ended["exitCode"] == 2
        selector = f"involvedObject.name={name},reason=NotFit"
        events = lab.kubectl("get", "events", "-n", PILOT_NAMESPACE, "--field-selector", selector, "-o", "json")
        told = {one["message"] for one in json.loads(events)["items"] if one["type"] == "Warning"}
        assert [one for one in told if one in message], told
        assert not jobs_see(lab, name)
    finally:
        lab.kubectl("delete", "pod", name, "-n", PILOT_NAMESPACE, "--ignore-not-found", "--grace-period=1")


@pytest.mark.landing
def test_a_secret_that_comes_after_the_pod_is_found_within_seconds(lab: Lab, owner: str) -> None:
    """Earlier than by the kubelet's own look at the pod, 60 to 90 s after the last one, and without a new start."""
    name = f"e2e-{owner}-late"
    (pod,) = yaml.safe_load_all((CHECKOUT / "manifests/pilot-pod.yaml").read_text())
    number = [volume["name"] for volume in pod["spec"]["volumes"]].index("pool-token")
    change = {"op": "replace", "path": f"/spec/volumes/{number}/secret/secretName", "value": name}
    here = ("-n", PILOT_NAMESPACE)
    pilot.delete(lab, name)
    pilot.delete_events(lab, name)
    lab.kubectl("delete", "secret", name, *here, "--ignore-not-found")  # of a run that was killed
    try:
        lab.kubectl("apply", "-k", str(pilot.write_overlay(lab, name, {}, {"patches": [pilot.change(change)]})))
        until(lambda: "there is no credential" in _told(lab, name, "NotFit"), "the pilot says what it lacks", 60)
        secret = json.loads(lab.kubectl("get", "secret", "pool-token", *here, "-o", "json"))
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": secret["data"]}
        lab.kubectl("create", *here, "-f", "-", input=json.dumps(body))
        until(lambda: _told(lab, name, "Fit"), "the pilot finds the Secret", 40)
        status = json.loads(lab.kubectl("get", "pod", name, *here, "-o", "json"))["status"]
        assert [one["restartCount"] for one in status["containerStatuses"]] == [0]
    finally:
        lab.kubectl("delete", "pod,secret", name, *here, "--ignore-not-found", "--grace-period=1")


def _told(lab: Lab, name: str, reason: str) -> str:
    """Messages of a pod's Events."""
    selector = f"involvedObject.name={name},reason={reason}"
    return lab.kubectl(
        *("get", "events", "-n", PILOT_NAMESPACE, "--field-selector", selector),
        *("-o", "jsonpath={.items[*].message}"),
    )


def jobs_see(lab: Lab, pod: str) -> str:
    """The pod's slot in the pool."""
    return lab.access_point("alice", ["condor_status", "-constraint", f'K8SPodName == "{pod}"', "-af", "Name"]).strip()
