"""The kernel's keyrings, which belong to a uid of the node: no process of a job and none of HTCondor's may use them."""

import subprocess
from pathlib import Path
from threading import Timer

import pytest

from lab.patience import scaled
from tests.engine.rings import Engine
from tests.keyrings import DENIED, KNOWN, question, without_filters
from tests.simulator.programs import Programs

pytestmark = KNOWN


async def test_neither_a_job_nor_a_session_beside_it_can_use_keyrings(engine: Engine) -> None:
    result = await engine.run(engine.image("debian"), *question())
    assert result.stdout == DENIED.encode()
    job = await engine.begin_shell(engine.image("debian"), "sleep 60")
    assert (await engine.exec(job.name, *question())).stdout == DENIED.encode()


@pytest.mark.slow
def test_payload_init_says_that_keyrings_are_open_where_it_can_have_no_filter(
    programs: Programs, tmp_path: Path
) -> None:
    command = without_filters(str(programs.payload_init), str(tmp_path / "socket"))
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        limit = Timer(scaled(20), process.kill)
        limit.start()
        try:
            assert any(b"keyrings are open" in line for line in process.stderr)
        finally:
            limit.cancel()
            process.kill()


def test_without_the_filter_this_machine_has_keyrings() -> None:
    """Else the first test shows nothing."""
    done = subprocess.run(question(), capture_output=True, check=True, text=True)
    if done.stdout == DENIED:
        pytest.skip("the container in which the tests run denies keyrings itself")
    assert "the uid's ring" in done.stdout
