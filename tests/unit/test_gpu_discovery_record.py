"""The record of the GPUs that were found, and its display."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from k8spilot.cli import status
from k8spilot.cli.main import app
from k8spilot.gpu.discovery.pod_request import PodRequest
from k8spilot.gpu.discovery.record import FILE, GpuRecord, report
from k8spilot.gpu.pod_gpus import PodGpus
from tests.unit.test_cli_status import found
from tests.unit.test_gpu_discovery_verdict import NONE, ONE, PARTS, TWO, WHOLE, A, B, seen

GOOD = GpuRecord(TWO, seen(A, B, visible=f"{A.uuid},{B.uuid}"))
BAD = GpuRecord(ONE, seen(B, visible=A.uuid))


@pytest.mark.parametrize(
    "gpus", [GOOD, BAD, GpuRecord(), GpuRecord(NONE, seen(WHOLE, *PARTS)), GpuRecord(ONE, failure="no reason")]
)
def test_what_was_found_is_found_again(tmp_path: Path, gpus: GpuRecord) -> None:
    gpus.save(tmp_path)
    again = GpuRecord.load(tmp_path)
    assert again == gpus
    assert again.verdict == gpus.verdict
    assert [one.name for one in tmp_path.iterdir()] == [FILE]


def test_where_nothing_was_found_yet_there_is_nothing(tmp_path: Path) -> None:
    assert GpuRecord.load(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"k8spilot-gpus-1": {}}', '{"k8spilot-gpus-2": {}}', "\xff"])
def test_a_record_that_makes_no_sense_is_no_gpu(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_bytes(text.encode("latin-1"))
    gpus = GpuRecord.load(tmp_path)
    assert gpus is not None
    assert gpus.failure
    assert PodGpus({1: gpus}).inventory == "DetectedGPUs=0\n"


def test_the_gpus_of_several_payload_containers_are_told_with_the_container_of_each() -> None:
    first, second = GpuRecord(ONE, seen(A, visible=A.uuid)), GpuRecord(ONE, seen(B, visible=B.uuid))
    pod = PodGpus({1: GpuRecord(), 2: first, 3: second})
    assert (pod.usable, pod.groups, pod.problem) == ((A, B), ((A.uuid,), (B.uuid,)), "")
    assert pod.summary == f"{first.summary}; {second.summary}"
    assert (pod.strategy, pod.expected) == ("variable", (A.uuid, B.uuid))
    assert "K8SPayload3=true" in pod.inventory.splitlines()[-1]
    assert pod.json(evidence=False)["usable"] == [A.uuid, B.uuid]
    assert [one["usable"] for one in pod.json(evidence=False)["containers"].values()] == [[], [A.uuid], [B.uuid]]


def test_a_payload_container_without_its_gpus_is_a_problem_of_the_pod_and_the_others_are_usable() -> None:
    pod = PodGpus({1: GpuRecord(ONE, seen(A, visible=A.uuid)), 2: BAD})
    assert pod.problem == BAD.verdict.problem
    assert pod.usable == (A,)
    assert PodGpus({1: GpuRecord(), 2: BAD}).summary == BAD.summary
    assert PodGpus({1: GpuRecord(), 2: GpuRecord()}).inventory == "DetectedGPUs=0\n"


def test_a_failure_is_a_problem_only_where_gpus_were_promised() -> None:
    assert GpuRecord(NONE, failure="it failed").verdict.problem == ""
    assert GpuRecord(PodRequest(unknown=("rdma/hca: 1",)), failure="it failed").verdict.problem == ""
    assert "nvidia.com/gpu, but it failed" in GpuRecord(ONE, failure="it failed").verdict.problem


def test_a_line_says_what_there_is_or_what_is_wrong() -> None:
    assert GOOD.summary == "2 x NVIDIA H200: GPU-aaaaaaaa, GPU-bbbbbbbb (variable)"
    assert BAD.summary == BAD.verdict.problem
    assert GpuRecord().summary == "no GPU"


def test_people_read_what_was_seen_and_why() -> None:
    lines = list(report(GOOD))
    assert lines[0].startswith("strategy   variable: ")
    assert f"usable     {A.uuid} NVIDIA H200, 143771 MiB" in lines
    assert lines[-1] == "problem    none"
    assert f"evidence   the pod requests {TWO.summary}" in lines
    assert list(report(BAD))[-1].endswith("; jobs get none.")


def test_the_status_shows_gpus_only_where_there_is_something_to_say() -> None:
    assert "GPUs      2 x NVIDIA H200" in status.text(found(gpus=GOOD.json()))
    assert f"GPUs      {BAD.verdict.problem}" in status.text(found(gpus=BAD.json()))
    assert "GPUs" not in status.text(found(gpus=GpuRecord().json()))


def probe(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["gpu", "probe", *arguments])
    return done.exit_code, done.output


def test_the_probe_can_be_run_by_hand_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("k8spilot.gpu.discovery.probe.probe", lambda: seen(A, visible=A.uuid))
    assert probe()[0] == 0
    code, text = probe("--limit", "nvidia.com/gpu=1")
    assert (code, text) == (0, "\n".join(report(GpuRecord(ONE, seen(A, visible=A.uuid)))) + "\n")
    code, text = probe("--json", "--limit", "nvidia.com/gpu=1")
    assert json.loads(text)["usable"] == [A.uuid]


def test_the_probes_exit_status_says_whether_promise_and_sight_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("k8spilot.gpu.discovery.probe.probe", seen)
    assert probe()[0] == 0
    assert probe("--limit", "nvidia.com/gpu=1")[0] == 1
