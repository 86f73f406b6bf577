"""The pod's shape, checked before the first job: each fault has its sentence."""

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from k8spilot.preflight.pod_spec import shape_faults, shape_warnings
from k8spilot.settings import Settings
from tests.unit.test_manifests import restricted

Json = dict[str, Any]

POD: Json = yaml.safe_load((Path(__file__).parents[2] / "manifests/pilot-pod.yaml").read_text())


def settings(**changes: Any) -> Settings:
    known = {
        "pod_name": "pilot",
        "pod_namespace": "pilots",
        "glidein_site": "S",
        "glidein_resource_name": "R",
        "condor_host": "cm",
        "payload_cpus": 1,
        "payload_memory_mb": 1024,
    }
    return Settings(**{**known, **changes})


def container(pod: Json, name: str) -> Json:
    spec = pod["spec"]
    return next(one for one in [*spec["initContainers"], *spec["containers"]] if one["name"] == name)


def mount(pod: Json, name: str, path: str) -> Json:
    return next(one for one in container(pod, name)["volumeMounts"] if one["mountPath"] == path)


def payload(change: Callable[[Json], object]) -> Callable[[Json], object]:
    return lambda pod: change(container(pod, "payload"))


FAULTS: list[tuple[Callable[[Json], object], str]] = [
    (lambda pod: pod["spec"].pop("shareProcessNamespace"), "set shareProcessNamespace: true"),
    (lambda pod: pod["spec"].pop("automountServiceAccountToken"), "set automountServiceAccountToken: false"),
    (lambda pod: pod["spec"].update(terminationGracePeriodSeconds=30), "terminationGracePeriodSeconds to 100 or more"),
    (lambda pod: pod["spec"]["initContainers"].pop(), "add an init container payload"),
    (lambda pod: pod["spec"]["containers"].append(pod["spec"]["initContainers"].pop()), "make payload an init"),
    (
        lambda pod: container(pod, "pilot").update(name="other"),
        "give the name pilot to the container that runs k8spilot",
    ),
    (lambda pod: container(pod, "pilot")["ports"][0].update(containerPort=80), "startupProbe of pilot use port 9464"),
    (
        lambda pod: container(pod, "pilot")["livenessProbe"]["httpGet"].update(port=80),
        "livenessProbe of pilot use port 9464",
    ),
    (payload(lambda one: one.pop("restartPolicy")), "set restartPolicy: Always"),
    (payload(lambda one: one.update(imagePullPolicy="Never")), "set imagePullPolicy: IfNotPresent"),
    (payload(lambda one: one.update(command=["sleep"])), r"set the command of payload to \[.*payload-init"),
    (payload(lambda one: one.update(args=["x"])), "without args"),
    (
        payload(lambda one: one.pop("terminationMessagePath")),
        "set terminationMessagePath: /k8spilot/bin/kubelet/termination-log",
    ),
    (
        lambda pod: container(pod, "install")["securityContext"].update(runAsUser=65534),
        "runs `k8spilot install` to ano",
    ),
    (
        payload(lambda one: one.pop("env")),
        r"give payload the variable K8SPILOT_BIND .*metadata.annotations\['k8spilot/bind'\]",
    ),
    (payload(lambda one: one["securityContext"].update(privileged=True)), "remove all privileges from payload"),
    (payload(lambda one: one["securityContext"].pop("runAsUser")), "set runAsUser: 65534"),
    (payload(lambda one: one["securityContext"].pop("allowPrivilegeEscalation")), "makes its job root"),
    (lambda pod: pod["spec"].pop("securityContext"), "seccompProfile: {type: RuntimeDefault} for payload"),
    (
        payload(lambda one: one["securityContext"].update(seccompProfile={"type": "Unconfined"})),
        "seccompProfile: {type: RuntimeDefault} for payload",
    ),
    (lambda pod: pod["spec"].update(hostNetwork=True), "remove hostNetwork"),
    (payload(lambda one: one["envFrom"].append({"secretRef": {"name": "mine"}})), "the secret mine"),
    (
        payload(lambda one: one["volumeMounts"].append({"name": "pool-token", "mountPath": "/t", "readOnly": True})),
        "the secret pool-token",
    ),
    (
        payload(lambda one: one["volumeMounts"].append({"name": "api-access", "mountPath": "/t", "readOnly": True})),
        "an API token",
    ),
    (lambda pod: mount(pod, "payload", "/k8spilot/bin").pop("readOnly"), "a separate volume at /k8spilot/bin"),
    (lambda pod: mount(pod, "payload", "/k8spilot").pop("readOnly"), "mount /k8spilot with readOnly: true in payload"),
    (lambda pod: mount(pod, "pilot", "/k8spilot").update(mountPath="/x"), "volume exchange at /k8spilot in both"),
    (lambda pod: pod["spec"]["initContainers"].reverse(), "runs `k8spilot install`.* before payload"),
    (
        lambda pod: mount(pod, "payload", "/var/lib/condor/execute").update(mountPath="/scratch"),
        "volume execute at /var/lib/condor/execute in both",
    ),
    (lambda pod: mount(pod, "payload", "/tmp").update(mountPath="/other"), "mount an emptyDir at /tmp in payload"),
    (
        payload(lambda one: one.pop("resources")),
        r"set resources.limits.cpu and .memory of the container payload \(it has no limit of cpu and memory\)",
    ),
    (payload(lambda one: one["resources"]["limits"].pop("memory")), r"it has no limit of memory\)"),
    (
        payload(lambda one: one["volumeMounts"].append({"name": "cache", "mountPath": "/cache"})),
        r"mount the volume cache \(/cache in payload\) in pilot as well",
    ),
]


