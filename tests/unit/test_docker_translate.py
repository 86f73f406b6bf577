"""From `docker create` to a command: what is taken, what is refused, and Docker's rules."""

from dataclasses import replace
from typing import Any

import pytest

from k8spilot.common.errors import Refused
from k8spilot.docker.create_request.options import _LIMITS as LIMITS
from k8spilot.docker.create_request.options import IGNORED
from k8spilot.docker.create_request.specification import REMOVED, SlotLimits, check_name, specification
from k8spilot.model.image import Image
from k8spilot.model.reference import Reference
from tests.engine.test_refusals import BINDS, OF_THE_REQUEST, REFUSED

EXECUTE = "/var/lib/condor/execute"
PLACE = SlotLimits(EXECUTE)
IMAGE = Image(Reference.parse("a"), None, entrypoint=("/entry",), command=("default",), directory="/image")


def read(**body: Any) -> Any:
    return specification({"Image": "a", **body}, PLACE)


def test_the_table_of_refusals_is_tested_row_by_row() -> None:
    assert set(REFUSED) == set(LIMITS)


@pytest.mark.parametrize("option", sorted(LIMITS))
def test_an_option_is_refused_in_a_sentence_that_names_it(option: str) -> None:
    asked = {option: REFUSED[option]}
    with pytest.raises(Refused, match=rf"docker option {option}: "):
        read(**(asked if option in OF_THE_REQUEST else {"HostConfig": asked}))


@pytest.mark.parametrize("option", sorted(LIMITS))
@pytest.mark.parametrize("nothing", [None, "", 0, False, [], {}])
def test_an_option_that_asks_for_nothing_is_fine(option: str, nothing: object) -> None:
    read(HostConfig={option: nothing}, **{option: nothing})


@pytest.mark.parametrize(
    "host",
    [
        {"NetworkMode": "default"},
        {"NetworkMode": "bridge"},
        {"IpcMode": "private"},
        {"CapAdd": ["SYS_PTRACE"]},
        {"SecurityOpt": ["no-new-privileges"]},
        {"RestartPolicy": {"Name": "no"}},
        {"RestartPolicy": {"Name": "", "MaximumRetryCount": 0}},
        {"Binds": [f"{EXECUTE}/slot/dir_1:{EXECUTE}/slot/dir_1", f"{EXECUTE}/slot/dir_1:{EXECUTE}/slot/dir_1:rw"]},
        *({option: ["all"] if option == "CapDrop" else "x"} for option in IGNORED if option != "SecurityOpt"),
    ],
    ids=str,
)
def test_what_the_pod_does_anyway_is_taken(host: dict[str, Any]) -> None:
    read(HostConfig=host)


@pytest.mark.parametrize("bind", [*BINDS, "", ":", "/", f"{EXECUTE}/a", f"{EXECUTE}/a/../../b:{EXECUTE}/a/../../b"])
def test_a_mount_that_is_not_the_sandbox_is_refused(bind: str) -> None:
    with pytest.raises(Refused, match="docker option --volume"):
        read(HostConfig={"Binds": [bind]})


def test_some_of_a_list_is_not_enough() -> None:
    with pytest.raises(Refused, match="CapAdd"):
        read(HostConfig={"CapAdd": ["SYS_PTRACE", "NET_ADMIN"]})


def test_a_long_value_is_cut_in_the_sentence() -> None:
    with pytest.raises(Refused) as refused:
        read(HostConfig={"Dns": ["x" * 10_000]})
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("body", [{}, {"Image": ""}, {"Image": None}])
def test_an_image_must_be_named(body: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="the job names no image"):
        specification(body, PLACE)


@pytest.mark.parametrize(
    ("entrypoint", "command", "expected"),
    [
        (None, None, (b"/entry", b"default")),
        (None, ["own"], (b"/entry", b"own")),
        (["/own"], None, (b"/own",)),
        (["/own", "x"], ["y"], (b"/own", b"x", b"y")),
        ("/own", "y", (b"/own", b"y")),
        ([], ["own"], (b"own",)),
    ],
)
def test_entrypoint_and_command_follow_dockers_rules(
    entrypoint: list[str] | str | None, command: list[str] | str | None, expected: tuple[bytes, ...]
) -> None:
    assert read(Entrypoint=entrypoint, Cmd=command).resolve(IMAGE).arguments == expected


def test_environment_is_given_removed_and_freed_of_kubernetes() -> None:
    command = read(Env=["A=1", "B=", "HOME", "C=x=y"]).resolve(IMAGE)
    assert command.environment == (b"A=1", b"B=", b"C=x=y")
    assert command.removed == (*REMOVED, b"HOME")


