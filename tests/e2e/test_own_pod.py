"""The component own-pod on a real API server: what a stolen token is worth, and that pilots work with it.

The tests have a service account of their own, which may do everything to pods: what stops it is the policy alone.
"""

import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import yaml

from k8spilot.kube.pod import DELETION_COST
from lab import jobs, pilot
from lab.api import Lab
from lab.settings import CHECKOUT, PILOT_NAMESPACE, SESSION_LABEL
from tests.e2e.pool import Pool, result, until
from tests.e2e.thief import POLICIES, STRATEGIC, Place, Thief, guarded


@pytest.fixture(scope="module")
def place(lab: Lab, pod: str, owner: str) -> Iterator[Place]:
    name, account = f"e2e-{owner}-own", f"k8spilot-{owner}"
    other = f"{name}-other"
    with guarded(lab, name, account) as thief, ExitStack() as cleanup:
        removal = ("delete", "pod", other, "-n", PILOT_NAMESPACE, "--ignore-not-found", "--grace-period=1")
        cleanup.callback(lab.kubectl, *removal)
        of = ("-n", PILOT_NAMESPACE, f"--labels=run={other},{SESSION_LABEL}={lab.settings.session}")
        lab.kubectl("run", other, *of, f"--image={lab.image}", "--command", "--", "sleep", "600")
        jobs.wait_in_pool(lab, name)
        yield Place(Pool(lab, pod, cleanup), name, other, account, thief)


def test_a_pilot_works_with_it(place: Place) -> None:
    here = place.pool.of_pod(place.pilot)
    for image in ("busybox", "debian:forky", "busybox"):
        assert result(here.shell("echo $1 fine", image=image)).text == "0 fine\n"
    until(lambda: "busybox" not in place.spec["initContainers"][1]["image"], "the idle image is back", 60)
    selector = f"involvedObject.name={place.pilot}"
    told = place.pool.lab.kubectl("get", "events", "-n", PILOT_NAMESPACE, "--field-selector", selector, "-o", "json")
    assert {"Fit", "Bound"} <= {one["reason"] for one in json.loads(told)["items"]}
    log = place.pool.lab.kubectl("logs", place.pilot, "-n", PILOT_NAMESPACE, "-c", "pilot")
    assert "ValidatingAdmissionPolicy" not in log
    managed = ("get", "pod", place.pilot, "-n", PILOT_NAMESPACE, "--show-managed-fields", "-o", "json")
    assert "managedFields" not in json.loads(place.pool.lab.kubectl(*managed))["metadata"]


def test_the_own_payloads_image_is_what_a_token_is_worth(place: Place) -> None:
    image = {"op": "replace", "path": "/spec/initContainers/1/image", "value": "registry.example/x:1"}
    assert place.thief.patch(place.pilot, image, dry=True).status == 200
    assert place.thief.patch(place.other, {**image, "path": "/spec/containers/0/image"}, dry=True).denied
    # And who is said to have changed the pod, of which a pilot keeps no account.
    account = {"op": "add", "path": "/metadata/managedFields", "value": [{}]}
    assert place.thief.patch(place.pilot, account, dry=True).status == 200
    assert place.thief.patch(place.other, account, dry=True).denied


def _named(bind: str) -> dict[str, Any]:
    """A change of the image's name."""
    return {"op": "add", "path": "/metadata/annotations/k8spilot~1bind", "value": bind}


def test_the_name_of_a_change_has_no_room_for_more(place: Place) -> None:
    assert place.thief.patch(place.pilot, _named("0123456789abcdef" * 2), dry=True).status == 200
    for evil in ("", "x" * 32, "0" * 31, "0" * 33, "0" * 32 + "\n", "0" * 250_000):
        answer = place.thief.patch(place.pilot, _named(evil), dry=True)
        assert answer.denied, (evil[:40], answer)
        assert "32 hexadecimal digits" in answer.text


def test_the_deletion_cost_of_the_own_pod_has_a_few_values(place: Place) -> None:
    def costs(value: str) -> dict[str, Any]:
        path = "/metadata/annotations/controller.kubernetes.io~1pod-deletion-cost"
        return {"op": "add", "path": path, "value": value}

    name = _named("0123456789abcdef" * 2)
    for fine in ("-2", "-1", "0", "100"):
        assert place.thief.patch(place.pilot, name, costs(fine), dry=True).status == 200
    for evil in ("1", "2147483647", "-2147483648", "100 "):
        answer = place.thief.patch(place.pilot, name, costs(evil), dry=True)
        assert answer.denied or answer.status == 422, (evil, answer)
    all_of_them = {"op": "add", "path": "/metadata/annotations", "value": {DELETION_COST: "0"}}
    assert place.thief.patch(place.other, all_of_them, dry=True).denied


