"""The lab's own GPUs: what a plain container sees by each of the ways in which GPUs come into pods.

This is about the lab and not about the pilot. A few of the tests are in every run; the others, which are marked
`nightly`, are for changes of lab/gpu and lab/go/gpu. No more devices of a kind are asked for in a run than there are.
"""

import itertools
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab import outages
from lab.api import Lab
from lab.gpu import faults
from lab.gpu import node as gpus
from lab.gpu.devices import KIND, RESOURCES, Inventory
from tests.e2e.pool import until

LOOK = (Path(__file__).parent / "gpu_look.py").read_text()
PYTHON = "/opt/k8spilot/bin/python"
FOLDER = "/var/run/nvidia-container-devices"
MAY_OPEN = "No such device or address"
MUST_NOT_OPEN = "Operation not permitted"
CONTROL = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}
INVENTORY = Inventory.make()
NIGHTLY = pytest.mark.nightly
PATIENCE_S = 100.0
"""Four devices of a kind are all there are: a pod may have to wait for another test's."""


@dataclass(frozen=True)
class Pods:
    """Makes pods with one container that sleeps, and removes them."""

    lab: Lab
    prefix: str
    cleanup: ExitStack

    def create(self, name: str, runtime: str = "", **container: Any) -> str:
        """Begin a pod of a runtime class, whose container has further fields; return its name."""
        name = f"gpu-{self.prefix}-{name}"
        base = {"name": "main", "image": self.lab.image, "command": ["sleep", "infinity"]}
        spec = {"containers": [base | container], "terminationGracePeriodSeconds": 0, "restartPolicy": "Never"}
        if runtime:
            spec["runtimeClassName"] = runtime
        metadata = {"name": name, "labels": self.lab.labels}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        self.cleanup.callback(self.lab.kubectl, "delete", "pod", name, "--force", "--ignore-not-found", "--wait=true")
        self.lab.kubectl("apply", "-f", "-", input=json.dumps(pod))
        return name

    def start(self, name: str, runtime: str = "", **container: Any) -> str:
        """Create a pod; return its name when it is ready."""
        pod = self.create(name, runtime, **container)
        self.lab.kubectl("wait", "--for=condition=Ready", f"pod/{pod}", f"--timeout={PATIENCE_S:.0f}s")
        return pod

    def run(self, pod: str, *command: str, container: str = "main") -> str:
        """Run a command in a container, and return its output."""
        return self.lab.kubectl("exec", pod, "-c", container, "--", *command)

    def look(self, pod: str, container: str = "main") -> dict[str, Any]:
        """Return the GPUs that a container sees, by gpu_look.py."""
        seen: dict[str, Any] = json.loads(self.run(pod, PYTHON, "-c", LOOK, container=container))
        return seen


@pytest.fixture
def pods(lab: Lab, owner: str) -> Iterator[Pods]:
    """Pods that are gone after the test, and what the GPUs answer as it was before."""
    if lab.settings.kubeconfig is not None:
        pytest.skip("the lab's GPUs are on its own node only")
    with ExitStack() as cleanup:
        yield Pods(lab, owner, cleanup)


def asks(resource: str, count: int = 1) -> dict[str, Any]:
    """The container's field that asks for devices."""
    return {"resources": {"limits": {resource: str(count)}}}


def has(**variables: str) -> dict[str, Any]:
    """The container's field with environment variables."""
    return {"env": [{"name": name, "value": value} for name, value in variables.items()]}


def check(seen: dict[str, Any], uuids: list[str]) -> None:
    """The container has the nodes of these devices, may open them, and NVML has these and no others."""
    nodes = CONTROL | {node.path for one in uuids for node in INVENTORY.nodes[one]}
    assert {path: node["error"] for path, node in seen["nodes"].items()} == dict.fromkeys(nodes, MAY_OPEN)
    whole = [one for one in uuids if one.startswith("GPU-")]
    instances = [one for one in uuids if one.startswith("MIG-")]
    assert (seen["nvml"]["error"], seen["nvml"]["refused"]) == ("", 0)
    if whole:
        assert sorted(seen["nvml"]["gpus"]) == sorted(whole)
    assert sorted(seen["nvml"]["mig"]) == sorted(instances)


