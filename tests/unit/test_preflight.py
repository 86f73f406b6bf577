"""The checks before the first job, and `k8spilot check` in a pod: every fault is told, each in one sentence."""

import asyncio
import json
import os
import pwd
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import yaml
from aiohttp.test_utils import TestServer

from k8spilot.common.errors import PreflightError
from k8spilot.common.proc import Process, processes
from k8spilot.condor import credentials
from k8spilot.condor.daemons.collectors import Answer, Collectors
from k8spilot.condor.folders import Folders
from k8spilot.kube.client import Access
from k8spilot.preflight import checks, late_credentials
from k8spilot.preflight import cluster as cluster_checks
from k8spilot.preflight import pilot_container as container_checks
from k8spilot.preflight.finding import Finding, Verdict, faults_of, good
from k8spilot.preflight.pilot_container import version_finding
from k8spilot.preflight.report import as_json, as_lines
from k8spilot.settings import Settings
from tests.unit.pilot_container import ROOTS_STATUS, Here, Json

OWN = {"POD_NAME": "pilot", "POD_NAMESPACE": "pilots", "K8SPILOT_SERVICES": "engine"}


@pytest.fixture
async def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Here]:
    here = Here(tmp_path, monkeypatch)
    (tmp_path / "status").write_text(ROOTS_STATUS)
    monkeypatch.setattr(container_checks, "_STATUS", tmp_path / "status")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(credentials, "read", lambda *_: ({"token": b"x"}, {}))
    for name in list(os.environ):
        monkeypatch.delenv(name)
    async with _listening() as port, TestServer(here.cluster.app()) as server:
        here.environment["CONDOR_HOST"] = f"127.0.0.1:{port}"
        for name, value in here.environment.items():
            monkeypatch.setenv(name, value)
        url = str(server.make_url("")).rstrip("/")
        monkeypatch.setattr(checks, "Access", _Access(url))
        yield here


@asynccontextmanager
async def _listening() -> AsyncIterator[int]:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


class _Access:
    def __init__(self, url: str) -> None:
        self.url = url

    def in_cluster(self) -> Access:
        return Access(self.url)


async def faults() -> list[str]:
    """Sentences of what is wrong here, faults only."""
    return faults_of(await checks.check_all())


async def test_a_pilot_with_all_that_it_needs_may_start(here: Here) -> None:
    findings = await checks.check_all()
    assert [one for one in findings if one.verdict is not Verdict.GOOD] == []
    assert {one.check for one in findings} == {
        "programs", "volumes", "space", "user", "images", "API", "pod", "authority", "credentials", "settings",
        "HTCondor", "registry", "pool",
    }  # fmt: skip
    seen = await checks.check(Settings.from_environment())
    assert seen.version == "v1.36.3"
    assert seen.pod == here.cluster.pod