@pytest.mark.parametrize(("change", "words"), FAULTS, ids=[words for _, words in FAULTS])
def test_each_fault_of_the_pods_shape_is_told(change: Callable[[Json], object], words: str) -> None:
    pod = copy.deepcopy(POD)
    container(pod, "payload")["envFrom"] = []
    change(pod)
    faults = shape_faults(pod, settings())
    assert [fault for fault in faults if re.search(words, fault)], faults


def mounts_too(pod: Json, name: str, what: Json) -> None:
    container(pod, name)["volumeMounts"].append(what)


APART_FAULTS: list[tuple[Callable[[Json], object], str]] = [
    (lambda pod: container(pod, "engine").pop("restartPolicy"), "restartPolicy: Always for the init container engine"),
    (
        lambda pod: container(pod, "engine")["securityContext"].update(runAsUser=101),
        "set runAsUser to different numbers for engine and pilot",
    ),
    (
        lambda pod: container(pod, "pilot").update(securityContext={}),
        "set runAsUser to different numbers for engine and pilot",
    ),
    (
        lambda pod: mounts_too(pod, "engine", {"name": "pool-token", "mountPath": "/t"}),
        "give the secret pool-token to only one of engine and pilot",
    ),
    (
        lambda pod: mounts_too(pod, "pilot", {"name": "api-access", "mountPath": "/t"}),
        "do not mount api-access in pilot",
    ),
    (
        lambda pod: mount(pod, "payload", "/var/lib/condor/execute/slot").pop("subPath"),
        "subPath: slot at /var/lib/condor/execute/slot in payload",
    ),
    (
        lambda pod: mounts_too(pod, "payload", {"name": "execute", "mountPath": "/var/lib/condor/execute"}),
        "could replace that folder",
    ),
    (lambda pod: container(pod, "engine")["ports"][0].update(containerPort=80), "startupProbe of engine use port 9464"),
    (lambda pod: mount(pod, "engine", "/k8spilot-payload/tmp").update(mountPath="/x"), "in engine as well"),
]


@pytest.mark.parametrize(("change", "words"), APART_FAULTS, ids=[words for _, words in APART_FAULTS])
def test_each_fault_where_engine_and_htcondor_are_apart_is_told(change: Callable[[Json], object], words: str) -> None:
    pod = restricted(copy.deepcopy(POD))
    change(pod)
    faults = shape_faults(pod, settings(services=("engine",)))
    assert [fault for fault in faults if re.search(words, fault)], faults