def of(resource: str, uuids: list[str], count: int) -> None:
    """Check that these are so many different devices of the resource."""
    known = {one.partition("::")[0] for one in INVENTORY.ids[resource]}
    assert set(uuids) <= known
    assert len(uuids) == len(set(uuids)) == count


@pytest.mark.parametrize("count", [pytest.param(1, marks=NIGHTLY), 2, pytest.param(4, marks=NIGHTLY)])
@pytest.mark.parametrize(
    "resource",
    [
        "nvidia.com/gpu",
        pytest.param("nvidia.com/gpu-device-specs", marks=NIGHTLY),
        pytest.param("nvidia.com/mig-1g.18gb", marks=NIGHTLY),
    ],
)
def test_the_variable_names_the_devices(pods: Pods, resource: str, count: int) -> None:
    seen = pods.look(pods.start("variable", "nvidia-legacy", **asks(resource, count)))
    uuids = seen["variable"].split(",")
    of(resource, uuids, count)
    check(seen, uuids)


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", pytest.param("nvidia.com/mig-1g.18gb", marks=NIGHTLY)])
def test_since_toolkit_1_18_the_variable_is_void(pods: Pods, resource: str) -> None:
    seen = pods.look(pods.start("void", "nvidia", **asks(resource, 2)))
    assert seen["variable"] == "void"
    uuids = seen["nvml"]["mig"] or seen["nvml"]["gpus"]
    of(resource, uuids, 2)
    check(seen, uuids)


@pytest.mark.parametrize(
    ("runtime", "variable"), [("nvidia", "void"), pytest.param("nvidia-legacy", FOLDER, marks=NIGHTLY)]
)
@pytest.mark.parametrize("count", [1, pytest.param(4, marks=NIGHTLY)])
def test_mounts_name_the_devices(pods: Pods, runtime: str, variable: str, count: int) -> None:
    seen = pods.look(pods.start("mounts", runtime, **asks("nvidia.com/gpu-mounts", count)))
    assert seen["variable"] == variable
    of("nvidia.com/gpu-mounts", seen["mounts"], count)
    check(seen, seen["mounts"])


@pytest.mark.nightly
@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("resource", ["nvidia.com/gpu-cdi", "nvidia.com/gpu-cdi-annotations"])
def test_with_cdi_no_runtime_class_is_needed_and_nothing_names_the_devices(
    pods: Pods, resource: str, count: int
) -> None:
    seen = pods.look(pods.start("cdi", **asks(resource, count)))
    assert (seen["variable"], seen["mounts"]) == ("void", [])
    of(resource, seen["nvml"]["gpus"], count)
    check(seen, seen["nvml"]["gpus"])


@pytest.mark.nightly
def test_the_variable_may_have_indices(pods: Pods) -> None:
    seen = pods.look(pods.start("index", "nvidia-legacy", **asks("nvidia.com/gpu-index", 2)))
    uuids = [INVENTORY.driver.gpus[int(index)].uuid for index in seen["variable"].split(",")]
    of("nvidia.com/gpu-index", uuids, 2)
    check(seen, uuids)


@pytest.mark.nightly
def test_four_replicas_are_two_devices(pods: Pods) -> None:
    seen = pods.look(pods.start("shared", "nvidia-legacy", **asks("nvidia.com/gpu.shared", 4)))
    uuids = seen["variable"].split(",")
    of("nvidia.com/gpu.shared", uuids, 2)
    check(seen, uuids)


def test_what_is_broken_shows_another_device_than_was_promised(pods: Pods) -> None:
    seen = pods.look(pods.start("broken", "", **asks("nvidia.com/gpu-broken", 2)))
    promised = seen["variable"].split(",")
    of("nvidia.com/gpu-broken", promised, 2)
    check(seen, [promised[0], INVENTORY.instead["nvidia.com/gpu-broken"]])


