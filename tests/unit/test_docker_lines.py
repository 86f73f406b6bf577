"""HTCondor's command lines for docker: which are known, and what they become."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from k8spilot.docker.command_lines.create import check_extra, parse_create
from k8spilot.docker.command_lines.grammar import (
    INSPECTION,
    Architecture,
    Create,
    Exec,
    Info,
    Kill,
    Line,
    OfContainer,
    Prune,
    Pull,
    Start,
    UnknownLine,
    parse,
)
from tests.unit.docker_lines import CONTAINER, DEVICES, IMAGE, create

LINES: Mapping[str, tuple[list[str], Line]] = {
    "pull": (["pull", "-q", IMAGE], Pull(IMAGE)),
    "pull of an option": (["pull", "-q", "--all-tags:latest"], Pull("")),
    "start": (["start", "-a", CONTAINER], Start(CONTAINER)),
    "kill": (["kill", "--signal", "15", CONTAINER], Kill("15", CONTAINER)),
    "rm": (["rm", "-f", "-v", CONTAINER], OfContainer("rm", CONTAINER)),
    "pause": (["pause", CONTAINER], OfContainer("pause", CONTAINER)),
    "unpause": (["unpause", CONTAINER], OfContainer("unpause", CONTAINER)),
    "inspect": (["inspect", "--format", INSPECTION, CONTAINER], OfContainer("inspect", CONTAINER)),
    "architecture": (["inspect", "--format", "{{.Architecture}}", IMAGE], Architecture(IMAGE)),
    "info": (["info"], Info()),
    "prune": (["container", "prune", "-f", "--filter=label=org.htcondorproject=True"], Prune()),
    "exec": (["exec", "-i", "-e", "A=1", "-e", "B==", CONTAINER, "sh", "-c", "x"], Exec(CONTAINER)),
    "exec on a terminal": (["exec", "-ti", CONTAINER, "-e"], Exec(CONTAINER)),
    "a dynamic slot": (["start", "-a", "HTCJob12_3_slot1_3_PID4194304"], Start("HTCJob12_3_slot1_3_PID4194304")),
    "a machine without slots": (["start", "-a", "HTCJob1_0__PID7"], Start("HTCJob1_0__PID7")),
}


@pytest.mark.parametrize("name", LINES)
def test_each_line_of_htcondors_is_known(name: str) -> None:
    words, line = LINES[name]
    assert parse(words) == line


OTHERS: Mapping[str, list[str]] = {
    "another command": ["run", IMAGE],
    "an option before the command": ["--host=tcp://x", "info"],
    "a container that is no job's": ["rm", "-f", "-v", "--volumes"],
    "a signal that is none": ["kill", "--signal", "-1", CONTAINER],
    "a signal by its name": ["kill", "--signal", "TERM", CONTAINER],
    "an inspection of an option": ["inspect", "--format", "{{.Architecture}}", "--type=image:latest"],
    "another inspection": ["inspect", "--format", "{{json .}}", IMAGE],
    "an inspection of two": ["inspect", "--format", INSPECTION, CONTAINER, CONTAINER],
    "a session with another option": ["exec", "-i", "--privileged", CONTAINER, "sh"],
    "a session with a variable of docker's client": ["exec", "-i", "-e", "DOCKER_HOST", CONTAINER, "sh"],
    "a session in another container": ["exec", "-i", "-e", "A=1", "x", "sh"],
    "a session in nothing": ["exec", "-i"],
    "a session that ends with an option": ["exec", "-i", "-e"],
    "a name that is longer": ["start", "-a", "HTCJob1_0_slot1_PID77777777"],
    "a name with another character": ["start", "-a", "HTCJob1_0_slot1@x_PID7"],
    "a name with a line's end": ["start", "-a", f"{CONTAINER}\n"],
    "a word more": ["info", "--format=x"],
    "an empty word": [""],
}


@pytest.mark.parametrize("name", OTHERS)
def test_every_other_line_is_refused(name: str) -> None:
    with pytest.raises(UnknownLine, match="in a way that k8spilot does not know"):
        parse(OTHERS[name])


def created(line: list[str], *extra: str, **labels: str) -> Create:
    return parse_create(line[1:], extra, labels)


def host(*extra: str, mounts: list[str] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = created(create("x", extra=extra, mounts=mounts or ())).body["HostConfig"]
    return found


def test_a_line_becomes_the_request_that_dockers_client_would_make() -> None:
    assert created(create("a b", "--rm", variables=["A=1=2"])) == Create(
        CONTAINER,
        {
            **dict.fromkeys(("AttachStdin", "AttachStdout", "AttachStderr", "OpenStdin", "StdinOnce"), True),
            "Labels": {"org.htcondorproject": "True"},
            "Env": ["A=1=2"],
            "WorkingDir": "/tmp",
            "User": "65534:65534",
            "Hostname": "alice-1.0-lab",
            "Image": IMAGE,
            "Cmd": ["a b", "--rm"],
            "HostConfig": {
                "CpuShares": 100,
                "Memory": 1024 << 20,
                "CapDrop": ["ALL"],
                "CapAdd": ["CAP_SYS_PTRACE"],
                "SecurityOpt": ["no-new-privileges"],
                "Init": True,
                "LogConfig": {"Type": "none", "Config": {}},
                "Binds": ["/var/lib/condor/execute:/var/lib/condor/execute"],
                "GroupAdd": ["65534"],
            },
        },
        pulls=False,
    )


def test_a_job_without_words_has_the_images_command() -> None:
    assert created(create()).body["Cmd"] is None


def test_what_htcondor_adds_for_some_jobs_has_its_place() -> None:
    line = created(create(extra=["-p", "80", "-p", "9", "--pull", "always", "--shm-size", "5", "--entrypoint", "/x"]))
    asked = line.body["HostConfig"]
    assert line.pulls
    assert line.body["Entrypoint"] == ["/x"]
    assert line.body["ExposedPorts"] == {"80/tcp": {}, "9/tcp": {}}
    assert asked["PortBindings"]["80/tcp"] == [{"HostIp": "", "HostPort": ""}]
    assert asked["ShmSize"] == 5
    mounts = ["--mount", "type=bind,source=/data,target=/d,readonly", "--volume", "/x:/x", *DEVICES]
    asked = host(mounts=mounts)
    assert asked["Mounts"] == [{"Type": "bind", "Source": "/data", "Target": "/d", "ReadOnly": True}]
    assert asked["Binds"][1:] == ["/x:/x"]
    assert [one["PathOnHost"] for one in asked["Devices"]] == ["/dev/nvidiactl", "/dev/nvidia-uvm"]
    assert host(mounts=["--volume", "/x"]).get("Binds") == ["/var/lib/condor/execute:/var/lib/condor/execute"]
    assert created(create("x", mounts=["--volume", "/x"])).body["Volumes"] == {"/x": {}}


def test_a_network_has_its_place() -> None:
    line = [word for word in create("x") if word not in ("--hostname", "alice-1.0-lab")]
    line.insert(line.index(IMAGE), "--network=host")
    assert created(line).body["HostConfig"]["NetworkMode"] == "host"
    named = create("x")
    named.insert(named.index("--hostname"), "--network=bridge")
    assert created(named).body["HostConfig"]["NetworkMode"] == "bridge"
    named.insert(named.index("--hostname"), "--network=host")
    with pytest.raises(UnknownLine):
        created(named)


@pytest.mark.parametrize("missing", [("--init",), ("--log-driver", "none"), ("--cap-drop=all",), ("--memory=1024m",)])
def test_what_htcondors_configuration_can_leave_out_may_be_missing(missing: tuple[str, ...]) -> None:
    assert created([word for word in create("x") if word not in missing]).name == CONTAINER


LABEL = "--label=org.htcondorproject=False"
NO_CREATE: Mapping[str, list[str]] = {
    "an option that HTCondor does not use": create("x", extra=["--privileged"]),
    "an option in another place": create("x", extra=["--memory=1m"]),
    "an option a second time": create("x", extra=["--hostname", "again"]),
    "another label": create("x", extra=[LABEL]),
    "another label in the label's place": [word.replace("True", "False") for word in create("x")],
    "no label": [word for word in create("x") if "label" not in word],
    "a name that is no job's": [word.replace("HTCJob", "x") for word in create("x")],
    "no name": [word for word in create("x") if word not in ("--name", CONTAINER)],
    "a variable of docker's client": create("x", variables=["DOCKER_HOST"]),
    "a variable without a name": create("x", variables=["=x"]),
    "a file of variables": create("x", extra=["--env-file=/etc/passwd"]),
    "other options of security": [word.replace("no-new-privileges", "seccomp=/dev/zero") for word in create("x")],
    "a size that is none": [word.replace("1024m", "1@") for word in create("x")],
    "shares that are none": [word.replace("100", "1:2") for word in create("x")],
    "an option without its value": [word.replace("--init", "--init=false") for word in create("x")],
    "a value apart": [word for one in create("x") for word in (one.split("=") if "memory" in one else [one])],
    "a mount of another kind": create("x", mounts=["--mount", "type=tmpfs,target=/x"]),
    "a mount with an option": create("x", mounts=["--mount", "type=bind,source=/a,target=/a,bind-propagation=shared"]),
    "a mount with two": create("x", mounts=["--mount", "type=bind,source=/a,target=/a,readonly,consistency=x"]),
    "a mount with a quote": create("x", mounts=["--mount", 'type=bind,source=/a",target=/a']),
    "a name that is longer": [word.replace("PID7", "PID77777777") for word in create("x")],
    "a mount in another place": create("x", extra=["--mount", "type=bind,source=/data,target=/data"]),
    "a port that is none": create("x", extra=["-p", "80:80"]),
    "a group that is none": [word.replace("65534", "x") if word == "65534" else word for word in create("x")],
    "a line that ends with an option": create()[:-2],
    "an image that is an option": create("--name=x", image="--name"),
    "nothing": ["create"],
}


@pytest.mark.parametrize("name", NO_CREATE)
def test_htcondor_creates_no_container_with(name: str) -> None:
    with pytest.raises(UnknownLine):
        created(NO_CREATE[name])


NO_IMAGES: Mapping[str, list[str]] = {
    "an option": create("--entrypoint=/bin/sh", IMAGE, image=f"{LABEL}:latest"),
    "an option and HTCondor's tag": create("x", image="--name:latest"),
    "nothing": create("x", image=""),
    "the next word": create("x", image=":latest"),
    "an option and no job": create(image="--rm"),
    "the end of options": create("x", image="--"),
    "none": create()[:-1],
}


@pytest.mark.parametrize("name", NO_IMAGES)
def test_an_image_is_not(name: str) -> None:
    with pytest.raises(UnknownLine, match="is not the name of an image; set container_image or docker_image"):
        created(NO_IMAGES[name])


def test_the_words_of_a_job_are_its_own_wherever_they_begin_with_a_dash() -> None:
    line = created(create("--name=x", "--", "-e", variables=["A=--label", "B=--privileged=x"]))
    assert line.body["Cmd"] == ["--name=x", "--", "-e"]
    entry = created([*create()[:-1], "--entrypoint", "--entrypoint", IMAGE, "--rm"])
    assert (entry.body["Entrypoint"], entry.body["Cmd"]) == (["--entrypoint"], ["--rm"])


def test_a_size_that_is_none_is_the_configurations_fault() -> None:
    with pytest.raises(UnknownLine, match=r"DOCKER_SHM_SIZE in HTCondor's configuration .* \('-1'\)"):
        created(create("x", extra=["--shm-size", "-1"]))


def test_the_clients_labels_are_the_containers() -> None:
    labels = parse_create(create("x")[1:], (), {"k8spilot.gpus": "2"}).body["Labels"]
    assert labels == {"org.htcondorproject": "True", "k8spilot.gpus": "2"}


OWN = ["--device", "/dev/x:/dev/y:r", "--env=A=b 'c'", "--gpus", "2", "--init"]


def test_the_operators_own_arguments_are_those_of_the_configuration_and_no_others() -> None:
    line = created(create("x", extra=[*OWN, "--shm-size", "5"]), *OWN)
    asked = line.body["HostConfig"]
    assert line.body["Env"] == ["A=b 'c'"]
    assert asked["Devices"] == [{"PathOnHost": "/dev/x", "PathInContainer": "/dev/y", "CgroupPermissions": "r"}]
    assert (asked["DeviceRequests"][0]["Count"], asked["ShmSize"]) == (2, 5)
    for others in ([], OWN[:2], [*OWN[:2], "--env=A=b"], [*OWN, "--rm"]):
        with pytest.raises(UnknownLine):
            created(create("x", extra=others), *OWN)


@pytest.mark.parametrize(
    ("value", "request_"),
    [
        ("all", {"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}),
        ("1", {"Driver": "", "Count": 1, "Capabilities": [["gpu"]]}),
        ("device=0", {"Driver": "", "Count": 0, "Capabilities": [["gpu"]], "DeviceIDs": ["0"]}),
        ('"device=0,1",count=1', {"Driver": "", "Count": 1, "DeviceIDs": ["0", "1"], "Capabilities": [["gpu"]]}),
        ("driver=nvidia", {"Driver": "nvidia", "Count": 1, "Capabilities": [["gpu"]]}),
        ("capabilities=utility", {"Driver": "", "Count": 1, "Capabilities": [["utility", "gpu"]]}),
    ],
)  # fmt: skip
def test_gpus_are_requested_as_dockers_client_requests_them(value: str, request_: dict[str, Any]) -> None:
    own = ["--gpus", value]
    assert created(create("x", extra=own), *own).body["HostConfig"]["DeviceRequests"] == [request_]


def test_devices_have_paths_or_names() -> None:
    own = ["--device=nvidia.com/gpu=0", "--device", "nvidia.com/gpu=1", "--device", "/dev/x"]
    asked = created(create("x", extra=own), *own).body["HostConfig"]
    assert asked["DeviceRequests"] == [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=0", "nvidia.com/gpu=1"]}]
    assert asked["Devices"] == [{"PathOnHost": "/dev/x", "PathInContainer": "/dev/x", "CgroupPermissions": "rwm"}]


UNSUPPORTED = [
    ["--privileged"],
    ["--gpus", "x"],
    ["--gpus", 'a"'],
    ["--gpus"],
    ["--shm-size", "1g"],
    ["--dns=1.1.1.1"],
    ["-p", "80:80"],
    ["--name", "x"],
    ["--pull=never"],
    ["--memory=512m"],
    ["--cpu-shares", "100"],
]


@pytest.mark.parametrize("own", UNSUPPORTED)
def test_an_argument_of_the_operators_that_is_not_supported_is_named_at_the_pilots_start(own: list[str]) -> None:
    words = f"k8spilot does not support '{' '.join(own)}' in DOCKER_EXTRA_ARGUMENTS; remove it from HTCondor's"
    for check in (lambda: check_extra(own), lambda: created(create("x", extra=own), *own)):
        with pytest.raises(UnknownLine, match=re.escape(words)):
            check()


def test_the_operators_own_arguments_are_checked_at_the_pilots_start() -> None:
    check_extra(OWN)