CHANGES: dict[str, dict[str, Any]] = {
    "the pilot's image": {"op": "replace", "path": "/spec/containers/0/image", "value": "evil.example/x"},
    "another init container's image": {
        "op": "replace",
        "path": "/spec/initContainers/0/image",
        "value": "evil.example/x",
    },
    "a label": {"op": "add", "path": "/metadata/labels/evil", "value": "x"},
    "all labels": {"op": "remove", "path": "/metadata/labels"},
    "an annotation": {"op": "add", "path": "/metadata/annotations", "value": {"evil": "x"}},
    "an annotation beside the name of a bind": {
        "op": "add",
        "path": "/metadata/annotations",
        "value": {"k8spilot/bind": "0" * 32, "evil": "x"},
    },
    "a finalizer": {"op": "add", "path": "/metadata/finalizers", "value": ["evil.example/x"]},
    "an owner": {
        "op": "add",
        "path": "/metadata/ownerReferences",
        "value": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}],
    },
    "a deadline": {"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 1},
    "a toleration": {"op": "add", "path": "/spec/tolerations/-", "value": {"key": "evil", "operator": "Exists"}},
}


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_else_of_the_own_pod_can_be_changed(place: Place, change: str) -> None:
    answer = place.thief.patch(place.pilot, CHANGES[change], dry=True)
    assert answer.denied, answer
    image = {"op": "replace", "path": "/spec/initContainers/1/image", "value": "registry.example/x:1"}
    assert place.thief.patch(place.pilot, image, CHANGES[change], dry=True).denied


REQUESTS: dict[str, tuple[str, str, Any]] = {
    "a pod": (
        "POST",
        "pods?dryRun=All",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "evil"},
            "spec": {"serviceAccountName": "{account}", "containers": [{"name": "x", "image": "evil.example/x"}]},
        },
    ),
    "deletion of its pod": ("DELETE", "pods/{pilot}?dryRun=All", None),
    "deletion of another's": ("DELETE", "pods/{other}?dryRun=All", None),
    "deletion of all": ("DELETE", "pods?dryRun=All&labelSelector=run%3D{other}", None),
    "an eviction": (
        "POST",
        "pods/{other}/eviction?dryRun=All",
        {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "{other}"}},
    ),
    "a command in its pod": ("POST", "pods/{pilot}/exec?command=true&container=pilot&stdout=true", None),
    "a command in another's": ("POST", "pods/{other}/exec?command=true&stdout=true", None),
    "attaching": ("POST", "pods/{other}/attach?stdout=true", None),
    "a way to its ports": ("POST", "pods/{pilot}/portforward?ports=9464", None),
    "a way to another's ports": ("GET", "pods/{other}:80/proxy/", None),
    "its own status": ("PATCH", "pods/{pilot}/status?dryRun=All", {"status": {"reason": "Evil"}}),
    "its own limits": (
        "PATCH",
        "pods/{pilot}/resize?dryRun=All",
        {"spec": {"containers": [{"name": "pilot", "resources": {"limits": {"cpu": "3"}}}]}},
    ),
}


@pytest.mark.parametrize("wanted", REQUESTS)
def test_nothing_else_can_be_done_to_pods(place: Place, wanted: str) -> None:
    method, path, body = REQUESTS[wanted]
    for name in ("pilot", "other", "account"):
        path = path.replace(f"{{{name}}}", getattr(place, name))
        body = json.loads(json.dumps(body).replace(f"{{{name}}}", getattr(place, name)))
    answer = place.thief.ask(method, path, body, STRATEGIC if method == "PATCH" else "application/json")
    assert answer.denied, answer
    assert re.search("may only change images|may change nothing of its pod.s spec", answer.text)


def test_rights_beyond_what_is_needed_are_told_at_the_start(place: Place) -> None:
    lab = place.pool.lab
    selector = f"involvedObject.name={place.pilot},reason=MoreRights"
    events = lab.kubectl("get", "events", "-n", PILOT_NAMESPACE, "--field-selector", selector, "-o", "json")
    (told,) = {one["message"] for one in json.loads(events)["items"]}
    log = lab.kubectl("logs", place.pilot, "-n", PILOT_NAMESPACE, "-c", "pilot")
    check = pilot.inside(lab, place.pilot, "k8spilot check")
    for words in ("may do more than a pilot needs", "do everything to pods", "do everything to pods/exec"):
        assert words in told
        assert words in log
        assert words in check
    assert "an admission policy restricts it to its own pod" in check
    plain = pilot.inside(lab, place.pool.pod, "k8spilot check")
    assert "more than a pilot needs" not in plain