@pytest.mark.nightly
@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/gpu-mounts"])
def test_without_the_runtime_class_there_are_names_and_no_devices(pods: Pods, resource: str) -> None:
    seen = pods.look(pods.start("bare", **asks(resource)))
    assert seen["variable"]
    assert (seen["nodes"], seen["nvml"]["error"]) == ({}, "NVMLError_LibraryNotFound")


@pytest.mark.nightly
def test_device_specs_need_no_runtime_class_and_have_no_library(pods: Pods) -> None:
    seen = pods.look(pods.start("specs", **asks("nvidia.com/gpu-device-specs")))
    nodes = {node.path for node in INVENTORY.nodes[seen["variable"]]} | CONTROL
    assert {path: node["error"] for path, node in seen["nodes"].items()} == dict.fromkeys(nodes, MAY_OPEN)
    assert seen["nvml"]["error"] == "NVMLError_LibraryNotFound"


@pytest.mark.nightly
@pytest.mark.parametrize("runtime", ["", "nvidia", "nvidia-cdi", "nvidia-legacy"])
def test_a_pod_that_asks_for_nothing_sees_nothing(pods: Pods, runtime: str) -> None:
    seen = pods.look(pods.start("nothing", runtime))
    assert (seen["variable"], seen["mounts"], seen["nodes"]) == (None, [], {})
    assert seen["nvml"]["error"] == "NVMLError_LibraryNotFound"


@pytest.mark.nightly
def test_a_variable_of_ones_own_takes_every_device(pods: Pods) -> None:
    seen = pods.look(pods.start("all", "nvidia", **has(NVIDIA_VISIBLE_DEVICES="all")))
    check(seen, list(INVENTORY.nodes))


@pytest.mark.nightly
def test_mounts_come_before_the_variable(pods: Pods) -> None:
    fields = asks("nvidia.com/gpu-mounts") | has(NVIDIA_VISIBLE_DEVICES="all")
    seen = pods.look(pods.start("order", "nvidia", **fields))
    of("nvidia.com/gpu-mounts", seen["mounts"], 1)
    check(seen, seen["mounts"])


@pytest.mark.nightly
def test_without_the_capability_utility_there_is_no_nvml(pods: Pods) -> None:
    fields = asks("nvidia.com/gpu") | has(NVIDIA_DRIVER_CAPABILITIES="compute")
    seen = pods.look(pods.start("compute", "nvidia-legacy", **fields))
    assert seen["nvml"]["error"] == "NVMLError_LibraryNotFound"
    assert set(seen["nodes"]) == CONTROL | {node.path for node in INVENTORY.nodes[seen["variable"]]}


@pytest.mark.nightly
def test_a_privileged_container_has_every_node_and_may_open_it(pods: Pods) -> None:
    fields = asks("nvidia.com/gpu-mounts") | {"securityContext": {"privileged": True}}
    seen = pods.look(pods.start("privileged", "nvidia", **fields))
    of("nvidia.com/gpu-mounts", seen["mounts"], 1)
    check(seen, list(INVENTORY.nodes))


@pytest.mark.nightly
def test_in_mode_cdi_only_names_of_cdi_will_do(pods: Pods) -> None:
    wanted = INVENTORY.driver.gpus[0].uuid
    seen = pods.look(pods.start("name", "nvidia-cdi", **has(NVIDIA_VISIBLE_DEVICES=f"{KIND}={wanted}")))
    check(seen, [wanted])
    pod = pods.create("uuid", "nvidia-cdi", **has(NVIDIA_VISIBLE_DEVICES=wanted))
    path = "{.status.containerStatuses[0].state}"
    words = until(
        lambda: "unresolvable" in (state := pods.lab.kubectl("get", "pod", pod, "-o", f"jsonpath={path}")) and state,
        "the container does not start",
    )
    assert f"unresolvable CDI devices nvidia.com/gpu={wanted}" in str(words)


