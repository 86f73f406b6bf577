"""First requests of the docker CLI and of HTCondor's probe."""

import pytest

from tests.engine.rings import Engine

KINDS = ("containers/{}/json", "images/{}/json", "networks/{}", "volumes/{}", "plugins/{}/json")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_ping_tells_the_version_of_the_api(engine: Engine, method: str) -> None:
    answer = await engine.ask(method, "/_ping", version="")
    assert answer.status == 200
    assert answer.body == (b"OK" if method == "GET" else b"")
    assert answer.headers["Api-Version"].startswith("1.")
    assert answer.headers["Ostype"] == "linux"


async def test_version_and_info_are_served(engine: Engine) -> None:
    version = (await engine.call("GET", "/version")).json
    info = (await engine.call("GET", "/info")).json
    assert version["Os"] == "linux"
    assert version["Arch"] == "amd64"
    assert '"' not in version["Version"]
    assert info["ServerVersion"] == version["Version"]
    assert info["Containers"] == 0


async def test_no_image_is_listed_so_that_htcondor_pulls_for_every_job(engine: Engine) -> None:
    assert (await engine.call("GET", "/images/json")).json == []


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/build"), ("POST", "/images/load"), ("GET", "/events"), ("GET", "/x")],
)
async def test_what_is_not_served_is_said_so(engine: Engine, method: str, path: str) -> None:
    answer = await engine.ask(method, path)
    assert answer.status == 501
    assert f"{method} /v1.45{path}" in answer.message


@pytest.mark.parametrize("name", ["unknown", "busybox:latest", "registry.test:5000/a/b:latest", "0123456789ab"])
async def test_an_unknown_name_is_unknown_as_every_kind_of_object(engine: Engine, name: str) -> None:
    for kind in KINDS:
        answer = await engine.ask("GET", "/" + kind.format(name))
        assert answer.status == 404, kind
        assert name in answer.message


async def test_a_request_that_is_not_json_is_a_bad_request(engine: Engine) -> None:
    answer = await engine.raw(
        b"POST /containers/create HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 4\r\n\r\nnope"
    )
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"not JSON" in answer