@pytest.mark.parametrize(
    "mounted",
    [
        {"name": "dshm", "mountPath": "/dev/shm"},
        {"name": "software", "mountPath": "/cvmfs", "readOnly": True},
        {"name": "registries", "mountPath": "/etc/x"},
    ],
    ids=["cleaned otherwise", "read-only mount", "read-only by its kind"],
)
def test_what_no_job_can_leave_anything_in_is_no_fault(mounted: Json) -> None:
    pod = copy.deepcopy(POD)
    container(pod, "payload")["volumeMounts"].append(mounted)
    assert shape_faults(pod, settings()) == []


def test_containers_that_are_reused_need_a_read_only_root() -> None:
    pod = copy.deepcopy(POD)
    (fault,) = shape_faults(pod, settings(reuse=True))
    assert "readOnlyRootFilesystem: true for payload" in fault
    container(pod, "payload")["securityContext"]["readOnlyRootFilesystem"] = True
    assert shape_faults(pod, settings(reuse=True)) == []
    assert shape_faults(restricted(copy.deepcopy(POD)), settings(reuse=True, services=("engine",))) == []


def test_a_longer_vacate_time_wants_a_longer_grace_period() -> None:
    (fault,) = shape_faults(POD, settings(vacate_seconds=600))
    assert "640" in fault


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda spec: spec.update(activeDeadlineSeconds=7200), "set GLIDEIN_Max_Walltime to 7080 or less"),
    ],
    ids=["deadline"],
)
def test_what_spoils_a_pilots_end_is_told(change: Callable[[Json], object], words: str) -> None:
    pod = copy.deepcopy(POD)
    change(pod["spec"])
    (said,) = shape_warnings(pod, settings())
    assert words in said


def test_a_pod_that_always_starts_its_pilot_again_is_fine() -> None:
    pod = copy.deepcopy(POD)
    pod["spec"]["restartPolicy"] = "Always"
    assert list(shape_warnings(pod, settings())) == []


@pytest.mark.parametrize(
    ("promised", "words"),
    [
        ({"num_cpus": 64}, "NUM_CPUS promises 64 CPUs, but the container payload has the limit cpu: 1;"),
        ({"memory": 999_999}, "MEMORY promises 999999 MiB, but the container payload has the limit memory: 1Gi;"),
    ],
)
def test_a_slot_larger_than_its_container_is_a_fault_unless_the_operator_wants_it(
    promised: dict[str, int], words: str
) -> None:
    (fault,) = shape_faults(POD, settings(**promised))
    assert fault.startswith(words)
    assert "K8SPILOT_OVERCOMMIT=true" in fault
    assert shape_faults(POD, settings(**promised, overcommit=True)) == []


def test_a_slot_may_be_smaller_than_its_container_and_a_part_of_a_cpu_counts_as_one() -> None:
    pod = copy.deepcopy(POD)
    container(pod, "payload")["resources"]["limits"]["cpu"] = "1500m"
    assert shape_faults(pod, settings(num_cpus=2, memory=512)) == []


def test_a_pod_without_limits_is_what_the_operator_wants_if_he_says_so() -> None:
    pod = copy.deepcopy(POD)
    container(pod, "payload").pop("resources")
    assert shape_faults(pod, settings(num_cpus=2, memory=512, overcommit=True)) == []


WEAK: list[tuple[Callable[[Json], object], str]] = [
    (
        payload(lambda one: one["resources"]["limits"].pop("ephemeral-storage")),
        "set resources.limits.ephemeral-storage of the container payload",
    ),
    (
        lambda pod: container(pod, "pilot")["resources"]["limits"].update(memory="100Mi"),
        "set resources.limits.memory of the container pilot to 256Mi or more",
    ),
]


@pytest.mark.parametrize(("change", "words"), WEAK, ids=[words for _, words in WEAK])
def test_a_size_with_which_a_pilot_runs_badly_is_a_warning(change: Callable[[Json], object], words: str) -> None:
    pod = copy.deepcopy(POD)
    change(pod)
    assert shape_faults(pod, settings()) == []
    (warning,) = shape_warnings(pod, settings())
    assert warning.startswith(words)
