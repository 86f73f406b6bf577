"""A pilot container in which everything is there, in a cluster in which everything is right."""

import copy
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

Json = dict[str, Any]

POD: Json = yaml.safe_load((Path(__file__).parents[2] / "manifests/pilot-pod.yaml").read_text())
ROOTS_STATUS = "Name:\tx\nCapEff:\t00000000000000fb\n"


class Cluster:
    """An API server that knows one pod and what may be done."""

    def __init__(self) -> None:
        self.rights = {("pods", verb) for verb in ("get", "list", "watch", "patch")} | {("events", "create")}
        self.status = 200
        self.pod = copy.deepcopy(POD)
        self.rules: list[Json] = []
        self.keeps_to_own_pod = False
        self.seconds_behind = 0.0
        self.secretive = False
        self.events: list[Json] = []

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/version", self.version)
        app.router.add_post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", self.review)
        app.router.add_post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", self.tell_rules)
        app.router.add_get("/api/v1/namespaces/pilots/pods/pilot", self.read)
        app.router.add_patch("/api/v1/namespaces/pilots/pods/pilot", self.change)
        app.router.add_post("/api/v1/namespaces/pilots/events", self.event)
        return app

    async def version(self, _: web.Request) -> web.Response:
        if self.status == 401:
            return web.json_response({"kind": "Status", "message": "Unauthorized"}, status=401)
        if self.secretive:
            return web.json_response({"kind": "Status", "message": "no"}, status=403)
        date = formatdate(time.time() - self.seconds_behind, usegmt=True)
        return web.json_response({"gitVersion": "v1.36.3"}, headers={"Date": date})

    async def review(self, request: web.Request) -> web.Response:
        body = await request.json()
        wanted = body["spec"]["resourceAttributes"]
        assert wanted["namespace"] == "pilots"
        resource = "/".join(part for part in (wanted["resource"], wanted.get("subresource")) if part)
        allowed = (resource, wanted["verb"]) in self.rights
        return web.json_response({**body, "status": {"allowed": allowed}}, status=201)

    async def tell_rules(self, request: web.Request) -> web.Response:
        body = await request.json()
        assert body["spec"] == {"namespace": "pilots"}
        return web.json_response({**body, "status": {"resourceRules": self.rules, "incomplete": False}}, status=201)

    async def change(self, request: web.Request) -> web.Response:
        assert request.query["dryRun"] == "All"
        if self.keeps_to_own_pod:
            words = "pods \"pilot\" is forbidden: ValidatingAdmissionPolicy 'x' with binding 'x' denied request: no"
            return web.json_response({"kind": "Status", "message": words}, status=403)
        return web.json_response(self.pod)

    async def read(self, _: web.Request) -> web.Response:
        if self.status != 200:
            return web.json_response({"kind": "Status", "message": "it says no"}, status=self.status)
        return web.json_response(self.pod)

    async def event(self, request: web.Request) -> web.Response:
        if ("events", "create") not in self.rights:
            return web.json_response({"kind": "Status", "message": "no"}, status=403)
        self.events.append(await request.json())
        return web.json_response({}, status=201)


class Here:
    """A pilot container in which everything is there, in a cluster in which everything is right."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.patch = patch
        self.cluster = Cluster()
        for name in ("exchange/bin", "execute", "tmp", "var-tmp", "bin"):
            (folder / name).mkdir(parents=True)
        version = "#!/bin/sh\necho '$CondorVersion: 25.14.1 2026-09-01 $'\n"
        inspect = f"""#!/bin/sh\necho '{{"config": {{"digest": "sha256:{"0" * 64}"}}}}'\n"""
        for name, text in (("condor_version", version), ("skopeo", inspect), ("condor_master", ""), ("docker", "")):
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)
        (folder / "exchange/bin/payload-init").touch(mode=0o755)
        self.environment = {
            "POD_NAME": "pilot",
            "POD_NAMESPACE": "pilots",
            "GLIDEIN_Site": "S",
            "GLIDEIN_ResourceName": "R",
            "PAYLOAD_CPUS": "1",
            "PAYLOAD_MEMORY_MB": "1024",
            "PATH": f"{folder}/bin",
            "K8SPILOT_EXCHANGE": str(folder / "exchange"),
            "K8SPILOT_EXECUTE": str(folder / "execute"),
            "K8SPILOT_SCRATCH_FOLDERS": f"{folder}/tmp,{folder}/var-tmp",
            "K8SPILOT_MIN_FREE_MB": "1",
        }
        places = {
            "/k8spilot": folder / "exchange",
            "/k8spilot/bin": folder / "exchange/bin",
            "/var/lib/condor/execute": folder / "execute",
            "/k8spilot-payload/tmp": folder / "tmp",
            "/k8spilot-payload/var-tmp": folder / "var-tmp",
        }
        spec = self.cluster.pod["spec"]
        for container in (*spec["initContainers"], *spec["containers"]):
            container["image"] = "registry.example/k8spilot:1"
            for mount in container["volumeMounts"]:
                mount["mountPath"] = str(places.get(mount["mountPath"], mount["mountPath"]))
        spec["initContainers"][1]["command"] = [
            f"{folder}/exchange/bin/payload-init",
            f"{folder}/exchange/payload.sock",
        ]
        spec["initContainers"][1]["terminationMessagePath"] = f"{folder}/exchange/bin/kubelet/termination-log"
