"""Transfers by https and s3 from servers whose certificates the site's own authority has signed.

The pilots trust it by the steps of docs/how-to/transfer-plugins.md.
"""

import functools
import http.server
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab import jobs, pilot, pki, s3
from lab.api import Lab
from lab.faulty_api import server_side
from lab.levels import NAMESPACES, Level
from lab.s3 import S3
from lab.settings import NODE_ADDRESS
from tests.e2e.pool import Pool, hold_reason, result
from tests.e2e.test_files import INPUT_HOLD, OUTPUT_HOLD

pytestmark = pytest.mark.landing

ID, SECRET = "id", "secret"
"""Files with the user's keys, on the access point."""
KEYS: dict[str, Any] = {"aws_access_key_id_file": ID, "aws_secret_access_key_file": SECRET, "aws_region": s3.REGION}
LOOK = """
find . -type f ! -name '_condor_std*' -exec cat {} +
env
cat "$_CONDOR_JOB_AD" "$_CONDOR_MACHINE_AD"
"""
"""A job that prints all that it is given."""
FAULTY = ("25.14",)
"""Versions of HTCondor whose access points refuse the starter's request to sign an output's URL.

That request has no file name, which FileTransfer::LegalPathInSandbox refuses since 25.10 (HTCONDOR-3499).
"""
LOGS = "find /var/log/condor -type f -exec cat {} +"
HISTORY = "/var/log/condor/startd_history"
"""File in which HTCondor keeps the ads of jobs that have ended, with the URLs of their inputs."""


@pytest.fixture(scope="module")
def store(lab: Lab) -> Iterator[S3]:
    """An S3 server with an object `page`."""
    with s3.serving(lab.settings, lab.progress) as server:
        (server.objects / "page").write_text("of the store\n")
        yield server


@pytest.fixture(scope="module", params=NAMESPACES)
def site(lab: Lab, owner: str, store: S3, request: pytest.FixtureRequest) -> Iterator[tuple[Lab, str]]:
    """A pilot of each level that trusts the authority of `store`: the lab at that level, and the pod's name."""
    level: Level = request.param
    here, pod = lab.at(level), f"e2e-{owner}-authority-{level}"
    authority = (store.keys / "ca.crt").read_text()
    file = lab.access_point("alice", "openssl x509 -hash -noout", input=authority).strip() + ".0"
    mount = {"name": "site-ca", "mountPath": f"/etc/ssl/certs/{file}", "subPath": "ca.crt", "readOnly": True}
    containers = ("/spec/containers/0", *(("/spec/initContainers/2",) if level == "restricted" else ()))
    trust = pilot.change(
        {"op": "add", "path": "/spec/volumes/-", "value": {"name": "site-ca", "configMap": {"name": pod}}},
        *({"op": "add", "path": f"{one}/volumeMounts/-", "value": mount} for one in containers),
    )
    generated = {"name": pod, "literals": [f"ca.crt={authority}"], "options": {"disableNameSuffixHash": True}}
    pilot.deploy(here, pod, overlay={"configMapGenerator": [generated], "patches": [trust]})
    jobs.wait_in_pool(here, pod)
    yield here, pod
    pilot.discard(here, pod)
    here.kubectl("delete", "configmap", pod, "-n", here.namespace)


@pytest.fixture
def ours(site: tuple[Lab, str]) -> Iterator[Pool]:
    """The pool, through that pilot."""
    with ExitStack() as cleanup:
        yield Pool(*site, cleanup)


def test_https_needs_an_authority_that_the_pilot_trusts(ours: Pool, store: S3, tmp_path: Path) -> None:
    pki.new_server(tmp_path, s3.SERVER)
    with _web(store.keys) as trusted, _web(tmp_path) as unknown:
        done = ours.shell("cat page", transfer_input_files=f"https://{trusted}/page")
        refused = ours.shell("true", transfer_input_files=f"https://{unknown}/page")
        assert result(done).text == "of the web\n"
        reason = hold_reason(refused, INPUT_HOLD)
    assert "unable to get local issuer certificate" in reason
    assert unknown in reason


def test_s3_with_the_users_keys_which_stay_on_the_access_point(ours: Pool, store: S3) -> None:
    done = result(ours.shell(LOOK, transfer_input_files=store.url("page"), files=_files(store, store.secret), **KEYS))
    assert {"of the store\n" in done.text, "_CONDOR_JOB_AD=" in done.text} == {True}
    logs = ours.inside(LOGS)
    assert store.address in logs
    for what in (done.text, ours.log(600), logs):
        assert store.secret not in what
    # HTCondor's own files have the URL with its signature, which opens the object for an hour.
    for what in (done.text, ours.log(600)):
        assert "X-Amz-Signature" not in what
    theft = ours.shell("true", user="bob", transfer_input_files=f"file://{HISTORY}")
    assert f"Could not open file {HISTORY}" in hold_reason(theft, INPUT_HOLD)
    assert ours.inside(f"test -s {HISTORY} && echo there") == "there\n"


def test_s3_outputs_are_stored_and_hold_the_job_where_htcondor_has_the_fault(ours: Pool, store: S3) -> None:
    name = f"made-{ours.lab.level}"
    putting = _puts(ours, store, store.secret, name)
    if ours.lab.settings.htcondor in FAULTY:
        assert "Attempt to write to illegal sandbox path" in hold_reason(putting, OUTPUT_HOLD)
    else:
        assert putting.ended().attributes["ReturnValue"] == 0
    assert (store.objects / name).read_text() == "mine\n"


def test_wrong_keys_hold_the_job_with_the_answer_of_the_server(ours: Pool, store: S3) -> None:
    getting = ours.shell("true", transfer_input_files=store.url("page"), files=_files(store, "wrong"), **KEYS)
    putting = _puts(ours, store, "wrong", "never")
    for reason in (hold_reason(getting, INPUT_HOLD), hold_reason(putting, OUTPUT_HOLD)):
        assert "returned error: 403" in reason
        assert store.address in reason
    assert not (store.objects / "never").exists()


def _files(store: S3, secret: str) -> dict[str, str]:
    """The user's files that KEYS names."""
    return {ID: store.key_id, SECRET: secret}


def _puts(pool: Pool, store: S3, secret: str, name: str) -> jobs.Jobs:
    """Submit a job whose output becomes the object `name`."""
    return pool.shell(
        "echo mine >made",
        transfer_output_files="made",
        transfer_output_remaps=f'"made = {store.url(name)}"',
        files=_files(store, secret),
        **KEYS,
    )


@contextmanager
def _web(keys: Path) -> Iterator[str]:
    """Run a web server with the certificate in `keys`, which has one page; its host:port."""
    folder = keys / "web"
    folder.mkdir(exist_ok=True)
    (folder / "page").write_text("of the web\n")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer((NODE_ADDRESS, 0), handler) as server:
        server.socket = server_side(keys / "server.crt", keys / "server.key").wrap_socket(
            server.socket, server_side=True
        )
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"{NODE_ADDRESS}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
