"""The lab's NVML stub answers programs that load it as the real library would."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lab.gpu import nvml

FIRST = "GPU-8f9c2d75-0000-4000-8000-000000000000"
SECOND = "GPU-8f9c2d75-0000-4000-8000-000000000001"
INSTANCE = "MIG-0caf8b2e-0000-5000-8000-000000000001"

BEGINNING = """
import json, pynvml as n
n.nvmlInit()
def say(ask, *arguments):
    try:
        answer = ask(*arguments)
    except n.NVMLError as problem:
        answer = f"error {problem.value}"
    print(json.dumps(answer), flush=True)
first = n.nvmlDeviceGetHandleByIndex(0)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("nvml") / nvml.LIBRARY
    nvml.build(target)
    return target


@pytest.fixture
def stub(library: Path, tmp_path: Path) -> nvml.Stub:
    (tmp_path / nvml.LIBRARY).symlink_to(library)
    (tmp_path / "settings").mkdir()
    stub = nvml.Stub(tmp_path / nvml.LIBRARY, tmp_path / "settings/settings")
    stub.write(nvml.Driver([nvml.h200(0, FIRST), nvml.h200(1, SECOND)]))
    return stub


def code_of(stub: nvml.Stub) -> int:
    """Return the exit code of a program that only initialises NVML and takes the first GPU."""
    with start(stub, "") as process:
        return process.wait(timeout=20)


def start(stub: nvml.Stub, script: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, **stub.environment}
    command = [sys.executable, "-c", BEGINNING + script]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(stub: nvml.Stub, script: str) -> list[Any]:
    """The answers, each a line of JSON, of a program that says `script` to pynvml."""
    with start(stub, script) as process:
        output, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    return [json.loads(line) for line in output.splitlines()]


def test_a_gpu_is_what_was_said_of_it(stub: nvml.Stub) -> None:
    answers = ask(
        stub,
        """
for getter in (n.nvmlDeviceGetUUID, n.nvmlDeviceGetName, n.nvmlDeviceGetCudaComputeCapability,
               n.nvmlDeviceGetNumGpuCores, n.nvmlDeviceGetMinorNumber, n.nvmlDeviceGetEccMode):
    say(getter, first)
say(lambda: n.nvmlDeviceGetMemoryInfo(first).total)
say(lambda: n.nvmlDeviceGetPciInfo(first).busId)
say(n.nvmlDeviceGetMaxClockInfo, first, n.NVML_CLOCK_SM)
say(n.nvmlSystemGetDriverVersion)
say(n.nvmlSystemGetCudaDriverVersion)
say(n.nvmlDeviceGetCount)
say(lambda: n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(1)))
say(n.nvmlDeviceGetHandleByIndex, 2)
""",
    )
    expected = [FIRST, "NVIDIA H200", [9, 0], 16896, 0, [1, 1], 143771 * 2**20, "00000000:01:00.0", 1980]
    assert answers == [*expected, "580.159.04", 13000, 2, SECOND, "error 2"]


def test_what_changes_is_seen_by_a_program_that_runs(stub: nvml.Stub) -> None:
    script = """
for line in open(0):
    say(lambda: [n.nvmlDeviceGetUtilizationRates(first).gpu, n.nvmlDeviceGetMemoryInfo(first).used,
                 [(one.pid, one.usedGpuMemory) for one in n.nvmlDeviceGetComputeRunningProcesses(first)]])
"""
    with start(stub, script) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        print(file=process.stdin, flush=True)
        assert json.loads(process.stdout.readline()) == [0, 0, []]
        with stub.change() as driver:
            gpu = driver.gpu(FIRST)
            gpu.busy(37, time.time() - 1)
            gpu.used_bytes = 5 * nvml.MIB
            gpu.processes.append(nvml.Process(42, 5 * nvml.MIB, 37))
        print(file=process.stdin, flush=True)
        assert json.loads(process.stdout.readline()) == [37, 5 * nvml.MIB, [[42, 5 * nvml.MIB]]]
        process.stdin.close()


def test_samples_tell_how_busy_the_gpu_was_and_end_with_what_is_new(stub: nvml.Stub) -> None:
    begun = time.time()
    with stub.change() as driver:
        driver.gpu(FIRST).busy(80, begun - 5)
        driver.gpu(FIRST).busy(20, begun - 2)
    known, samples, nothing = ask(
        stub,
        """
kind, samples = n.nvmlDeviceGetSamples(first, n.NVML_GPU_UTILIZATION_SAMPLES, 0)
say(lambda: kind == n.NVML_VALUE_TYPE_UNSIGNED_INT)
say(lambda: [one.sampleValue.uiVal for one in samples])
import time
say(n.nvmlDeviceGetSamples, first, n.NVML_GPU_UTILIZATION_SAMPLES, int(time.time() * 1e6) + 10**6)
""",
    )
    assert known
    busy_seconds, most_seconds = 3 * 0.8 + 2 * 0.2, 0.2 * (time.time() - begun)
    assert busy_seconds - 0.4 < sum(samples) / 6 / 100 < busy_seconds + most_seconds + 0.4
    assert (samples[0], samples[-1]) == (0, 20)
    assert nothing == f"error {nvml.NOT_FOUND}"


