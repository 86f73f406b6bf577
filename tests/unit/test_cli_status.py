"""`k8spilot status`, without an engine."""

import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from k8spilot.cli import status
from k8spilot.cli.main import app
from k8spilot.settings import Settings

NOW = datetime.now(UTC)


def slot(**other: Any) -> dict[str, Any]:
    moment = (datetime.now(UTC) - timedelta(minutes=5, seconds=3)).isoformat()
    return {
        "name": "slot1", "container": "payload", "state": "running", "since": moment, "image": "busybox",
        "attempt": "0a1b", "job": "12.0", "job_since": moment, "payload_init": True, "payload_scoped": True,
        "htcondor": {
            "name": "slot1@x", "state": "Claimed", "activity": "Busy", "job": "12.0", "user": "alice@x",
            "since": moment,
        },
        **other,
    }  # fmt: skip


def found(**other: Any) -> dict[str, Any]:
    moment = (datetime.now(UTC) - timedelta(minutes=5, seconds=3)).isoformat()
    return {
        "fit": True,
        "problems": [],
        "pod": "pilots/pilot",
        "version": "1.2",
        "engine": {"since": moment, "restarts": 1},
        "slots": [slot()],
        "htcondor": {
            "up": True, "to_retire": "2026-12-05T00:00:00+00:00", "to_die": "2026-12-06T00:00:00+00:00",
            "retiring": False,
        },
        "api": {"reachable": True, "away_since": None, "last_contact": moment, "requests": 3},
        "last_fault": None,
        "faults": [],
        **other,
    }  # fmt: skip


@contextmanager
def engine(folder: Path, answer: bytes | None) -> Iterator[str]:
    """Something that listens, and answers so or not at all."""
    path = str(folder / "docker.sock")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                if answer is None:
                    done.wait(10)
                else:
                    connection.recv(4096)
                    connection.sendall(answer)

        done = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield path
        finally:
            done.set()
            thread.join()


def ok(value: dict[str, Any]) -> bytes:
    return b"HTTP/1.0 200 OK\r\n\r\n" + json.dumps(value).encode()


@pytest.mark.parametrize(("fit", "code"), [(True, 0), (False, 1)])
def test_the_exit_status_says_whether_it_is_fit(
    fit: bool, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine(tmp_path, ok(found(fit=fit, problems=[] if fit else ["it is not well"]))) as path:
        monkeypatch.setenv("K8SPILOT_SOCKET", path)
        result = CliRunner().invoke(app, ["status"])
    assert result.exit_code == code
    assert ("it is not well" in result.stdout) is not fit
    assert re.search(r"  job     12.0, runs for 5 min \d+ s", result.stdout)


def test_where_there_is_no_pilot_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K8SPILOT_SOCKET", str(tmp_path / "none"))
    monkeypatch.delenv("POD_NAME", raising=False)
    for arguments in (["status"], ["status", "--json"]):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 2
        assert "there is no pilot here" in result.stdout
    assert json.loads(result.stdout)["fit"] is False


def test_a_pilot_whose_engine_has_not_come_yet_is_told_from_no_pilot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("K8SPILOT_SOCKET", str(tmp_path / "none"))
    monkeypatch.setenv("POD_NAME", "pilot-1")
    result = CliRunner().invoke(app, ["status"])
    assert result.exit_code == 2
    assert "this pilot is not ready yet" in result.stdout


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "is restarting, or hangs"),
        (b"HTTP/1.0 501 Not Implemented\r\n\r\n{}", "501"),
        (b"HTTP/1.0 200 OK\r\n\r\nnonsense", "an invalid answer"),
        (b"", "an invalid answer"),
    ],
)
def test_an_engine_that_does_not_answer_well_is_not_fit(
    answer: bytes | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "_QUERY_SECONDS", 0.3)
    with engine(tmp_path, answer) as path:
        got = status.query(path)
    assert not got["fit"]
    assert words in got["problems"][0]
    assert status.text(got).startswith("NOT FIT")


def test_what_cannot_be_reached_is_told_to_people() -> None:
    moment = (datetime.now(UTC) - timedelta(hours=2, minutes=5)).isoformat()
    away = {"reachable": False, "away_since": moment, "last_contact": moment, "requests": 3}
    fault = {"when": moment, "what": "JobLost", "words": "Job 12.0 was lost.", "job": "12.0"}
    text = status.text(found(api=away, htcondor={"up": False}, last_fault=fault))
    assert "cannot be reached for 2 h 5 min" in text
    assert "HTCondor  does not answer" in text
    assert "last fault, 2 h 5 min ago: JobLost: Job 12.0 was lost." in text


def test_it_asks_where_the_engine_listens_by_default() -> None:
    assert Settings.socket == Path(status.SOCKET)


def test_it_is_fast_since_it_imports_little() -> None:
    program = "import sys; import k8spilot.cli.status; print(*sys.modules)"
    names = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"asyncio", "aiohttp", "pydantic", "ssl", "typer", "prometheus_client"} & set(names)


@pytest.mark.parametrize(("scoped", "lines"), [(True, 0), (None, 0), (False, 1)])
def test_that_jobs_reach_sockets_of_the_pods_other_containers_is_shown(scoped: bool | None, lines: int) -> None:
    assert status.text(found(slots=[slot(payload_scoped=scoped)])).count("abstract sockets") == lines


def test_the_pools_view_of_the_slot_is_shown() -> None:
    moment = (datetime.now(UTC) - timedelta(minutes=5, seconds=3)).isoformat()
    pool = {
        "in_pool": True, "slot": "slot1@x", "collector": "cm", "since": moment, "last_update": moment, "problem": "",
    }  # fmt: skip
    assert (
        "pool      in the pool as slot1@x of cm for 5 min 3 s, last known update 5 min 3 s ago"
        in status.text(found(pool=pool)).splitlines()
    )
    out = {**pool, "in_pool": False, "last_update": None, "problem": "cm: no such host"}
    assert "pool      NOT in the pool for 5 min 3 s" in status.text(found(pool=out)).splitlines()
    assert "pool  " not in status.text(found())


def test_each_slot_of_several_is_shown_by_its_name() -> None:
    idle = slot(name="slot2", container="payload-2", state="idle", image=None, job=None, job_since=None, htcondor=None)
    text = status.text(found(slots=[slot(), idle]))
    assert re.search(r"^slot1     running for 5 min \d+ s\n  job     12.0,", text, re.MULTILINE)
    assert re.search(r"^slot2     idle for 5 min \d+ s, without a job$", text, re.MULTILINE)
