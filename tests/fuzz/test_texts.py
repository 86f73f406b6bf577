"""Texts and JSON from others, read by pure functions: each is understood or refused, and nothing else."""

import contextlib
import json
import logging
from typing import Any

from hypothesis import strategies as st

from k8spilot.common import logs
from k8spilot.common.errors import ImageError, PilotError, Refused
from k8spilot.common.untrusted_json import read_json
from k8spilot.condor.daemons.logs import end_of_startd
from k8spilot.docker.create_request.options import IGNORED
from k8spilot.docker.create_request.specification import SlotLimits, check_name, execution_command, specification
from k8spilot.docker.logs import _whole_lines
from k8spilot.docker.signals import signal_number
from k8spilot.kube.pod import container
from k8spilot.model.command import Command
from k8spilot.model.image import Image
from k8spilot.model.image_errors import cause_of
from k8spilot.model.reference import Reference
from k8spilot.payload.command.output_buffer import OutputBuffer
from k8spilot.registry.image_index import choose
from k8spilot.registry.skopeo import _image, _message
from tests.fuzz.drawing import JSON, drawn

REFERENCE = Reference.parse("registry.test/a:1")
PARTS = st.sampled_from([*"aZ0._-:/@[]", "sha256:", "registry.test:5000", "localhost", "0" * 64, "é", "\n", "..", "__"])
OPTIONS = [
    "Image",
    "Cmd",
    "Entrypoint",
    "Env",
    "WorkingDir",
    "Labels",
    "HostConfig",
    "Tty",
    "OpenStdin",
    "ExposedPorts",
    "Binds",
    "Mounts",
    "PortBindings",
    "ShmSize",
    "AutoRemove",
    "LogConfig",
    "RestartPolicy",
    "NetworkMode",
    "CapAdd",
    "SecurityOpt",
    "Ulimits",
    "NetworkingConfig",
    "Volumes",
    "StopSignal",
    "Anything",
    *IGNORED,
]
VALUES = JSON | st.lists(st.text(max_size=8), max_size=3) | st.fixed_dictionaries({"Name": JSON, "Type": JSON})
PLACE = SlotLimits("/var/lib/condor/execute", frozenset({"/tmp"}), 1024, lambda: frozenset({9618}))


@drawn(400, text=st.text(max_size=300) | st.lists(PARTS, max_size=20).map("".join))
def test_a_reference_is_one_or_is_refused_in_a_short_sentence(text: str) -> None:
    try:
        found = Reference.parse(text)
    except ImageError as error:
        assert len(str(error)) < 600  # noqa: PT017
        return
    assert Reference.parse(str(found)) == found, "what it is written as is the same one"
    fresh = Reference.parse(found.fresh("sha256:" + "0" * 64, "123456789abc-1"))
    assert fresh.repository == found.repository
    assert str(found).isascii()
    assert not set(str(found)) & set(" \n\0")


@drawn(
    400, body=st.dictionaries(st.sampled_from(OPTIONS), VALUES), host=st.dictionaries(st.sampled_from(OPTIONS), VALUES)
)
def test_a_create_is_understood_or_refused_and_what_is_understood_can_be_run(
    body: dict[str, Any], host: dict[str, Any]
) -> None:
    asked = {"Image": "a", "HostConfig": host, **body}
    try:
        asked = read_json(json.dumps(asked))
    except ValueError:  # halves of characters, and numbers that are none
        return
    try:
        found = specification(asked, PLACE)
        found.resolve(Image(REFERENCE, None, command=("sh",))).encode()
    except Refused as error:
        assert len(str(error)) < 1000  # noqa: PT017
        return
    assert isinstance(found.is_job, bool)


@drawn(200, body=st.dictionaries(st.sampled_from(["Cmd", "Env", "WorkingDir", "Tty"]), VALUES))
def test_an_exec_is_understood_or_refused(body: dict[str, Any]) -> None:
    try:
        body = read_json(json.dumps(body))
    except ValueError:
        return
    with contextlib.suppress(Refused):
        execution_command(Command((b"sh",)), body, is_job=True).encode()