def test_a_mig_instance_has_memory_and_gpm_and_no_rates(stub: nvml.Stub) -> None:
    with stub.change() as driver:
        driver.gpu(FIRST).instances = [nvml.slice_of_h200(0, INSTANCE)]
        driver.mig(INSTANCE).busy(50, time.time() - 1)
    answers = ask(
        stub,
        """
import time
say(n.nvmlDeviceGetMigMode, first)
mig = n.nvmlDeviceGetMigDeviceHandleByIndex(first, 0)
say(n.nvmlDeviceGetUUID, mig)
say(lambda: n.nvmlDeviceGetMemoryInfo(mig).total)
say(n.nvmlDeviceGetUtilizationRates, mig)
say(n.nvmlDeviceGetUtilizationRates, first)
say(n.nvmlDeviceGetMigDeviceHandleByIndex, first, 1)
say(lambda: n.nvmlDeviceGetUUID(n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)))
query = n.c_nvmlGpmMetricsGet_t(version=n.NVML_GPM_METRICS_GET_VERSION, numMetrics=1)
query.metrics[0].metricId = n.NVML_GPM_METRIC_SM_UTIL
query.sample1, query.sample2 = n.nvmlGpmSampleAlloc(), n.nvmlGpmSampleAlloc()
n.nvmlGpmMigSampleGet(first, n.nvmlDeviceGetGpuInstanceId(mig), query.sample1)
time.sleep(0.01)
n.nvmlGpmMigSampleGet(first, n.nvmlDeviceGetGpuInstanceId(mig), query.sample2)
say(lambda: round(n.nvmlGpmMetricsGet(query).metrics[0].value))
""",
    )
    missing = f"error {nvml.NOT_SUPPORTED}"
    assert answers == [[1, 1], INSTANCE, 16384 * 2**20, missing, missing, "error 6", FIRST, 50]


def test_a_gpu_that_is_lost_leaves_the_others(stub: nvml.Stub) -> None:
    script = """
say(n.nvmlDeviceGetName, first)
for line in open(0):
    say(n.nvmlDeviceGetName, first)
    say(n.nvmlDeviceGetHandleByIndex, 0)
    say(lambda: n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(1)))
"""
    with start(stub, script) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == "NVIDIA H200"
        with stub.change() as driver:
            driver.gpu(FIRST).failures[nvml.EVERY_FUNCTION] = nvml.GPU_IS_LOST
        output, _ = process.communicate("\n", timeout=20)
    lost = f"error {nvml.GPU_IS_LOST}"
    assert [json.loads(line) for line in output.splitlines()] == [lost, lost, SECOND]


def test_after_the_driver_was_loaded_anew_nvml_is_to_be_initialised_again(stub: nvml.Stub) -> None:
    script = """
for line in open(0):
    say(n.nvmlDeviceGetCount)
n.nvmlInit()
say(n.nvmlDeviceGetCount)
"""
    with start(stub, script) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        print(file=process.stdin, flush=True)
        assert json.loads(process.stdout.readline()) == 2
        with stub.change() as driver:
            driver.epoch += 1
        print(file=process.stdin, flush=True)
        assert json.loads(process.stdout.readline()) == "error 1"
        output, _ = process.communicate(timeout=20)
        assert json.loads(output) == 2


def test_without_the_drivers_node_there_is_no_driver(stub: nvml.Stub, tmp_path: Path) -> None:
    with stub.change() as driver:
        driver.nodes = str(tmp_path)
    assert code_of(stub) == 1
    with stub.change() as driver:
        driver.nodes = ""
    assert code_of(stub) == 0


def test_a_function_fails_as_it_is_told(stub: nvml.Stub) -> None:
    with stub.change() as driver:
        driver.gpu(FIRST).failures["nvmlDeviceGetMemoryInfo"] = nvml.TIMEOUT
    script = "say(lambda: n.nvmlDeviceGetMemoryInfo(first).used)\nsay(n.nvmlDeviceGetName, first)\n"
    assert ask(stub, script) == [f"error {nvml.TIMEOUT}", "NVIDIA H200"]
    with stub.change() as driver:
        driver.failures["nvmlInitWithFlags"] = nvml.LIBRARY_MISMATCH
    assert code_of(stub) == 1
