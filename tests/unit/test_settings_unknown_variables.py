"""Variables that have no effect: each one that another pilot knows, and each misspelling, gets a sentence."""

import pytest

from k8spilot.common.errors import SettingsError
from k8spilot.settings import Settings, variables
from k8spilot.settings.other_pilots import OTHER_VARIABLES
from k8spilot.settings.unknown_variables import ineffective
from tests.unit.test_settings import ENOUGH

OSPOOL = (
    "NUM_CPUS", "MEMORY", "CVMFSEXEC_REPOS", "CVMFS_HTTP_PROXY", "CVMFS_QUOTA_LIMIT", "CVMFSEXEC_DEBUG",
    "ACCEPT_JOBS_FOR_HOURS", "RETIREMENT_HOURS", "ACCEPT_IDLE_MINUTES", "OSG_PROJECT_NAME", "SINGULARITY_BIND_EXTRA",
    "SINGULARITY_DISABLE_PID_NAMESPACES", "GLIDEIN_Start_Extra", "GLIDEIN_RANDOMIZE_NAME", "ENABLE_REMOTE_SYSLOG",
    "ITB", "APPTAINER_REGISTRY_MIRROR", "EXTRA_JOB_ENV", "POOL", "TOKEN", "GLIDEIN_Site", "GLIDEIN_ResourceName",
    "GARBAGE_COLLECTION", "SYSLOG_HOST", "REGISTRY_HOST", "CONDOR_HOST", "CCB_RANGE_LOW", "CCB_RANGE_HIGH",
    "OSG_SQUID_LOCATION", "OSG_DEFAULT_CONTAINER_DISTRIBUTION", "OSG_DEFAULT_CONTAINER_DISTRIBUTION_GPU",
    "SUPERVISORD_RESTART_POLICY",
)  # fmt: skip
"""Variables that opensciencegrid/osgvo-docker-pilot reads (Dockerfile, sbin/entrypoint.sh, 10-setup-htcondor.sh)."""
PRP = (
    "NUM_CPUS", "MEMORY", "DISK", "NUM_GPUS", "PHYSICAL_HOSTNAME", "K8S_NAMESPACE", "K8S_DOMAIN",
    "K8S_PROVISIONER_NAME", "K8S_PROVISIONER_TYPE", "FORCE_K8SNAMESPACE_MATCHING", "ADDITIONAL_REQUIREMENTS",
    "CONDOR_HOST", "CONDOR_SERVICE_HOST", "USE_POOL_PASSWORD", "STARTD_NOCLAIM_SHUTDOWN", "MASTER_PEACEFUL_SHUTDOWN",
    "NVIDIA_SYMLINK", "HTCONDOR_AUTO_SHUTDOWN", "OS_IMAGE", "CCB_ADDRESS", "OWNER_ONLY", "SLOT_USER", "HTCONDOR_USER",
    "NODE_DOMAIN",
)  # fmt: skip
"""Variables that sfiligoi/prp-htcondor-portal and prp-htcondor-pool read in their worker nodes."""


def words(name: str, value: str = "x") -> str:
    """Return the message about one variable; empty if there is none."""
    found = ineffective({name: value})
    assert len(found) < 2
    return found[0].words if found else ""


@pytest.mark.parametrize("name", sorted({*OSPOOL, *PRP}))
def test_every_name_of_other_pilots_is_a_setting_or_is_told(name: str) -> None:
    assert (name in variables()) is not bool(words(name))


def test_no_setting_is_called_ineffective() -> None:
    spellings = [spelling for name in variables() for spelling in (name, name.lower(), name.upper())]
    assert [name for name in spellings if words(name)] == []
    assert {name.lower() for name in OTHER_VARIABLES} & {name.lower() for name in variables()} == set()


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("K8SPILOT_DEFAULT_IMGE", "K8SPILOT_DEFAULT_IMAGE"),
        ("K8SPILOT_IDLE_AFTR", "K8SPILOT_IDLE_AFTER_SECONDS"),
        ("K8SPILOT_POOL", "POOL"),
        ("DEFAULT_IMAGE", "K8SPILOT_DEFAULT_IMAGE"),
        ("ACCEPT_JOBS_FOR_HOUR", "ACCEPT_JOBS_FOR_HOURS"),
        ("NUM_CPU", "NUM_CPUS"),
        ("MEMROY", "MEMORY"),
        ("GLIDEIN_RESOURCE_NAME", "GLIDEIN_ResourceName"),
        ("CVMFSEXEC_REPO", "CVMFSEXEC_REPOS, which has no effect here"),
    ],
)
def test_a_misspelt_name_gets_the_right_one(name: str, right: str) -> None:
    assert f"is probably a misspelling of {right}" in words(name)


@pytest.mark.parametrize(
    "name",
    ["PATH", "TMPDIR", "HOSTNAME", "POD_IP", "NODE_IP", "LANG", "CONDOR_CONFIG", "KUBERNETES_SERVICE_HOST",
     "K8SPILOT_SERVICE_HOST", "POOL_SERVICE_PORT", "_CONDOR_START", "NVIDIA_VISIBLE_DEVICES", "K8SPILOT_ENGINE_DEATHS"],
)  # fmt: skip
def test_other_variables_of_a_container_are_no_ones_business(name: str) -> None:
    assert words(name) == ""


