"""The slot's ad, with a program in the place of HTCondor's tool that writes down what it is given."""

import asyncio
import logging
from pathlib import Path

import classad2
import pytest

from k8spilot.condor.ads.startd_ad import LocalStartdAd
from k8spilot.condor.folders import Folders
from tests.unit.condor_reads import settings


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    known = Folders(tmp_path / "execute", root=tmp_path)
    known.private.mkdir(parents=True)
    known.log.mkdir(parents=True)
    return known


def slot(folders: Folders, script: str) -> LocalStartdAd:
    program = folders.root / "tool"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return LocalStartdAd(folders, settings(), update=str(program), query="true")


async def test_attributes_become_an_ad(folders: Folders) -> None:
    said = folders.root / "said"
    assert await slot(folders, f'cp "$1" {said}; echo "$CONDOR_CONFIG" >{said}.environment').set(
        {"Text": 'it says "no"\\\nand ends\\', "Whole": 7, "Real": 1.5, "Yes": True, "None": None}
    )
    ad = classad2.parseOne(said.read_text(), classad2.ParserType.Old)
    assert (ad["Text"], ad["Whole"], ad["Real"], ad["Yes"]) == ("it says 'no'/ and ends/", 7, 1.5, True)
    assert ad.eval("None") == classad2.Value.Undefined
    assert Path(f"{said}.environment").read_text().strip() == str(folders.config)
    assert not list(folders.private.glob("slot-*"))


async def test_updates_take_effect_in_order(folders: Folders) -> None:
    said = folders.root / "said"
    ad = slot(folders, f'sleep 0.0$(grep -c 1 "$1"); cat "$1" >> {said}')
    await asyncio.gather(*(ad.set({"Number": number}) for number in (1, 2, 3)))
    assert said.read_text().split() == ["Number", "=", "1", "Number", "=", "2", "Number", "=", "3"]


async def test_what_the_tool_says_against_it_is_logged(folders: Folders, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    assert not await slot(folders, "echo 'cannot find it'; exit 1").set({"A": 1, "B": 2})
    assert not await LocalStartdAd(folders, settings(), update="/no/such/tool").set({"A": 1})
    assert [record.getMessage() for record in caplog.records] == [
        "The slot's ad could not be updated with A, B: cannot find it",
        "The slot's ad could not be updated with A: [Errno 2] No such file or directory: '/no/such/tool'",
    ]


async def test_the_startd_is_made_to_look_at_its_ad_again(folders: Folders) -> None:
    query, said = folders.root / "query", folders.root / "said"
    query.write_text(f'#!/bin/sh\necho "$@" > {said}; echo slot1@x')
    query.chmod(0o755)
    assert await LocalStartdAd(folders, settings(), update="true", query=str(query)).set({"A": 1})
    assert said.read_text().startswith("-direct Resource-A.pilot-7 ")


async def test_a_tool_that_hangs_is_ended(
    folders: Folders, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("k8spilot.condor.ads.startd_ad._TOOL_SECONDS", 0.2)
    assert not await slot(folders, "exec sleep 60").set({"A": 1})
    assert "did not answer within" in caplog.text


async def test_the_job_is_vacated_at_once_by_htcondors_own_tool(
    folders: Folders, caplog: pytest.LogCaptureFixture
) -> None:
    said, tool, query = folders.root / "said", folders.root / "tool", folders.root / "query"
    query.write_text('#!/bin/sh\necho \'[{"Name": "slot1@x", "JobId": "7.1"}]\'\n')
    tool.write_text(f'#!/bin/sh\necho "$@" >{said}\n')
    for program in (tool, query):
        program.chmod(0o755)
    ad = LocalStartdAd(folders, settings(), vacate=str(tool), query=str(query))
    assert await ad.vacate("7.1", "slot1")
    assert said.read_text() == "-fast\n"
    tool.write_text("#!/bin/sh\necho no; exit 1\n")
    assert not await ad.vacate("7.1", "slot1")
    assert not await LocalStartdAd(folders, settings(), vacate="/no/such/tool", query=str(query)).vacate("7.1", "slot1")
    assert "HTCondor could not be made to vacate the job: no" in caplog.text


async def test_of_several_slots_the_one_with_the_job_is_vacated(folders: Folders) -> None:
    said, tool, query = folders.root / "said", folders.root / "tool", folders.root / "query"
    query.write_text('#!/bin/sh\necho \'[{"Name": "slot1@x", "JobId": "7.1"}, {"Name": "slot2@x", "JobId": "7.1"}]\'\n')
    tool.write_text(f'#!/bin/sh\necho "$@" >{said}\n')
    for program in (tool, query):
        program.chmod(0o755)
    assert await LocalStartdAd(folders, settings(), vacate=str(tool), query=str(query)).vacate("7.1", "slot2")
    assert said.read_text() == "-fast slot2@x\n"


@pytest.mark.parametrize(
    "shown", ['[{"Name": "slot1@x", "JobId": "7.2"}]', '[{"Name": "slot2@x", "JobId": "7.1"}]', "[{}]", ""]
)
async def test_no_job_but_the_lost_one_is_vacated(folders: Folders, shown: str) -> None:
    said, tool, query = folders.root / "said", folders.root / "tool", folders.root / "query"
    query.write_text(f"#!/bin/sh\necho '{shown}'\n")
    tool.write_text(f'#!/bin/sh\necho "$@" >{said}\n')
    for program in (tool, query):
        program.chmod(0o755)
    assert not await LocalStartdAd(folders, settings(), vacate=str(tool), query=str(query)).vacate("7.1", "slot1")
    assert not said.exists()


async def test_docker_that_a_job_has_taken_away_comes_back(folders: Folders) -> None:
    said = folders.root / "said"
    ad = slot(folders, f'cat "$1" >> {said}')
    for log, line in (("StartLog", "OfflineUniverses = {}"), ("MasterLog", 'OfflineUniverses = {"Docker"}')):
        await ad.handle_line(log, line)
    assert not said.exists()
    await ad.handle_line("StartLog", '11/21/26 06:47:20.667 (pid:31) OfflineUniverses = {"Docker"}')
    assert said.read_text() == "HasDocker = true\n"


async def test_a_startd_that_follows_one_that_crashed_is_told_all_again(folders: Folders) -> None:
    said = folders.root / "said"
    ad = slot(folders, f'cat "$1" > {said}')
    line = "11/21/26 06:47:20.667 (pid:31) Initial update sent to collector(s)"
    await ad.handle_line("StartLog", line)
    assert not said.exists()
    for number in (1, 2):
        await ad.set({"Number": number})
    await ad.set({"Text": "it"})
    await ad.handle_line("StartLog", line)
    assert said.read_text() == 'Number = 2\nText = "it"\n'
