"""The checks before the first job: each fault of pod, rights and volumes has its sentence."""

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import ApiClient, Configuration

from k8spilot import surroundings
from k8spilot.errors import SurroundingsError
from k8spilot.settings import Settings

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
    (lambda pod: container(pod, "pilot").update(name="other"), "name the container that runs k8spilot pilot"),
    (payload(lambda one: one.pop("restartPolicy")), "set restartPolicy: Always"),
    (payload(lambda one: one.update(imagePullPolicy="Never")), "set imagePullPolicy: IfNotPresent"),
    (payload(lambda one: one.update(command=["sleep"])), r"set the command of payload to \[.*payload-init"),
    (payload(lambda one: one.update(args=["x"])), "without args"),
    (payload(lambda one: one["securityContext"].update(privileged=True)), "take all privileges from payload"),
    (payload(lambda one: one["securityContext"].pop("runAsUser")), "set runAsUser: 65534"),
    (payload(lambda one: one["envFrom"].append({"secretRef": {"name": "mine"}})), "the secret mine"),
    (
        payload(lambda one: one["volumeMounts"].append({"name": "pool-token", "mountPath": "/t", "readOnly": True})),
        "the secret pool-token",
    ),
    (
        payload(lambda one: one["volumeMounts"].append({"name": "api-access", "mountPath": "/t", "readOnly": True})),
        "an API token",
    ),
    (lambda pod: mount(pod, "payload", "/k8spilot/bin").pop("readOnly"), "a volume of its own at /k8spilot/bin"),
    (lambda pod: mount(pod, "payload", "/k8spilot").pop("readOnly"), "mount /k8spilot with readOnly: true in payload"),
    (lambda pod: mount(pod, "pilot", "/k8spilot").update(mountPath="/x"), "volume exchange at /k8spilot in both"),
    (
        lambda pod: mount(pod, "payload", "/var/lib/condor/execute").update(mountPath="/scratch"),
        "volume execute at /var/lib/condor/execute in both",
    ),
    (lambda pod: mount(pod, "payload", "/tmp").update(mountPath="/other"), "mount an emptyDir at /tmp in payload"),
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
    faults = surroundings.shape_faults(pod, settings())
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
    assert surroundings.shape_faults(pod, settings()) == []


def test_a_longer_vacate_time_wants_a_longer_grace_period() -> None:
    (fault,) = surroundings.shape_faults(POD, settings(vacate_seconds=600))
    assert "640" in fault


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A pilot container in which everything is there."""
    for folder in ("exchange/bin", "execute", "tmp", "var-tmp", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    for program in ("bin/condor_master", "bin/docker", "bin/skopeo", "exchange/bin/payload-init"):
        (tmp_path / program).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return settings(
        exchange=tmp_path / "exchange",
        execute=tmp_path / "execute",
        scratch_folders=(tmp_path / "tmp", tmp_path / "var-tmp"),
    )


def test_a_complete_container_has_no_fault(here: Settings) -> None:
    assert list(surroundings.local_faults(here)) == []


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        ("bin/condor_master", "condor_master is not on PATH"),
        ("bin/docker", "docker is not on PATH"),
        ("bin/skopeo", "skopeo is not on PATH"),
        ("exchange/bin/payload-init", "must run `k8spilot install`"),
        ("execute", "execute cannot be written to"),
        ("tmp", "tmp cannot be written to"),
    ],
)
def test_what_the_container_lacks_is_told(here: Settings, tmp_path: Path, gone: str, words: str) -> None:
    (tmp_path / gone).rename(tmp_path / "away")
    (fault,) = surroundings.local_faults(here)
    assert words in fault


class Cluster:
    """An API server that knows one pod and what may be done."""

    def __init__(self) -> None:
        self.verbs = {"get", "list", "watch", "patch"}
        self.status = 200
        self.pod = copy.deepcopy(POD)

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", self.review)
        app.router.add_get("/api/v1/namespaces/pilots/pods/pilot", self.read)
        return app

    async def review(self, request: web.Request) -> web.Response:
        body = await request.json()
        if self.status == 401:
            return web.json_response({"kind": "Status", "message": "Unauthorized"}, status=401)
        wanted = body["spec"]["resourceAttributes"]
        assert (wanted["namespace"], wanted["resource"]) == ("pilots", "pods")
        return web.json_response({**body, "status": {"allowed": wanted["verb"] in self.verbs}}, status=201)

    async def read(self, _: web.Request) -> web.Response:
        if self.status != 200:
            return web.json_response({"kind": "Status", "message": "it says no"}, status=self.status)
        return web.json_response(self.pod)


async def check(cluster: Cluster, here: Settings, *, reachable: bool = True) -> None:
    """Check a pod of the manifest's shape, with the volumes where `here` has them."""
    places = {
        "/k8spilot": here.exchange,
        "/k8spilot/bin": here.exchange / "bin",
        "/var/lib/condor/execute": here.execute,
        "/k8spilot-payload/tmp": here.scratch_folders[0],
        "/k8spilot-payload/var-tmp": here.scratch_folders[1],
    }
    for name in ("payload", "pilot"):
        for mounted in container(cluster.pod, name)["volumeMounts"]:
            mounted["mountPath"] = str(places.get(mounted["mountPath"], mounted["mountPath"]))
    container(cluster.pod, "payload")["command"] = [
        f"{here.exchange}/bin/payload-init",
        f"{here.exchange}/payload.sock",
    ]
    async with TestServer(cluster.app()) as server:
        configuration = Configuration(host=str(server.make_url("")).rstrip("/"))
        if not reachable:
            await server.close()
        async with ApiClient(configuration) as api:
            await surroundings.check(here, api)


async def test_a_pilot_with_all_that_it_needs_may_start(here: Settings) -> None:
    await check(Cluster(), here)


async def test_missing_rights_are_named(here: Settings) -> None:
    cluster = Cluster()
    cluster.verbs -= {"watch", "patch"}
    with pytest.raises(SurroundingsError, match="may not watch, patch pods in the namespace pilots"):
        await check(cluster, here)


async def test_a_token_that_is_not_accepted_is_told(here: Settings) -> None:
    cluster = Cluster()
    cluster.status = 401
    with pytest.raises(SurroundingsError, match="does not accept the pod's token"):
        await check(cluster, here)


async def test_a_wrong_pod_name_is_told(here: Settings) -> None:
    cluster = Cluster()
    cluster.status = 404
    with pytest.raises(SurroundingsError, match="there is no pod pilots/pilot; POD_NAME"):
        await check(cluster, here)


async def test_an_unreachable_api_server_is_told(here: Settings) -> None:
    with pytest.raises(SurroundingsError, match="cannot be reached"):
        await check(Cluster(), here, reachable=False)


async def test_all_faults_of_the_shape_come_at_once(here: Settings) -> None:
    cluster = Cluster()
    cluster.pod["spec"].update(shareProcessNamespace=False, automountServiceAccountToken=True)
    with pytest.raises(SurroundingsError, match=r"shareProcessNamespace.*; set automountServiceAccountToken"):
        await check(cluster, here)
