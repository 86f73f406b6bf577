"""View of a job by docker's own commands, which an operator runs in the pilot container."""

from tests.e2e.pool import Pool, result, until


def test_dockers_commands_show_a_running_job(pool: Pool) -> None:
    script = "echo so far; echo an error >&2; while [ ! -e go ]; do sleep 0.1; done; exit 3"
    jobs = pool.shell(script, environment='"OWN=mine"')
    jobs.wait("ExecuteEvent")
    until(pool.processes, "the job runs")

    def docker(command: str) -> str:
        return pool.inside(f"docker {command} 2>&1")

    # The container is listed once payload-init has reported the start, which can be after the job's first process.
    listed = until(lambda: docker("ps --no-trunc --format '{{.Names}} {{.Image}} {{.State}}'"), "it is listed")
    name, image, now = listed.split()
    assert name.startswith(f"HTCJob{jobs.cluster}_0_")
    assert image == f"{pool.lab.registry}/busybox:latest"
    assert now == "running"
    until(lambda: set(docker(f"logs {name}").splitlines()) == {"so far", "an error"}, "its output is shown")
    assert docker(f"exec {name} sh -c 'echo $OWN; id -u; ls job.sh'").splitlines() == ["mine", "65534", "job.sh"]
    told, used = docker(f"stats --no-stream --format '{{{{.Name}}}} {{{{.MemUsage}}}}' {name}").split(maxsplit=1)
    assert told == name
    assert float(used.partition("B")[0].rstrip("KMi")) > 0
    state = docker(f"inspect --format '{{{{.State.Status}}}} {{{{.Config.Image}}}} {{{{json .Config.Env}}}}' {name}")
    assert state.startswith(f"running {image} [")
    assert '"OWN=mine"' in state

    docker(f"exec {name} touch go")
    assert result(jobs).code == 3
