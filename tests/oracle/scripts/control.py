"""Control of containers: the life of a job in the starter's commands, kill, pause, rm, prune, and each failure."""

from typing import Any

from tests.engine.test_cli import TEMPLATE
from tests.oracle.engines import JOB, LABEL, Docker
from tests.oracle.scripts import script
from tests.oracle.scripts.exits import STATE


@script
def life_of_a_job(docker: Docker) -> Any:
    image = docker.image()
    steps: list[Any] = [docker("pull", "-q", image).told]
    options = [*JOB, "-e", "A=1 2", "--workdir", "/tmp", "--hostname", "alice-1.0-machine"]
    steps.append(docker("create", *options, "--name", docker.name, image, "sh", "-c", 'echo "$A"; exit 7').told)
    steps.append(docker("tag", image, "htcondor.org/alice_at_pool/busybox:latest").told)
    steps.append(docker("inspect", "--format", "{{.Architecture}}", image).told)
    steps.append(docker("inspect", "--format", TEMPLATE, docker.name).told)
    steps.append(docker("start", "-a", docker.name).told)
    steps.append(docker("inspect", "--format", TEMPLATE, docker.name).told)
    steps.append(docker("rm", "-f", "-v", docker.name).told)
    steps.append(docker("inspect", "--format", TEMPLATE, docker.name).told)
    return steps


@script
def what_is_not_there(docker: Docker) -> Any:
    commands = {
        "kill": ("--signal", "9"),
        "pause": (),
        "unpause": (),
        "rm": (),
        "rm -f": (),
        "start": ("-a",),
        "wait": (),
        "logs": (),
        "stop": (),
        "inspect": (),
        "attach": (),
        "port": (),
    }
    found = {name: docker(*name.split(), *options, "nobody").told for name, options in commands.items()}
    found["exec"] = docker("exec", "nobody", "true").told
    return found, [docker.raw(f"GET /containers/nobody/{what}").split()[1] for what in ("json", "stats?stream=0")]


@script
def what_is_created(docker: Docker) -> Any:
    steps: list[Any] = [docker.create("true").told, docker.state(STATE)]
    steps.append(docker("pause", docker.name).told)
    steps.append(docker("unpause", docker.name).told)
    steps.append(docker("exec", docker.name, "true").told)
    steps.append(docker("create", "--name", docker.name, docker.image(), "true").told)
    steps.append(docker("wait", docker.name).told)
    steps.append(docker("rm", docker.name).told)
    return steps


@script
def kill_of_what_is_created(docker: Docker) -> Any:
    docker.create("true")
    return docker("kill", "--signal", "15", docker.name).told, docker.state(STATE), docker("start", docker.name).code


@script
def what_runs(docker: Docker) -> Any:
    with docker.running() as client:
        steps: list[Any] = [docker.state(STATE), docker("inspect", "--format", TEMPLATE, docker.name).told]
        steps.append(docker("start", docker.name).told)
        steps.append(docker("rm", "-v", docker.name).told)
        steps.append(docker("unpause", docker.name).told)
        steps.append(docker("kill", "--signal", "NOSUCH", docker.name).told)
        steps.append(docker("kill", "--signal", "9999", docker.name).told)
        steps.append(docker("kill", "--signal", "0", docker.name).told[0])
        steps.append(docker("ps", "--format", "{{.Names}}", "--filter", f"name={docker.name}").told)
        steps.append(docker("rm", "-f", "-v", docker.name).told)
        steps.append(client.end().told)
        return steps


@script
def what_has_ended(docker: Docker) -> Any:
    docker.create("sh", "-c", "exit 3")
    steps: list[Any] = [docker("start", "-a", docker.name).told, docker("kill", "--signal", "9", docker.name).told]
    steps += [docker(verb, docker.name).told for verb in ("pause", "unpause", "stop", "wait")]
    steps.append(docker("exec", docker.name, "true").told)
    steps.append(docker("ps", "-q", "--filter", f"name={docker.name}").told)
    steps.append(docker("create", "--name", docker.name, docker.image(), "true").told)
    steps.append(docker("rm", "-v", docker.name).told)
    steps.append(docker("rm", "-v", docker.name).told)
    return steps


@script
def start_of_what_has_ended(docker: Docker) -> Any:
    docker.create("sh", "-c", "echo again")
    return [docker("start", "-a", docker.name).exact for _ in range(2)]


