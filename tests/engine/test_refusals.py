"""Options of `docker create` that a pod cannot fulfil are refused with a sentence, never dropped."""

import base64
import json
from typing import Any

import pytest

from tests.engine.rings import SANDBOX, Engine, Simulated

REFUSED: dict[str, Any] = {
    "Volumes": {"/data": {}},
    "Mounts": [{"Type": "volume", "Source": "data", "Target": "/data"}],
    "Tmpfs": {"/scratch": "size=1g"},
    "VolumesFrom": ["other"],
    "Privileged": True,
    "CapAdd": ["SYS_ADMIN"],
    "SecurityOpt": ["seccomp=unconfined"],
    "NetworkMode": "host",
    "PublishAllPorts": True,
    "ReadonlyRootfs": True,
    "PidMode": "host",
    "IpcMode": "host",
    "UTSMode": "host",
    "UsernsMode": "host",
    "Runtime": "kata",
    "Ulimits": [{"Name": "nofile", "Soft": 1}],
    "Sysctls": {"net.ipv4.ip_forward": "1"},
    "Dns": ["192.0.2.1"],
    "ExtraHosts": ["a:192.0.2.1"],
    "Links": ["other"],
    "StorageOpt": {"size": "1G"},
    "CgroupParent": "/other",
    "RestartPolicy": {"Name": "always"},
}
OF_THE_REQUEST = ("Volumes",)

BINDS = [
    "/etc:/etc",
    "/etc/passwd:/etc/passwd:ro",
    f"{SANDBOX}/slot/dir_1:/data",
    f"{SANDBOX}/../../../etc:{SANDBOX}/../../../etc",
    f"{SANDBOX}-other:{SANDBOX}-other",
    f"{SANDBOX}/slot:{SANDBOX}/slot:ro",
    "named-volume:/data",
]


@pytest.mark.slow
@pytest.mark.parametrize("option", sorted(REFUSED))
async def test_an_option_that_a_pod_cannot_fulfil_is_refused_by_its_name(engine: Engine, option: str) -> None:
    asked = {option: REFUSED[option]}
    body = asked if option in OF_THE_REQUEST else {"HostConfig": asked}
    answer = await engine.ask("POST", "/containers/create", {"Image": engine.image("busybox"), "Cmd": ["true"], **body})
    assert answer.status == 409
    assert f"docker option {option}" in answer.message
    assert await engine.containers() == []


@pytest.mark.parametrize("bind", BINDS)
async def test_a_mount_that_is_not_the_sandbox_is_refused(engine: Engine, bind: str) -> None:
    body = {"Image": engine.image("busybox"), "Cmd": ["true"], "HostConfig": {"Binds": [bind]}}
    answer = await engine.ask("POST", "/containers/create", body)
    assert answer.status == 409
    assert f"--volume {bind}" in answer.message


async def test_credentials_of_a_job_are_not_used_and_that_is_said_when_they_were_needed(engine: Engine) -> None:
    image = engine.image("busybox").replace("busybox", "no-such-image")
    header = base64.urlsafe_b64encode(json.dumps({"username": "alice", "password": "x"}).encode()).decode()
    name, _, tag = image.rpartition(":")
    params = {"fromImage": name, "tag": tag}
    await engine.ask("POST", "/images/create", params=params, headers={"X-Registry-Auth": header})
    answer = await engine.ask("POST", "/containers/create", {"Image": image, "Cmd": ["true"]})
    assert answer.status == 500
    assert "docker_send_credentials" in answer.message
    await engine.pull(image)
    answer = await engine.ask("POST", "/containers/create", {"Image": image, "Cmd": ["true"]})
    assert "docker_send_credentials" not in answer.message


@pytest.mark.parametrize(
    "host", ["localhost", "127.1:5000", "0x7f000001:5000", "[::ffff:7f00:1]:80", "169.254.169.254"]
)
async def test_a_host_that_is_no_registry_is_asked_nothing(simulator: Simulated, host: str) -> None:
    image = f"{host}/latest/meta-data:1"
    await simulator.pull(image)
    answer = await simulator.ask("POST", "/containers/create", {"Image": image, "Cmd": ["true"]})
    assert (answer.status, f"{host} is " in answer.message) == (500, True), answer.message
    assert "K8SPILOT_ALLOWED_IMAGES" in answer.message
    assert simulator.cluster.images.asked == []