@pytest.mark.parametrize(("asked", "expected"), [("/job", b"/job"), ("", b"/image"), (None, b"/image")])
def test_the_folder_is_the_jobs_or_the_images(asked: str | None, expected: bytes) -> None:
    assert read(WorkingDir=asked).resolve(IMAGE).directory == expected


def test_without_any_folder_it_is_the_root() -> None:
    assert read(Cmd=["x"]).resolve(Image(Reference.parse("a"), None)).directory == b"/"


def test_nothing_to_run_is_refused_with_what_to_set() -> None:
    with pytest.raises(Refused, match=r"no command .* set executable and arguments"):
        read().resolve(Image(Reference.parse("a"), None))


def test_bytes_that_are_no_text_survive() -> None:
    text = b"\xff\xfe caf\xe9".decode("utf-8", "surrogateescape")
    assert read(Cmd=[text]).resolve(IMAGE).arguments[-1] == b"\xff\xfe caf\xe9"


@pytest.mark.parametrize("name", ["HTCJob1_0_slot1_PID7", "a1", "a.b-c_d"])
def test_a_name_of_htcondors_is_fine(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["", "a", "-a1", "a/b", "a b", "a\n", "ä1", ".a"])
def test_what_docker_takes_for_no_name_is_refused(name: str) -> None:
    with pytest.raises(Refused, match="not a container name"):
        check_name(name)


@pytest.mark.parametrize("option", ["NanoCpus", "PidsLimit", "OomKillDisable", "Healthcheck", "Surprise"])
def test_an_option_that_nobody_has_thought_of_is_refused_by_its_name(option: str) -> None:
    with pytest.raises(Refused, match=f"does not serve the docker option {option}"):
        read(HostConfig={option: 1})


def test_what_clients_send_without_being_asked_is_fine() -> None:
    read(
        HostConfig={"MemorySwappiness": -1, "CgroupnsMode": "private", "ConsoleSize": [24, 80], "PidsLimit": 0},
        NetworkingConfig={"EndpointsConfig": {"default": {}}},
        AttachStdout=True,
    )


def test_folders_that_are_the_jobs_own_anyway_can_be_asked_for() -> None:
    read(HostConfig={"Binds": [f"{EXECUTE}/slot/dir_1/tmp:/tmp", f"{EXECUTE}/slot/dir_1/var/tmp:/var/tmp"]})
    with pytest.raises(Refused):
        read(HostConfig={"Binds": ["/elsewhere:/tmp"]})


def test_a_volume_of_the_pod_can_be_asked_for() -> None:
    place = replace(PLACE, volumes=frozenset({"/data"}))
    specification({"Image": "a", "HostConfig": {"Binds": ["/data:/data"]}}, place)
    for bind in ("/data:/other", "/other:/data", "/data/..:/data/.."):
        with pytest.raises(Refused):
            specification({"Image": "a", "HostConfig": {"Binds": [bind]}}, place)


def test_it_can_be_asked_for_as_htcondor_does_for_its_administrator() -> None:
    place = replace(PLACE, volumes=frozenset({"/data"}))
    mount = {"Type": "bind", "Source": "/data", "Target": "/data"}
    specification({"Image": "a", "HostConfig": {"Mounts": [mount]}}, place)
    for other in ({"Target": "/other"}, {"Source": "/other"}, {"Type": "volume"}, {"ReadOnly": True}, {"More": 1}):
        with pytest.raises(Refused):
            specification({"Image": "a", "HostConfig": {"Mounts": [{**mount, **other}]}}, place)


def test_shared_memory_can_be_asked_for_as_far_as_the_pod_has_it() -> None:
    place = replace(PLACE, shared_memory=64)
    specification({"Image": "a", "HostConfig": {"ShmSize": 64}}, place)
    with pytest.raises(Refused, match="has 64; request less"):
        specification({"Image": "a", "HostConfig": {"ShmSize": 65}}, place)


def test_a_port_that_the_execution_point_uses_cannot_be_published() -> None:
    place = replace(PLACE, used_ports=lambda: {9618})
    body = {"Image": "a", "HostConfig": {"PortBindings": {"9618/tcp": [{"HostPort": ""}]}}}
    with pytest.raises(Refused, match="in use by the execution point"):
        specification(body, place)


@pytest.mark.parametrize(("given", "home"), [([], b"HOME=/scratch"), (["HOME=/mine"], b"HOME=/mine")])
def test_a_job_of_htcondor_has_its_scratch_folder_for_a_home(given: list[str], home: bytes) -> None:
    body = {"Cmd": ["x"], "WorkingDir": "/scratch", "Env": given, "Labels": {"org.htcondorproject": "True"}}
    variables = read(**body).resolve(IMAGE).environment
    assert [one for one in variables if one.startswith(b"HOME=")] == [home]
    body["Labels"] = {}
    assert b"HOME=/scratch" not in read(**body).resolve(IMAGE).environment