@script
def two_containers_at_once(docker: Docker) -> Any:
    with docker.running():
        return docker("create", "--name", f"{docker.name}-2", docker.image(), "true").told


@script
def soft_kill_and_a_job_that_reacts(docker: Docker) -> Any:
    with docker.running("trap 'echo saved; exit 4' TERM; echo ready; while :; do sleep 0.05; done") as client:
        return docker("kill", "--signal", "15", docker.name).told, client.end().exact, docker.state(STATE)


@script
def kill_by_name_of_the_signal(docker: Docker) -> Any:
    with docker.running("trap 'exit 5' USR1; echo ready; while :; do sleep 0.05; done") as client:
        return docker("kill", "-s", "SIGUSR1", docker.name).told, client.end().exact, docker.state(STATE)


@script
def soft_kill_and_a_job_that_does_not_care(docker: Docker) -> Any:
    with docker.running("trap '' TERM; echo ready; while :; do sleep 0.05; done") as client:
        steps: list[Any] = [docker("kill", "--signal", "15", docker.name).told, docker.state(STATE)]
        steps.append(docker("kill", "--signal", "9", docker.name).told)
        return *steps, client.end().exact, docker.state(STATE)


@script
def stop(docker: Docker) -> Any:
    with docker.running("trap '' TERM; echo ready; while :; do sleep 0.05; done") as client:
        return docker("stop", "--time", "1", docker.name).told, client.end().exact, docker.state(STATE)


@script
def wait_for_the_end(docker: Docker) -> Any:
    with docker.running("trap 'exit 11' TERM; echo ready; while :; do sleep 0.05; done"):
        waiting = docker.begin("wait", docker.name)
        docker("kill", "--signal", "TERM", docker.name)
        return waiting.end().told


@script
def pause(docker: Docker) -> Any:
    with docker.running("echo ready; while :; do echo x; sleep 0.02; done") as client:
        paused = "{{.State.Status}} {{.State.Running}} {{.State.Paused}}"
        steps: list[Any] = [docker("pause", docker.name).told, docker.state(paused)]
        steps.append(docker("pause", docker.name).told)
        steps.append(docker("exec", docker.name, "true").told)
        steps.append(docker("unpause", docker.name).told)
        steps.append(docker.state(paused))
        steps.append(docker("unpause", docker.name).told)
        steps.append(client.line())
        steps.append(docker("exec", docker.name, "true").told)
        return steps


@script
def hard_kill_of_what_is_paused(docker: Docker) -> Any:
    with docker.running() as client:
        steps: list[Any] = [docker("pause", docker.name).told, docker("kill", "--signal", "9", docker.name).told]
        return *steps, client.end().exact, docker.state(STATE)


@script
def removal_of_what_is_paused(docker: Docker) -> Any:
    with docker.running() as client:
        steps: list[Any] = [docker("pause", docker.name).told, docker("rm", "-f", "-v", docker.name).told]
        return *steps, client.end().code


@script
def prune(docker: Docker) -> Any:
    mark = f"{docker.name}.mark"
    options = ["--label", f"{mark}=True"]

    def pruned(*labels: str) -> tuple[int, bool]:
        done = docker("container", "prune", "-f", *(f"--filter=label={label}" for label in labels))
        return done.code, b"Deleted Containers" in done.output

    with docker.running(options=options):
        steps: list[Any] = [pruned(f"{mark}=True")]  # it runs
    docker.create("true", options=options)
    steps += [pruned(f"{mark}=False"), pruned(f"{mark}=True", LABEL), pruned(f"{mark}=True"), docker.state(STATE)]
    docker.create("true", options=options)
    docker("start", "-a", docker.name)
    steps += [pruned(f"{mark}=True"), docker.state(STATE)]
    return steps


@script
def prune_by_a_label_whatever_its_value(docker: Docker) -> Any:
    docker.create("true", options=["--label", f"{docker.name}.mark=True"])
    return docker("container", "prune", "-f", f"--filter=label={docker.name}.mark").code, docker.state(STATE)


@script
def names(docker: Docker) -> Any:
    odd = ("a", "_a", "a/b", "a b", "ü", "-" * 3, "a" * 3 + "!")
    return [docker("create", "--name", name, docker.image(), "true").told for name in odd]
