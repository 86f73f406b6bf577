"""The slot in the collectors: real connections, and scripts that print what HTCondor's tools print."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from k8spilot.condor.daemons import collectors as subject
from k8spilot.condor.daemons.collectors import Collectors, unreachable
from k8spilot.condor.folders import Folders
from tests.unit.condor_reads import settings as known_settings
from tests.unit.test_condor_tokens import CLAIMS, token

OURS = "10.1.2.3:40001"
ALLOWED = """\
Destination:                 collector cm.example
Authenticated using:         TOKEN
All authentication methods:  FS,TOKEN
Remote Mapping:              pilot@pool.example
Authorized:                  TRUE
"""
REFUSED = """\
ADVERTISE_STARTD failed!
AUTHENTICATE:1003:Failed to authenticate with any method
AUTHENTICATE:1004:Failed to authenticate using FS
AUTHENTICATE:1004:Failed to authenticate using IDTOKENS
"""
DENIED = """\
ADVERTISE_STARTD failed!
SECMAN:2010:Received "DENIED" from server for user pilot@pool.example using method IDTOKENS.
"""


class Pool:
    """A listening port, and the tools' answers."""

    def __init__(self, folder: Path, port: int) -> None:
        self.host = f"127.0.0.1:{port}"
        self.folders = Folders(folder / "execute", root=folder)
        for one in (self.folders.log, self.folders.tokens):
            one.mkdir(parents=True)
        (self.folders.log / ".startd_address").write_text(f"<{OURS}?addrs=x>\n$CondorVersion$\n")
        self._bin = folder / "bin"
        self._bin.mkdir()
        self.says("condor_config_val", self.host)
        self.says("condor_status", "")
        self.says("condor_ping", ALLOWED)

    def says(self, program: str, output: str, status: int = 0, seconds: int = 0) -> None:
        path = self._bin / program
        wait = f"exec sleep {seconds}" if seconds else ""
        path.write_text(f"#!/bin/sh\n{wait}\ncat <<'END'\n{output.rstrip()}\nEND\nexit {status}\n")
        path.chmod(0o755)

    @property
    def uid(self) -> str:
        """Uid of the pilot's pod."""
        return known_settings().pod_uid

    @property
    def collectors(self) -> Collectors:
        return Collectors(replace(known_settings(), socket=self.folders.root / "docker.sock"), self.folders)


@pytest.fixture
async def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pool]:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        pool = Pool(tmp_path, server.sockets[0].getsockname()[1])
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
        yield pool


async def test_a_slot_whose_ad_a_collector_has_is_in_the_pool_since_the_last_update(pool: Pool) -> None:
    pool.says("condor_status", f"1800000000 <{OURS}?CCBID=10.0.0.1:9618%3faddrs#7&PrivNet=x> {pool.uid}")
    answer = await pool.collectors.query()
    assert (answer.collector, answer.updated, answer.problem) == (pool.host, 1_800_000_000.0, "")


async def test_the_ad_of_an_earlier_startd_of_this_name_does_not_count(pool: Pool) -> None:
    pool.says("condor_status", f"{time.time() + 60:.0f} <10.1.2.3:39999?addrs=x> {pool.uid}")
    answer = await pool.collectors.query()
    assert answer.updated is None
    assert answer.problem.endswith("accepts this pilot as pilot@pool.example (TOKEN), but has no ad of slot1@"
                                   f"{pool.collectors.slot.partition('@')[2]}")  # fmt: skip


@pytest.mark.parametrize(("age", "words"), [(-60, "from another pod"), (60, "but has no ad of slot1@")])
async def test_a_living_pilot_of_the_same_name_is_told_and_an_ad_of_one_that_is_gone_is_not(
    pool: Pool, age: int, words: str
) -> None:
    pool.says("condor_status", f"{time.time() - age:.0f} <10.9.9.9:39999?addrs=x> another-uid")
    answer = await pool.collectors.query()
    assert answer.updated is None
    assert words in answer.problem


async def test_a_token_without_read_is_judged_by_its_authorization(pool: Pool) -> None:
    pool.says("condor_status", "Error: communication error", 1)
    answer = await pool.collectors.query()
    assert (answer.identity, answer.updated, answer.problem) == ("pilot@pool.example (TOKEN)", None, "")


async def test_a_refused_token_is_told_with_the_methods_and_whose_it_is(pool: Pool) -> None:
    (pool.folders.tokens / "pool").write_bytes(token({"kid": "old"}, CLAIMS))
    pool.says("condor_ping", REFUSED, 1)
    problem = (await pool.collectors.query()).problem
    assert "does not authenticate this pilot (methods tried: FS, IDTOKENS; token pool: issuer pool.example" in problem
    assert "key old, subject pilot@pool.example" in problem
    assert "Secret pool-token" in problem


@pytest.mark.parametrize(("output", "status"), [(DENIED, 1), (ALLOWED.replace("TRUE", "FALSE"), 0)])
async def test_an_identity_without_the_authorization_is_told(pool: Pool, output: str, status: int) -> None:
    pool.says("condor_ping", output, status)
    assert "authenticates this pilot as pilot@pool.example" in (await pool.collectors.ping()).problem
    assert "does not authorise it to advertise a slot (ADVERTISE_STARTD)" in (await pool.collectors.ping()).problem


async def test_a_service_that_is_no_collector_is_told_in_htcondors_words(pool: Pool) -> None:
    pool.says("condor_ping", "ADVERTISE_STARTD failed!\nSECMAN:2007:Read failure during security negotiation.\n", 1)
    problem = (await pool.collectors.query()).problem
    assert "does not answer as a collector (SECMAN:2007:Read failure" in problem


async def test_no_such_host_and_nobody_there_are_told_apart(pool: Pool) -> None:
    assert "no such host" in await unreachable("cm.invalid")
    assert "nobody answers on port 1 (connection refused)" in await unreachable("127.0.0.1:1")
    assert "is not a valid host" in await unreachable("a:b:c")
    assert await unreachable(pool.host) == ""
    assert await unreachable(f"{pool.host}?sock=collector3") == ""


async def test_one_of_several_collectors_is_enough_and_all_are_told_if_none(pool: Pool) -> None:
    pool.says("condor_config_val", f"127.0.0.1:1, {pool.host}")
    pool.says("condor_status", f"1800000000 <{OURS}> {pool.uid}")
    assert (await pool.collectors.query()).collector == pool.host
    pool.says("condor_status", "")
    pool.says("condor_ping", REFUSED, 1)
    problem = (await pool.collectors.query()).problem
    assert "127.0.0.1:1: nobody answers" in problem
    assert f"{pool.host} does not authenticate" in problem


async def test_a_collector_that_hangs_costs_seconds(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "_TOOL_SECONDS", 0.5)
    for program in ("condor_status", "condor_ping"):
        pool.says(program, "", seconds=60)
    pool.says("condor_config_val", pool.host)
    began = time.monotonic()
    assert "does not answer HTCondor's requests" in (await pool.collectors.query()).problem
    assert time.monotonic() - began < 30


async def test_without_htcondors_tools_the_settings_name_the_collectors(tmp_path: Path, pool: Pool) -> None:
    for program in ("condor_config_val", "condor_status", "condor_ping"):
        (tmp_path / "bin" / program).unlink()
    assert await pool.collectors.hosts() == ["cm.example"]