def test_a_name_of_the_family_that_is_like_no_other_is_told_too() -> None:
    assert "GLIDEIN_Frobnicate is not a setting of this k8spilot" in words("GLIDEIN_Frobnicate")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CVMFSEXEC_REPOS", ""),
        ("CVMFSEXEC_DEBUG", "False"),
        ("NUM_GPUS", "0"),
        ("ENABLE_REMOTE_SYSLOG", "no"),
        ("FORCE_K8SNAMESPACE_MATCHING", "no"),
        ("GLIDEIN_Start", "True"),
        ("GARBAGE_COLLECTION", "1"),
    ],
)
def test_a_value_that_asks_for_nothing_is_not_told(name: str, value: str) -> None:
    assert words(name, value) == ""


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("ADDITIONAL_REQUIREMENTS", "GLIDEIN_Start_Extra"),
        ("FORCE_K8SNAMESPACE_MATCHING", "GLIDEIN_Start_Extra"),
        ("OWNER_ONLY", "GLIDEIN_Start_Extra"),
        ("GLIDEIN_Start", "GLIDEIN_Start_Extra"),
        ("SINGULARITY_IMAGE_RESTRICTIONS", "K8SPILOT_ALLOWED_IMAGES"),
        ("GLIDEIN_Start_Extr", "GLIDEIN_Start_Extra, which limits the pilot"),
        ("K8SPILOT_ALOWED_IMAGES", "K8SPILOT_ALLOWED_IMAGES, which limits the pilot"),
        ("ADDITIONAL_REQUIREMENT", "ADDITIONAL_REQUIREMENTS"),
    ],
)
def test_a_limit_that_would_be_ignored_is_refused(name: str, remedy: str) -> None:
    (found,) = ineffective({name: "x"})
    assert found.refused
    assert remedy in found.words


def test_values_are_not_repeated() -> None:
    assert "s3cret" not in words("OSG_TOKEN", "s3cret") + words("TOKENS", "s3cret")


def test_case_does_not_count() -> None:
    assert Settings.of({**ENOUGH, "GLIDEIN_START_EXTRA": 'TARGET.Owner == "a"'}).glidein_start_extra


def test_two_spellings_of_one_setting_must_agree() -> None:
    same = {"GLIDEIN_START_EXTRA": "true", "GLIDEIN_Start_Extra": "true"}
    assert Settings.of({**ENOUGH, **same}).glidein_start_extra == "true"
    with pytest.raises(
        SettingsError, match=r"GLIDEIN_START_EXTRA and GLIDEIN_Start_Extra are the same .* keep GLIDEIN_"
    ):
        Settings.of({**ENOUGH, **same, "GLIDEIN_START_EXTRA": "false"})


@pytest.mark.parametrize("pool", ["opsool", "OSPool", "path_facility", "cm", "a.example,cm", "a b", ""])
def test_a_pool_that_is_unknown_and_no_host_name_is_a_fault(pool: str) -> None:
    environment = {**ENOUGH, "CONDOR_HOST": "", "POOL": pool}
    with pytest.raises(SettingsError, match="POOL"):
        Settings.of(environment)


def test_a_misspelt_pool_gets_the_right_one() -> None:
    with pytest.raises(SettingsError, match=r"POOL is 'opsool', but .*; did you mean ospool\?"):
        Settings.of({**ENOUGH, "POOL": "opsool"})


@pytest.mark.parametrize(
    "pool", ["cm.example.org", "cm:9618", "10.1.2.3", "[fd00::1]:9618", "a.example, b.example:9619"]
)
def test_a_central_managers_host_is_a_pool(pool: str) -> None:
    assert Settings.of({**ENOUGH, "POOL": pool}).pool


def test_itb_contradicts_the_production_pool_by_its_name() -> None:
    with pytest.raises(SettingsError, match="contradict each other"):
        Settings.of({**ENOUGH, "CONDOR_HOST": "", "POOL": "prod-ospool", "ITB": "true"})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A=1", [("A", "1")]),
        ("A=1  B='two words'", [("A", "1"), ("B", "two words")]),
        ("A='it''s' B=x'y z'w", [("A", "it's"), ("B", "xy zw")]),
        ("A='' B=", [("A", ""), ("B", "")]),
        ("A=$(TOKEN)", [("A", "$(TOKEN)")]),
        (" ", []),
    ],
)
def test_a_jobs_environment_is_in_htcondors_syntax(text: str, found: list[tuple[str, str]]) -> None:
    assert list(Settings.of({**ENOUGH, "EXTRA_JOB_ENV": text}).extra_job_env) == found


@pytest.mark.parametrize("text", ["A", "1A=x", "A='x", 'A="x"', "A=x\nSTART=true", "A=1;B=2 C", "=x"])
def test_another_syntax_of_a_jobs_environment_is_a_fault(text: str) -> None:
    with pytest.raises(SettingsError, match="EXTRA_JOB_ENV is "):
        Settings.of({**ENOUGH, "EXTRA_JOB_ENV": text})


def test_a_variable_of_another_program_that_looks_like_a_limit_is_told_and_not_refused() -> None:
    (other,) = ineffective({"PROJECT_NAME": "x"})
    assert "OSG_PROJECT_NAME" in other.words
    assert not other.refused
    (meant,) = ineffective({"OSG_PROJEKT_NAME": "x"})
    assert meant.refused