@pytest.mark.nightly
@pytest.mark.parametrize("runtime", ["nvidia", "nvidia-cdi", "nvidia-legacy"])
def test_an_ephemeral_container_gets_the_same_devices_by_name(pods: Pods, runtime: str) -> None:
    names = f"{KIND}=%s" if runtime == "nvidia-cdi" else "%s"
    resource = "nvidia.com/gpu-cdi"
    pod = pods.start("ephemeral", runtime, **asks(resource, 2))
    uuids = pods.look(pod)["nvml"]["gpus"]
    fields = has(NVIDIA_VISIBLE_DEVICES=",".join(names % one for one in uuids))
    ephemeral = {"name": "second", "image": pods.lab.image, "command": ["sleep", "infinity"], **fields}
    patch = json.dumps({"spec": {"ephemeralContainers": [ephemeral]}})
    pods.lab.kubectl("patch", "pod", pod, "--subresource=ephemeralcontainers", "-p", patch)
    path = "jsonpath={.status.ephemeralContainerStatuses[0].state.running}"
    until(lambda: pods.lab.kubectl("get", "pod", pod, "-o", path), "the ephemeral container runs")
    check(pods.look(pod, "second"), uuids)


@pytest.mark.nightly
def test_the_device_cgroup_refuses_what_was_not_given(pods: Pods) -> None:
    pod = pods.start("cgroup", **asks("nvidia.com/gpu-cdi"))
    other = INVENTORY.driver.gpus[0]
    pods.run(pod, "mknod", f"/dev/nvidia{other.minor}", "c", "195", str(other.minor))
    seen = pods.look(pod)
    assert seen["nodes"][f"/dev/nvidia{other.minor}"]["error"] == MUST_NOT_OPEN
    assert seen["nvml"]["refused"] == 1
    of("nvidia.com/gpu-cdi", seen["nvml"]["gpus"], 1)


@pytest.mark.nightly
def test_a_container_that_has_lost_its_grants_has_a_driver_that_fails(pods: Pods) -> None:
    pod = pods.start("grants", **asks("nvidia.com/gpu-cdi"))
    with faults.grants_lost(pods.lab, pod, "main", "default"):
        seen = pods.look(pod)
        assert {node["error"] for node in seen["nodes"].values()} == {MUST_NOT_OPEN}
        assert seen["nvml"]["error"] == "NVMLError_Unknown"
    check(pods.look(pod), pods.look(pod)["nvml"]["gpus"])


@pytest.mark.nightly
def test_what_gpus_answer_changes_in_containers_that_run(pods: Pods) -> None:
    pod = pods.start("change", **asks("nvidia.com/gpu-cdi-annotations"))
    before = pods.look(pod)["nvml"]
    assert before["busy"] == [0]
    (mine,) = before["gpus"]
    stub = gpus.stub(pods.lab.settings)

    def calm() -> None:
        with stub.change() as driver:
            driver.gpu(mine).utilisation = [(0.0, 0.0)]

    pods.cleanup.callback(calm)
    with stub.change() as driver:
        driver.gpu(mine).utilisation = [(0.0, 73.0)]
    assert pods.look(pod)["nvml"]["busy"] == [73]


@pytest.mark.disruptive
@pytest.mark.nightly
def test_after_the_kubelet_has_started_anew_pods_get_devices(pods: Pods) -> None:
    with outages.kubelet_stopped(pods.lab):
        pass
    path = "jsonpath={.status.phase}"
    tries = itertools.count()

    def offered() -> bool:
        allocatable = json.loads(pods.lab.kubectl("get", "node", "lab", "-o", "jsonpath={.status.allocatable}"))
        return all(allocatable.get(resource.name) == "4" for resource in RESOURCES)

    def admitted() -> str:
        """A pod that has them: what the node offers is old until its new kubelet has heard of the plugin."""
        pod = pods.create(f"again-{next(tries)}", **asks("nvidia.com/gpu-cdi", 4))
        until(lambda: pods.lab.kubectl("get", "pod", pod, "-o", path) != "Pending", "the kubelet decides", 60)
        return pod if pods.lab.kubectl("get", "pod", pod, "-o", path) == "Running" else ""

    seen = pods.look(until(admitted, "a pod gets all devices again", 90))
    until(offered, "the node offers all devices again", 60)
    check(seen, INVENTORY.ids["nvidia.com/gpu-cdi"])