ROLE = yaml.safe_load((Path(__file__).parents[2] / "manifests/serviceAccount.yaml").read_text().split("---")[1])[
    "rules"
]
EVERYBODYS = [
    {"verbs": ["create"], "apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews"]},
    {"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]},
]
EXCESS: list[tuple[list[Json], str]] = [
    ([], ""),
    ([{"verbs": ["get"], "apiGroups": [""], "resources": ["nodes"]}], ""),
    ([{"verbs": ["patch"], "apiGroups": [""], "resources": ["pods/ephemeralcontainers"]}], ""),
    ([{"verbs": ["delete", "get"], "apiGroups": [""], "resources": ["pods"]}], "delete pods"),
    ([{"verbs": ["list", "get"], "apiGroups": [""], "resources": ["secrets"]}], "get/list secrets"),
    (
        [{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a", "b"]}],
        "get secrets named a,b",
    ),
    ([{"verbs": ["*"], "apiGroups": ["apps"], "resources": ["*"]}], "do everything to *.apps"),
    ([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}], "do everything to everything"),
    ([{"verbs": ["patch"], "apiGroups": ["other.example"], "resources": ["pods"]}], "patch pods.other.example"),
]


@pytest.mark.parametrize(("more", "words"), EXCESS, ids=[words or "nothing" for _, words in EXCESS])
async def test_rights_that_no_pilot_needs_are_told_in_a_sentence(
    here: Here, caplog: pytest.LogCaptureFixture, more: list[Json], words: str
) -> None:
    here.cluster.rules = [*EVERYBODYS, *ROLE, *more]
    seen = await checks.check(Settings.from_environment())
    await checks.report_verdict(None, seen.beyond)
    told = [one["message"] for one in here.cluster.events if one["reason"] == "MoreRights"]
    if not words:
        assert (seen.beyond, told) == ("", [])
        return
    assert f"a thief of its token could: {words}; bind only" in seen.beyond
    assert seen.beyond in caplog.text
    (message,) = told
    assert words in message


async def test_many_rights_are_not_all_told(here: Here) -> None:
    here.cluster.rules = [{"verbs": ["get"], "apiGroups": [""], "resources": [f"r{n:02}" for n in range(40)]}]
    seen = await checks.check(Settings.from_environment())
    assert "get r11, and 28 more;" in seen.beyond


@pytest.mark.parametrize(
    ("kept", "words"), [(True, "restricts it to its own pod"), (False, "no admission policy prevents changes")]
)
async def test_whether_a_policy_keeps_the_token_to_its_pod_is_told(here: Here, kept: bool, words: str) -> None:
    here.cluster.keeps_to_own_pod = kept
    (found,) = [one for one in await checks.check_all() if one.check == "authority"]
    assert (found.verdict, words in found.words) == (Verdict.GOOD, True)


async def test_a_setting_that_is_none_is_told_at_the_start_too(
    here: Here, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("K8SPILOT_VACATE_SECOND", "6")
    await checks.check(Settings.from_environment())
    assert "K8SPILOT_VACATE_SECOND is not a setting" in caplog.text


async def test_what_has_no_effect_is_an_event_beside_the_good_verdict(here: Here) -> None:
    for name in ("CVMFSEXEC_REPOS", "K8SPILOT_DEFAULT_IMGE"):
        here.patch.setenv(name, "x")
    await checks.check(Settings.from_environment())
    await checks.report_verdict(None)
    told = [(one["type"], one["message"]) for one in here.cluster.events if one["reason"] == "SettingIgnored"]
    assert [kind for kind, _ in told] == ["Warning", "Warning"]
    assert "a variable of OSPool's pilots, has no effect" in told[0][1]
    assert "misspelling of K8SPILOT_DEFAULT_IMAGE" in told[1][1]


async def test_a_limit_that_would_be_ignored_keeps_the_pilot_from_starting(here: Here) -> None:
    here.patch.setenv("ADDITIONAL_REQUIREMENTS", "TARGET.Owner == me")
    (fault,) = await faults()
    assert "put the expression into GLIDEIN_Start_Extra" in fault
    with pytest.raises(checks.NotFit) as caught:
        await checks.check(Settings.from_environment())
    assert not caught.value.lacks_credentials_only


async def test_a_pilot_without_credentials_waits_for_them_and_says_so(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise PreflightError("there is no credential for the pool")

    there = credentials.read
    monkeypatch.setattr(credentials, "read", none)

    async def come(*_: object) -> bool:
        assert [one["reason"] for one in here.cluster.events] == ["NotFit"]
        monkeypatch.setattr(credentials, "read", there)
        return True

    monkeypatch.setattr(late_credentials, "come", come)
    assert (await checks.check_and_wait(Settings.from_environment())).version


async def test_where_the_pilot_can_tell_nobody_that_it_waits_it_does_not(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise PreflightError("there is no credential for the pool")

    monkeypatch.setattr(credentials, "read", none)
    monkeypatch.setenv("K8SPILOT_SERVICES", "condor")
    with pytest.raises(checks.NotFit) as caught:
        await checks.check_and_wait(Settings.from_environment())
    assert caught.value.lacks_credentials_only


async def test_a_pilot_with_other_faults_does_not_wait(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    change_rights(here)

    def none(*_: object) -> None:
        raise PreflightError("there is no credential for the pool")

    monkeypatch.setattr(credentials, "read", none)
    with pytest.raises(checks.NotFit, match="2 faults"):
        await checks.check_and_wait(Settings.from_environment())


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        ("bin/condor_master", "condor_master is not on PATH"),
        ("bin/docker", "docker is not on PATH"),
        ("bin/skopeo", "skopeo is not on PATH"),
        ("bin/condor_version", "condor_version does not run"),
        ("exchange/bin/payload-init", "must run `k8spilot install`"),
        ("execute", "execute is missing"),
        ("tmp", "tmp is missing"),
    ],
)
async def test_what_the_container_lacks_is_told(here: Here, gone: str, words: str) -> None:
    (here.folder / gone).rename(here.folder / "away")
    (fault,) = await faults()
    assert words in fault


def change_rights(here: Here) -> None:
    here.cluster.rights -= {("pods", "watch"), ("pods", "patch")}


def change_status(status: int) -> Callable[[Here], None]:
    return lambda here: setattr(here.cluster, "status", status)


def set_variable(name: str, value: str) -> Callable[[Here], None]:
    return lambda here: here.patch.setenv(name, value)


FAULTS: list[tuple[Callable[[Here], object], str]] = [
    (change_rights, "may not watch, patch pods in the namespace pilots"),
    (change_status(401), "does not accept the pod's token"),
    (change_status(404), "there is no pod pilots/pilot; POD_NAME"),
    (change_status(500), "the pod pilots/pilot cannot be read: it says no"),
    (lambda here: setattr(here.cluster, "seconds_behind", 4000), r"clock is (4000|4001) s ahead of the API server's"),
    (lambda here: setattr(here.cluster, "seconds_behind", -4000), r"clock is (4000|3999) s behind the API server's"),
    (lambda here: (here.folder / "status").write_text("CapEff:\t00000000000000db\n"), "lacks the capabilities KILL;"),
    (set_variable("K8SPILOT_MIN_FREE_MB", "1000000000"), r"execute has \d+ MiB free, and 1000000000 MiB are needed"),
    (set_variable("K8SPILOT_PAYLOAD_UID", "54321"), "no account with the uid 54321"),
    (set_variable("GLIDEIN_Start_Extra", "((("), "GLIDEIN_Start_Extra is '(((', but it must be"),
    (set_variable("NUM_CPUS", "many"), "NUM_CPUS is 'many', but"),
]


@pytest.mark.parametrize(("change", "words"), FAULTS, ids=[words for _, words in FAULTS])
async def test_each_fault_of_the_surroundings_is_told(here: Here, change: Callable[[Here], object], words: str) -> None:
    change(here)
    told = await faults()
    assert [fault for fault in told if re.search(words.replace("(((", r"\(\(\("), fault)], told
    assert all(len(fault.splitlines()) == 1 for fault in told)


@pytest.mark.parametrize(
    ("services", "uid", "landlock", "more", "words"),
    [
        ("engine,condor", 65534, True, {}, "components/restricted"),
        ("condor", 65534, True, {}, ""),
        ("condor", 65534, False, {}, "has no Landlock"),
        ("condor", 65534, False, {"K8SPILOT_CONFINE_STARTER": "false"}, ""),
        ("condor", 47999, True, {}, "no account with the uid 47999"),
        ("engine", 47999, False, {}, ""),
    ],
)
async def test_a_pilot_that_is_not_root_needs_more(
    here: Here,
    monkeypatch: pytest.MonkeyPatch,
    services: str,
    uid: int,
    landlock: bool,
    more: dict[str, str],
    words: str,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(container_checks, "has_landlock", lambda: landlock)
    for name, value in {"K8SPILOT_SERVICES": services, **more}.items():
        monkeypatch.setenv(name, value)
    found = [one for one in await checks.check_all() if one.check == "user"]
    assert [words in one.words for one in found] == [True], found
    assert [one.verdict for one in found] == [Verdict.FAULT if words else Verdict.GOOD]


async def test_a_cluster_that_tells_no_version_is_good_enough(here: Here) -> None:
    here.cluster.secretive = True
    assert await faults() == []


async def test_an_unreachable_api_server_is_told(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "Access", _Access("http://127.0.0.1:1"))
    (fault,) = await faults()
    assert "http://127.0.0.1:1 cannot be reached" in fault


async def test_all_independent_faults_are_told_at_once(here: Here) -> None:
    change_rights(here)
    (here.folder / "tmp").rename(here.folder / "away")
    here.cluster.pod["spec"].update(shareProcessNamespace=False, automountServiceAccountToken=True)
    with pytest.raises(checks.NotFit, match=r"^4 faults: \(1\) .* is missing.*; \(2\) .*; \(4\)") as caught:
        await checks.check(Settings.from_environment())
    assert len(caught.value.faults) == 4
    await checks.report_verdict(caught.value)
    assert [(one["type"], one["reason"], one["message"]) for one in here.cluster.events] == [
        ("Warning", "NotFit", words) for words in caught.value.faults
    ]


async def test_a_payload_whose_processes_are_hidden_is_a_fault(
    here: Here, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    running = {"name": "payload", "containerID": "containerd://1", "state": {"running": {}}}
    here.cluster.pod["status"] = {"initContainerStatuses": [running]}
    process = tmp_path / "proc/7"
    process.mkdir(parents=True)
    status = "Name:\tUid:\t65534\t65534\t65534\t65534\nState:\tS (sleeping)\nPPid:\t0\nUid:\t{0}\t{0}\t{0}\t{0}\n"
    (process / "status").write_text(status.format(0))  # no name of a process is taken for its user
    monkeypatch.setattr(cluster_checks, "_VISIBLE_SECONDS", 0.5)
    monkeypatch.setattr(cluster_checks, "processes", partial(processes, tmp_path / "proc"))
    (fault,) = await faults()
    assert "no process of the container payload is visible" in fault
    (process / "status").write_text(status.format(65534))
    assert await faults() == []


async def test_a_payload_container_that_ended_a_moment_ago_hides_nothing(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = {"name": "payload", "containerID": "containerd://1", "state": {"running": {}}}
    ended = {**running, "state": {"terminated": {"exitCode": 0}}}
    here.cluster.pod["status"] = {"initContainerStatuses": [running]}

    def read() -> Iterator[Process]:
        here.cluster.pod["status"] = {"initContainerStatuses": [ended]}
        return iter(())

    monkeypatch.setattr(cluster_checks, "processes", read)
    assert await faults() == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            set_variable("CONDOR_HOST", "127.0.0.1:1"),
            "no collector of the pool is reachable: 127.0.0.1:1: nobody answers on port 1",
        ),
        (
            lambda here: (here.folder / "bin/skopeo").write_text("#!/bin/sh\necho no such host >&2; exit 1\n"),
            "no such host; give the pod network access to its images' registries",
        ),
        (lambda here: here.cluster.rights.discard(("events", "create")), "may not create events"),
        (set_variable("K8SPILOT_RELIST", "true"), "may not patch pods/resize in the namespace pilots"),
        (set_variable("PAYLOAD_DISK_MB", "1000000000"), "less than the 1000000000 MiB"),
        (set_variable("K8SPILOT_IDLE_AFTR", "5"), "K8SPILOT_IDLE_AFTR is not a setting"),
    ],
    ids=["pool", "registry", "events", "relist", "disk", "misspelt"],
)
async def test_what_a_pilot_can_do_without_is_a_warning(
    here: Here, change: Callable[[Here], object], words: str
) -> None:
    change(here)
    found = [one for one in await checks.check_all() if one.verdict is not Verdict.GOOD]
    assert [one.verdict for one in found] == [Verdict.WARNING]
    assert words in found[0].words


@pytest.mark.parametrize(("version", "number"), [("v1.35.4", 1), ("v1.36.0", 0), ("v1.37.2-eks-1", 0), ("", 0)])
def test_a_kubernetes_whose_kubelets_know_no_relist_on_demand_is_told(version: str, number: int) -> None:
    assert len(list(cluster_checks.relist_warnings(Settings.of({"K8SPILOT_RELIST": "true", **OWN}), version))) == number
    assert not list(cluster_checks.relist_warnings(Settings.of(OWN), version))


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ("$CondorVersion: 25.14.1 2026-09-01 $", Verdict.GOOD),
        ("$CondorVersion: 26.0.0 2027-01-01 $", Verdict.GOOD),
        ("$CondorVersion: 25.3.0 2025-10-01 $", Verdict.WARNING),
        ("$CondorVersion: 24.12.4 2025-08-01 $", Verdict.FAULT),
        ("sh: not found", Verdict.FAULT),
    ],
)
def test_htcondors_version_is_judged(said: str, verdict: Verdict) -> None:
    assert version_finding(said).verdict is verdict


async def test_good_preflight_checks_are_not_yet_fit_and_a_pilot_without_the_right_to_events_goes_on(
    here: Here,
) -> None:
    await checks.report_verdict(None)
    assert here.cluster.events == []
    here.cluster.rights.clear()
    await checks.report_verdict(None, "it may do more")


@pytest.mark.parametrize(
    ("answer", "verdict", "words"),
    [
        (Answer("cm", identity="pilot@pool (TOKEN)"), Verdict.GOOD, "cm takes this pilot's slot, as pilot@pool"),
        (Answer("cm", problem="cm does not authenticate this pilot"), Verdict.FAULT, "cm does not authenticate"),
    ],
)
async def test_a_check_in_a_pilot_asks_the_pool_whether_it_takes_the_slot(
    here: Here, monkeypatch: pytest.MonkeyPatch, answer: Answer, verdict: Verdict, words: str
) -> None:
    async def ping(_: Collectors) -> Answer:
        return answer

    monkeypatch.setattr(Collectors, "ping", ping)
    monkeypatch.setattr(Folders, "config", here.folder / "condor_config")
    assert "is reachable" in (await _pool_finding()).words, "HTCondor has no configuration yet"
    (here.folder / "condor_config").touch()
    found = await _pool_finding()
    assert (found.verdict, words in found.words) == (verdict, True)
    await checks.check(Settings.from_environment())  # the start does not end by it: the watch of the pool waits
    monkeypatch.setenv("CONDOR_HOST", "127.0.0.1:1")
    assert (found := await _pool_finding()).verdict is Verdict.FAULT
    assert "no collector of the pool is reachable" in found.words
    await checks.check(Settings.from_environment())


async def _pool_finding() -> Finding:
    (found,) = [one for one in await checks.check_all() if one.check == "pool"]
    return found


def test_the_account_of_the_jobs_is_there() -> None:
    assert pwd.getpwuid(65534).pw_name == "nobody"


def test_what_was_found_is_told_to_people_and_to_machines() -> None:
    findings = [good("pod", "fine"), Finding("rights", Verdict.FAULT, "none; add them")]
    assert as_lines(findings).splitlines() == [
        "good    pod     fine",
        "FAULT   rights  none; add them",
        "not fit: 1 fault, no warnings",
    ]
    assert json.loads(as_json(findings)) == {
        "fit": False,
        "findings": [
            {"check": "pod", "verdict": "good", "words": "fine"},
            {"check": "rights", "verdict": "fault", "words": "none; add them"},
        ],
    }
