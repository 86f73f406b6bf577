"""The public Python client, on both engines alike."""

from collections.abc import Iterator

import docker
import pytest
from docker.errors import ContainerError, ImageNotFound, NotFound

from tests.oracle.engines import Docker


@pytest.fixture(params=["dockerd", "k8spilot"])
def engine(request: pytest.FixtureRequest, both: dict[str, Docker]) -> Docker:
    found: Docker = both[request.param]
    return found


@pytest.fixture
def client(engine: Docker) -> Iterator[docker.DockerClient]:
    opened = docker.DockerClient(base_url=f"unix://{engine.path}", timeout=60)
    yield opened
    opened.close()
    engine.remove_all()


def test_it_pulls_runs_waits_reads_logs_and_removes(client: docker.DockerClient, engine: Docker) -> None:
    repository, _, tag = engine.image().rpartition(":")
    image = client.images.pull(repository, tag=tag)
    assert image.attrs["Architecture"] == "amd64"
    script = "echo out $A; echo err >&2; exit 7"
    made = client.containers.run(
        engine.image(), ["sh", "-c", script], name=engine.name, environment={"A": "1"}, detach=True
    )
    assert made.wait(timeout=60)["StatusCode"] == 7
    assert (made.logs(stderr=False), made.logs(stdout=False)) == (b"out 1\n", b"err\n")
    made.reload()
    assert (made.status, made.name, made.attrs["State"]["ExitCode"]) == ("exited", engine.name, 7)
    assert [one.name for one in client.containers.list(all=True, filters={"name": engine.name})] == [engine.name]
    made.remove()
    with pytest.raises(NotFound):
        client.containers.get(engine.name)


def test_it_returns_the_output_of_a_run_that_removes_itself(client: docker.DockerClient, engine: Docker) -> None:
    found = client.containers.run(engine.image(), ["echo", "hello"], name=engine.name, remove=True)
    assert found == b"hello\n"
    with pytest.raises(NotFound):
        client.containers.get(engine.name)


def test_it_raises_what_it_should(client: docker.DockerClient, engine: Docker) -> None:
    with pytest.raises(ContainerError) as failed:
        client.containers.run(engine.image(), ["sh", "-c", "echo why >&2; exit 3"], name=engine.name)
    assert (failed.value.exit_status, failed.value.stderr) == (3, b"why\n")
    with pytest.raises(ImageNotFound):
        client.images.get("nobody/knows:this")
    with pytest.raises(NotFound):
        client.containers.get("nobody")


def test_it_looks_into_what_runs(client: docker.DockerClient, engine: Docker) -> None:
    made = client.containers.run(engine.image(), ["sleep", "300"], name=engine.name, detach=True)
    done = made.exec_run(["sh", "-c", "echo inside; echo beside >&2; exit 4"], demux=True)
    assert (done.exit_code, done.output) == (4, (b"inside\n", b"beside\n"))
    assert made.stats(stream=False)["memory_stats"]["stats"]["rss"] > 0
    made.pause()
    made.reload()
    assert made.status == "paused"
    made.unpause()
    made.kill("SIGKILL")
    assert made.wait(timeout=60)["StatusCode"] == 137


def test_it_removes_by_force(client: docker.DockerClient, engine: Docker) -> None:
    made = client.containers.run(engine.image(), ["sleep", "300"], name=engine.name, detach=True)
    made.remove(force=True, v=True)
    with pytest.raises(NotFound):
        made.reload()