def test_what_measures_gpus_can_be_added(place: Place) -> None:
    for container in (
        place.sampler(),
        place.sampler(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}], args=["1"]),
        place.sampler(image=_pinned(place)),
    ):
        answer = place.thief.add(place.pilot, container)
        assert answer.status == 200, answer


def _pinned(place: Place) -> str:
    """The pilot's own image by its digest, as the engine writes it."""
    statuses = place.pool.of_pod(place.pilot).status()["status"]["containerStatuses"]
    return f"{place.image}-unique@{statuses[0]['imageID'].partition('@')[2]}"


OTHERS: dict[str, dict[str, Any]] = {
    "another name": {"name": "debugger-1"},
    "another image": {"image": "evil.example/x:1"},
    "another image by a digest": {"image": "evil.example/x@sha256:" + "0" * 64},
    "another user": {"securityContext": {"runAsUser": 65534}},
    "root": {"securityContext": {"runAsUser": 0, "runAsNonRoot": False}},
    "the pilot's group": {"securityContext": {"runAsGroup": 0}},
    "a capability": {"securityContext": {"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}},
    "capabilities that stay": {"securityContext": {"capabilities": None}},
    "new privileges": {"securityContext": {"allowPrivilegeEscalation": None}},
    "the pilot's token": {"volumeMounts": [{"name": "api-access", "mountPath": "/token"}]},
    "the exchange": {"volumeMounts": [{"name": "exchange", "mountPath": "/k8spilot"}]},
    "the pool's token elsewhere": {"volumeMounts": [{"name": "pool-token", "mountPath": "/k8spilot-gpu-metrics"}]},
    "a secret in a variable": {
        "env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "pool-token", "key": "x"}}}]
    },
    "secrets in variables": {"envFrom": [{"secretRef": {"name": "pool-token"}}]},
    "a terminal": {"stdin": True, "tty": True},
    "the pilot's processes": {"targetContainerName": "pilot"},
    "no security context": {"securityContext": None},
}


@pytest.mark.parametrize("kind", OTHERS)
def test_no_ephemeral_container_of_another_kind_can_be_added(place: Place, kind: str) -> None:
    answer = place.thief.add(place.pilot, place.sampler(**OTHERS[kind]))
    assert answer.denied, answer
    assert "may add no ephemeral container" in answer.text


def test_none_can_be_added_to_another_pod(place: Place) -> None:
    assert place.thief.add(place.other, place.sampler()).denied


def test_a_token_that_was_made_for_no_pod_may_change_nothing(place: Place) -> None:
    token = place.pool.lab.kubectl("create", "token", place.account, "-n", PILOT_NAMESPACE).strip()
    image = {"op": "replace", "path": "/spec/initContainers/1/image", "value": "registry.example/x:1"}
    assert Thief(place.pool.lab, token).patch(place.pilot, image, dry=True).denied


def test_a_token_that_was_made_for_another_pod_may_not_change_this_one(place: Place) -> None:
    lab = place.pool.lab
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{place.other}-2", "labels": lab.labels},
        "spec": {
            "serviceAccountName": place.account,
            "automountServiceAccountToken": False,
            "containers": [{"name": "pilot", "image": place.image, "command": ["sleep", "600"]}],
        },
    }
    lab.kubectl("create", "-n", PILOT_NAMESPACE, "-f", "-", input=json.dumps(body))
    try:
        query = ("get", "pod", f"{place.other}-2", "-n", PILOT_NAMESPACE, "-o", "jsonpath={.metadata.uid}")
        bound = (
            "--bound-object-kind=Pod",
            f"--bound-object-name={place.other}-2",
            "--bound-object-uid=" + lab.kubectl(*query),
        )
        token = lab.kubectl("create", "token", place.account, "-n", PILOT_NAMESPACE, *bound).strip()
        image = {"op": "replace", "path": "/spec/initContainers/1/image", "value": "registry.example/x:1"}
        assert Thief(lab, token).patch(place.pilot, image, dry=True).denied
    finally:
        lab.kubectl("delete", "pod", f"{place.other}-2", "-n", PILOT_NAMESPACE, "--grace-period=0", "--force")


def _event(pod: str, uid: str) -> dict[str, Any]:
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": PILOT_NAMESPACE, "name": pod, "uid": uid}
    metadata = {"name": f"{pod}.{time.time_ns():x}", "namespace": PILOT_NAMESPACE}
    said = {"reason": "Evil", "message": "x", "type": "Warning", "source": {"component": "k8spilot"}}
    return {"metadata": metadata, "involvedObject": about, **said}


def test_events_can_be_told_of_the_own_pod_alone(place: Place) -> None:
    def uid(pod: str) -> str:
        return place.pool.lab.kubectl("get", "pod", pod, "-n", PILOT_NAMESPACE, "-o", "jsonpath={.metadata.uid}")

    mine, others = _event(place.pilot, uid(place.pilot)), _event(place.other, uid(place.other))
    assert place.thief.ask("POST", "events", mine).status == 201
    assert place.thief.ask("POST", "events", others).denied
    without = {**others, "involvedObject": {**others["involvedObject"], "uid": ""}}
    assert place.thief.ask("POST", "events", without).denied
    place.pool.lab.kubectl("create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "Event", **others}))
    change = {"message": "evil", "involvedObject": mine["involvedObject"]}
    path = f"events/{others['metadata']['name']}"
    assert place.thief.ask("PATCH", path, change, STRATEGIC).denied
    modern = f"/apis/events.k8s.io/v1/namespaces/{PILOT_NAMESPACE}/events"
    assert place.thief.ask("POST", modern, _modern(place.other, others["involvedObject"])).denied


def _modern(name: str, about: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An Event as events.k8s.io has it."""
    return {
        "metadata": {"name": f"{name}.{time.time_ns():x}", "namespace": PILOT_NAMESPACE},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "k8spilot",
        "reportingInstance": "x",
        "action": "x",
        "reason": "Evil",
        "note": "x",
        "type": "Warning",
        "regarding": about,
        **more,
    }


def test_an_event_of_the_own_uid_is_of_the_own_pod_and_of_no_other_teller(place: Place) -> None:
    modern = f"/apis/events.k8s.io/v1/namespaces/{PILOT_NAMESPACE}/events"
    mine = _event(place.pilot, place.pool.of_pod(place.pilot).status()["metadata"]["uid"])
    about = mine["involvedObject"]
    assert place.thief.ask("POST", f"{modern}?dryRun=All", _modern(place.pilot, about)).status == 201
    for other in ({"name": place.other}, {"kind": "Secret"}, {"kind": "Secret", "name": "pool-token"}, {"uid": ""}):
        others = {**about, **other}
        assert place.thief.ask("POST", "events?dryRun=All", {**mine, "involvedObject": others}).denied, other
        assert place.thief.ask("POST", f"{modern}?dryRun=All", _modern(place.pilot, others)).denied, other
    for event_recorder in (
        {"source": {"component": "kubelet"}},
        {"reportingComponent": "kubelet", "reportingInstance": "x"},
    ):
        assert place.thief.ask("POST", "events?dryRun=All", {**mine, **event_recorder}).denied, event_recorder
    kubelets = _modern(place.pilot, about, reportingController="kubelet")
    assert place.thief.ask("POST", f"{modern}?dryRun=All", kubelets).denied
    assert place.thief.ask("POST", "events", mine).status == 201
    kubelet = {"source": {"component": "kubelet"}}
    path = f"{mine['metadata']['name']}?dryRun=All"
    assert place.thief.ask("PATCH", f"events/{path}", {"count": 2}, STRATEGIC).status == 200
    assert place.thief.ask("PATCH", f"events/{path}", kubelet, STRATEGIC).denied
    theirs = _event(place.pilot, about["uid"]) | kubelet
    place.pool.lab.kubectl("create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "Event", **theirs}))
    path = f"{theirs['metadata']['name']}?dryRun=All"
    assert place.thief.ask("PATCH", f"events/{path}", {"count": 2}, STRATEGIC).denied
    assert place.thief.ask("PATCH", f"{modern}/{path}", {"metadata": {"labels": {"evil": "x"}}}, STRATEGIC).denied


def test_the_component_holds_for_the_projects_own_account(lab: Lab) -> None:
    account = yaml.safe_load((CHECKOUT / "manifests/serviceAccount.yaml").read_text().split("---")[0])
    conditions = re.findall(r"endsWith\(':(\w+)'\)", POLICIES.read_text())
    assert conditions == [account["metadata"]["name"]] * 2
    rendered = lab.kubectl("apply", "--dry-run=server", "-f", str(POLICIES))
    assert len(rendered.splitlines()) == 4
