"""Settings: what an operator writes into the environment, and the sentence that a mistake gets."""

import os
from pathlib import Path

import pytest

from k8spilot.common.errors import SettingsError
from k8spilot.settings import Settings

ENOUGH = {
    "POD_NAME": "pilot",
    "POD_NAMESPACE": "pilots",
    "GLIDEIN_Site": "Site",
    "GLIDEIN_ResourceName": "Resource",
    "CONDOR_HOST": "cm.example",
    "PAYLOAD_CPUS": "2",
    "PAYLOAD_MEMORY_MB": "1024",
}


def read(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Settings:
    """Read settings from an environment with `variables` beside what is needed."""
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name, value in {**ENOUGH, **variables}.items():
        monkeypatch.setenv(name, value)
    return Settings.from_environment()


def test_a_manifest_that_says_what_is_needed_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read(monkeypatch)
    assert settings.services == ("engine", "condor")
    assert settings.socket == Path("/run/k8spilot/docker.sock")
    assert settings.scratch_folders == (Path("/k8spilot-payload/tmp"), Path("/k8spilot-payload/var-tmp"))
    assert (settings.payload_cpus, settings.payload_memory_mb) == (2, 1024)


def test_the_projects_own_variables_have_a_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read(
        monkeypatch, K8SPILOT_SOCKET="/a.sock", SOCKET="/b.sock", EXECUTE="/c", K8SPILOT_SCRATCH_FOLDERS="/x,/y"
    )
    assert settings.socket == Path("/a.sock")
    assert settings.execute == Path("/var/lib/condor/execute")
    assert settings.scratch_folders == (Path("/x"), Path("/y"))


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, NUM_CPUS="", K8SPILOT_DEFAULT_IMAGE="").num_cpus is None


def test_the_engine_alone_needs_no_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read(monkeypatch, K8SPILOT_SERVICES="engine", CONDOR_HOST="", GLIDEIN_Site="", PAYLOAD_CPUS="")
    assert settings.services == ("engine",)


def test_hosts_may_be_separated_by_commas_and_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, CONDOR_HOST="a:9618, b [::1]:9618").condor_host == "a:9618,b,[::1]:9618"


def test_a_default_image_needs_no_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, K8SPILOT_DEFAULT_IMAGE="rocky:9").default_image == "docker://rocky:9"


def test_the_token_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read(monkeypatch, TOKEN="secret-token")  # noqa: S106
    assert "secret-token" not in repr(settings)
    assert settings.token == "secret-token"  # noqa: S105


@pytest.mark.parametrize("name", ["POD_NAME", "GLIDEIN_Site", "GLIDEIN_ResourceName", "CONDOR_HOST", "PAYLOAD_CPUS"])
def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with pytest.raises(SettingsError, match=f"{name}.* must be set"):
        read(monkeypatch, **{name: ""})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GLIDEIN_Site", 'a"b'),
        ("GLIDEIN_Site", "a\nSTART = true"),
        ("GLIDEIN_ResourceName", "$(TOKEN)"),
        ("GLIDEIN_ResourceName", "a'b"),
        ("OSG_PROJECT_NAME", "a\\"),
        ("GLIDEIN_Start_Extra", "true \\"),
        ("GLIDEIN_Start_Extra", "true\nSTART = true"),
        ("CONDOR_HOST", "a; b"),
        ("K8SPILOT_DEFAULT_IMAGE", "x\ny"),
        ("K8SPILOT_IMAGE_MAP", "/cvmfs/a"),
        ("K8SPILOT_IMAGE_MAP", "/cvmfs/a => /images/b"),
        ("K8SPILOT_UNMAPPED_IMAGES", "run"),
        ("K8SPILOT_EXECUTE", "/a b"),
        ("K8SPILOT_EXECUTE", "execute"),
        ("NUM_CPUS", "two"),
        ("NUM_CPUS", "0"),
        ("MEMORY", "1Gi"),
        ("ACCEPT_JOBS_FOR_HOURS", "-1"),
        ("CCB_RANGE_LOW", "99999"),
        ("K8SPILOT_SERVICES", "engine,docker"),
        ("K8SPILOT_SERVICES", ","),
        ("K8SPILOT_PAYLOAD_UID", "0"),
        ("K8SPILOT_LOG_LEVEL", "loud"),
        ("GLIDEIN_RANDOMIZE_NAME", "perhaps"),
    ],
)
def test_a_bad_value_is_refused_by_one_sentence_with_its_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        read(monkeypatch, **{name: value})
    assert str(caught.value).startswith(f"{name} is ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("NUM_CPUS", "0", "an integer of at least 1"),
        ("NUM_CPUS", "1.5", "an integer of at least 1"),
        (
            "PAYLOAD_CPUS",
            "0",
            "an integer of at least 1; set resources.limits.cpu and .memory of the container payload",
        ),
        ("K8SPILOT_METRICS_PORT", "65536", "an integer from 0 to 65535"),
        ("ACCEPT_JOBS_FOR_HOURS", "0", "a number above 0"),
        ("ACCEPT_JOBS_FOR_HOURS", "inf", "a number above 0"),
        ("RETIREMENT_HOURS", "nan", "a number of at least 0"),
        ("USE_CCB", "perhaps", "true or false"),
        ("K8SPILOT_SERVICES", "engine,", "engine or condor"),
    ],
)
def test_the_sentence_says_what_is_allowed(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, allowed: str
) -> None:
    with pytest.raises(SettingsError, match=f"^{name} is '{value}', but it must be {allowed}$"):
        read(monkeypatch, **{name: value})


def test_all_faults_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match=r"NUM_CPUS is .*; MEMORY is "):
        read(monkeypatch, NUM_CPUS="two", MEMORY="1Gi")


@pytest.mark.parametrize(("text", "value"), [("no", False), ("0", False), ("True", True), ("on", True)])
def test_yes_and_no_have_many_words(monkeypatch: pytest.MonkeyPatch, text: str, value: bool) -> None:
    assert read(monkeypatch, USE_CCB=text).use_ccb is value


def test_a_range_of_brokers_has_two_ends_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="must be set together"):
        read(monkeypatch, CCB_RANGE_LOW="9000")
    with pytest.raises(SettingsError, match="must not be above"):
        read(monkeypatch, CCB_RANGE_LOW="9001", CCB_RANGE_HIGH="9000")