@drawn(300, text=st.text(max_size=60))
def test_names_and_signals_are_some_or_are_refused(text: str) -> None:
    for reads in (check_name, signal_number):
        with contextlib.suppress(Refused):
            reads(text)


@drawn(400, document=st.binary(max_size=100) | JSON.map(lambda value: json.dumps(value).encode()))
def test_json_is_read_or_is_a_value_error_and_can_be_written_again(document: bytes) -> None:
    try:
        value = read_json(document)
    except ValueError:
        return
    json.dumps(value, ensure_ascii=False).encode()


@drawn(
    300,
    config=st.dictionaries(st.sampled_from(["Entrypoint", "Cmd", "Env", "WorkingDir", "User", "Volumes"]), VALUES)
    | JSON,
    manifest=st.binary(max_size=60) | st.builds(lambda value: json.dumps({"manifests": value}).encode(), JSON),
)
def test_what_an_image_says_of_itself_is_understood_or_refused(config: Any, manifest: bytes) -> None:
    with contextlib.suppress(ValueError):  # which registry.py tells as an ImageError
        choose(read_json(manifest, unique=True), "amd64")
    document = {"architecture": "amd64", "rootfs": {}, "config": config}
    try:
        image = _image(REFERENCE, "sha256:0", json.dumps(document).encode())
    except ImageError:
        return
    with contextlib.suppress(PilotError):
        specification({"Image": "a"}, PLACE).resolve(image).encode()


NAMES = st.sampled_from(["pilot", "payload", "other"])
STATE = st.none() | st.dictionaries(
    st.sampled_from(["running", "waiting", "terminated"]),
    st.dictionaries(st.sampled_from(["reason", "message"]), st.text(max_size=20), max_size=2),
)
CONTAINER = st.fixed_dictionaries({"name": NAMES}, optional={"image": st.text(max_size=10), "volumeMounts": st.none()})
STATUS = st.fixed_dictionaries({"name": NAMES}, optional={"state": STATE, "lastState": STATE, "imageID": st.text()})
LISTS = st.sampled_from(["initContainers", "containers"])
STATUSES = st.sampled_from(["initContainerStatuses", "containerStatuses"])


@drawn(
    300,
    pod=st.fixed_dictionaries(
        {},
        optional={
            "spec": st.none() | st.dictionaries(LISTS, st.none() | st.lists(CONTAINER, max_size=3)),
            "status": st.none() | st.dictionaries(STATUSES, st.none() | st.lists(STATUS, max_size=3)),
        },
    ),
)
def test_a_pod_with_less_in_it_than_usual_is_read(pod: dict[str, Any]) -> None:
    """Field by field: its shape is the API server's promise, what is there at any one time is not."""
    view = container(pod, "payload")
    if view is not None:
        assert isinstance(view.refused, str | None)
        assert isinstance(view.volumes, frozenset)


@drawn(300, line=st.text(max_size=200))
def test_what_others_say_makes_one_line_of_the_log(line: str) -> None:
    record = logging.LogRecord("a", logging.INFO, "", 0, "%s", (line,), None)
    assert "\n" not in logs.TextFormatter().format(record)
    assert "\n" not in logs.JsonFormatter().format(record)
    logs.TextFormatter().format(record).encode()  # it can be written
    end_of_startd("MasterLog", line)
    cause_of(_message(line))


@drawn(200, pieces=st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=30)), max_size=30))
def test_the_lines_of_an_output_are_the_output(pieces: list[tuple[int, bytes]]) -> None:
    tail = OutputBuffer()
    for stream, data in pieces:
        tail.add(stream, data)
    lines = _whole_lines(list(tail))
    for stream in (1, 2):
        whole = b"".join(data for number, data in pieces if number == stream)
        assert b"".join(one.data for one in lines if one.stream == stream) == whole
