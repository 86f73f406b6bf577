"""Images, and what is asked of the engine itself: the probe, pull and its failures, lists, tags, removal."""

from typing import Any

from tests.oracle.engines import Docker, kind
from tests.oracle.scripts import script

FORMAT = "{{.Repository}}:{{.Tag}} {{.ID}} {{.Size}}"


@script
def probe(docker: Docker) -> Any:
    return docker("-v").told, docker("info").code, docker("version").code


@script
def unknown_image(docker: Docker) -> Any:
    image = docker.image("no-such-image")
    return docker("create", "--name", docker.name, image, "true").told


@script
def unknown_tag(docker: Docker) -> Any:
    return docker("create", "--name", docker.name, docker.image("busybox:no-such-tag"), "true").told


@script
def pull_of_an_unknown_image(docker: Docker) -> Any:
    return docker("pull", "-q", docker.image("no-such-image")).told


@script
def pull(docker: Docker) -> Any:
    return docker("pull", "-q", docker.image()).told


@script
def references_that_are_none(docker: Docker) -> Any:
    odd = (f"{docker.registry}/Upper/Case:1", "a b", f"{docker.registry}/x:", f"{docker.registry}/x@sha256:12", ":", "")
    return [
        (done.code, kind(done.errors.decode().partition("\n")[0]))
        for name in odd
        for done in (docker("create", "--name", docker.name, name, "true"),)
    ]


@script
def image_by_digest(docker: Docker) -> Any:
    docker.create("true")
    repository = docker("inspect", "--format", "{{index .RepoDigests 0}}", docker.image()).output.decode().strip()
    docker("rm", "-f", docker.name)
    assert docker("create", "--name", docker.name, repository, "echo", "here").code == 0
    return docker("start", "-a", docker.name).exact


@script
def image_inspected(docker: Docker) -> Any:
    docker.create("true")
    template = "{{.Architecture}} {{.Os}} {{json .Config.Cmd}} {{json .Config.Env}} {{json .Config.Entrypoint}}"
    found: list[Any] = [docker("inspect", "--format", template, docker.image()).told]
    identifier = docker("inspect", "--format", "{{.Id}}", docker.image()).output.decode().strip()
    found.append(docker("inspect", "--format", "{{.Id}} {{.Metadata.LastTagTime}}", docker.image()).told[0::2])
    return *found, identifier.startswith("sha256:"), docker("inspect", "nobody/knows:this").told


@script
def images_listed(docker: Docker) -> Any:
    docker.create("true")
    rows = docker("images", "--format", FORMAT).output.decode().splitlines()
    return [row.split()[0] for row in rows if row.split()[0] == docker.image()]


@script
def tags(docker: Docker) -> Any:
    docker.create("true")
    own = f"htcondor.org/{docker.name}/busybox:latest"
    steps: list[Any] = [docker("tag", docker.image(), own).told for _ in range(2)]
    steps.append(docker("inspect", "--format", "{{.Architecture}}", own).told)
    done = docker("rmi", own)
    steps.append((done.code, done.output.decode(), done.errors.decode()))
    steps.append(docker("images", "-q", own).told)
    steps.append(docker("inspect", own).told)
    steps.append(docker("rmi", own).told)
    steps.append(docker("tag", "nobody/knows:this", own).told)
    return steps
