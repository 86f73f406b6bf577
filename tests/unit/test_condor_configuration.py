"""HTCondor's configuration, read by HTCondor's own parser (of its Python bindings) and evaluated with its ClassAds."""

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import classad2
import htcondor2  # noqa: F401 -- gives ClassAds the functions that HTCondor adds, as in its daemons
import pytest

from k8spilot.common.errors import SettingsError
from k8spilot.condor.configuration.classads import quoted
from k8spilot.condor.configuration.pools import resolve
from k8spilot.condor.configuration.values import machine_name, pod_of, render
from k8spilot.condor.folders import Folders
from k8spilot.model.reference import FILE_IMAGE
from k8spilot.settings.parsers import image_rules
from tests.unit.condor_reads import BROKERS, STARTED, accepts, evaluated, image, parsed, settings, written

DOCKER = {"WantDocker": True, "DockerImage": "busybox"}
CONTAINER = {"WantContainer": True, "WantDockerImage": True, "ContainerImage": "docker://busybox"}
SIF = {"WantContainer": True, "WantSIF": True, "ContainerImage": "/images/a.sif"}
SINGULARITY = {"SingularityImage": "docker://busybox"}

OTHER_UNIVERSES = {
    1: "standard", 7: "scheduler", 8: "mpi", 9: "grid", 10: "java", 11: "parallel", 12: "local", 13: "vm"
}  # fmt: skip
"""By number (condor_universe.h)."""


def test_htcondor_reads_what_was_meant(tmp_path: Path) -> None:
    values = parsed(
        tmp_path,
        written(memory=500, payload_disk_mb=10),
        "DAEMON_LIST",
        "NUM_CPUS",
        "MEMORY",
        "DISK",
        "MOUNT_UNDER_SCRATCH",
        "DEDICATED_EXECUTE_ACCOUNT_REGEXP",
        "EXECUTE",
        "SEC_DEFAULT_ENCRYPTION",
        "GLIDEIN_ToRetire",
        "GLIDEIN_ToDie",
        "WANT_HOLD_SUBCODE",
        "CATALOG_SPACE",
    )
    assert values == {
        "DAEMON_LIST": "MASTER, STARTD",
        "NUM_CPUS": "2",
        "MEMORY": "500",
        "DISK": "9216",
        "MOUNT_UNDER_SCRATCH": "None",
        "DEDICATED_EXECUTE_ACCOUNT_REGEXP": "None",
        "EXECUTE": "/var/lib/condor/execute/slot",
        "SEC_DEFAULT_ENCRYPTION": "REQUIRED",
        "GLIDEIN_ToRetire": str(STARTED + 336 * 3600),
        "GLIDEIN_ToDie": str(STARTED + 360 * 3600),
        "WANT_HOLD_SUBCODE": values["WANT_HOLD_SUBCODE"],
        "CATALOG_SPACE": "0",
    }
    assert "104" in values["WANT_HOLD_SUBCODE"]


def test_no_expression_depends_on_the_rank_of_the_elvis_operator() -> None:
    """HTCondor 23.9 and 25.14 read `a ?: b != c` in two ways, and a negotiator of either evaluates the slot's ad."""
    known = settings(payload_containers=4, slot_sizes="requested", payload_memory_mb=512)
    text = render(known, Folders.of(known), started=0, slot_users=["a", "b", "c", "d"])
    assert "?:" in text
    assert not re.findall(r'\?: *(?:"[^"]*"|[\w.]+) *(?:[!=<>*/%+-]|&&|\|\||is\b|isnt\b).*', text)


def test_a_partitionable_slot_has_as_many_dynamic_slots_as_the_pod_has_payload_containers(tmp_path: Path) -> None:
    known = settings(payload_containers=4, slot_sizes="requested", payload_memory_mb=512)
    text = render(known, Folders.of(known), started=0, slot_users=["a", "b", "c", "d"])
    names = ("NUM_SLOTS", "SLOT_TYPE_1", "SLOT_TYPE_1_PARTITIONABLE", "NUM_CPUS", "MEMORY", "START", "SLOT1_3_USER")
    found = parsed(tmp_path, text, *names, "STARTD.DAEMON_SHUTDOWN")
    assert [found[name] for name in names[:5]] == ["1", "100%", "True", "8", "2048"]
    assert "(MY.DSlotID ?: 0) <= 4 && (MY.NumDynamicSlots ?: 0) < 4" in found["START"]
    assert found["SLOT1_3_USER"] == "c"
    assert "PartitionableSlot =?= true && (NumDynamicSlots ?: 0) == 0" in found["STARTD.DAEMON_SHUTDOWN"]


def of_gpus(tmp_path: Path, sizes: str) -> dict[str, str]:
    """Return the settings that HTCondor reads for four payload containers, of which the last two have two GPUs each."""
    known = settings(
        payload_containers=4,
        gpu_containers=2,
        container_gpus=2,
        slot_sizes=sizes,
        payload_memory_mb=512,
        payload_cpus=2,
    )
    text = render(known, Folders.of(known), started=0, slot_users=["a", "b", "c", "d"])
    types = [name for number in (1, 2, 3) for name in (f"NUM_SLOTS_TYPE_{number}", f"SLOT_TYPE_{number}")]
    users = ("SLOT1_2_USER", "SLOT2_USER", "SLOT3_USER", "SLOT4_USER")
    names = ("NUM_SLOTS", "START", "K8SHoldJob", "STARTD.DAEMON_SHUTDOWN")
    return parsed(tmp_path, text, *names, *types, *users)


def test_each_payload_container_with_gpus_has_a_slot_of_its_own_beside_the_partitionable_slot(tmp_path: Path) -> None:
    found = of_gpus(tmp_path, "requested")
    assert found["NUM_SLOTS"] == "3"
    assert found["SLOT_TYPE_1"] == "cpus=4, memory=1024, disk=2/4, swap=2/4, GPUs=0"
    assert found["SLOT_TYPE_3"] == "cpus=2, memory=512, disk=1/4, swap=1/4, GPUs=2 : K8SPayload4 =?= true"
    assert [found[f"NUM_SLOTS_TYPE_{number}"] for number in (1, 2, 3)] == ["1", "1", "1"]
    assert [found[f"{name}_USER"] for name in ("SLOT1_2", "SLOT2", "SLOT3")] == ["b", "c", "d"]
    assert "(MY.DSlotID ?: 0) <= 2 && (MY.NumDynamicSlots ?: 0) < 2" in found["START"]
    assert "(MY.GPUs ?: 0) == 0 || (TARGET.RequestGPUs ?: 0) > 0" in found["START"]
    assert "MY.SlotID + 1" in found["K8SHoldJob"]
    for name in ("slot2", "slot3"):
        assert f'stringListMember({name}_State, "Unclaimed,Owner") isnt false' in found["STARTD.DAEMON_SHUTDOWN"]


def test_equal_slots_with_and_without_gpus_have_the_numbers_of_their_payload_containers(tmp_path: Path) -> None:
    found = of_gpus(tmp_path, "equal")
    assert (found["NUM_SLOTS"], found["NUM_SLOTS_TYPE_1"], found["NUM_SLOTS_TYPE_3"]) == ("4", "2", "1")
    assert found["SLOT_TYPE_1"] == "cpus=2, memory=512, disk=1/4, swap=1/4, GPUs=0"
    assert found["SLOT_TYPE_2"].endswith("GPUs=2 : K8SPayload3 =?= true")
    assert [found[f"{name}_USER"] for name in ("SLOT3", "SLOT4")] == ["c", "d"]
    assert "MY.SlotID +" not in found["K8SHoldJob"]


def test_jobs_are_told_the_size_of_the_slot_in_variables_that_programs_read(tmp_path: Path) -> None:
    found = parsed(tmp_path, written(), "STARTER_NUM_THREADS_ENV_VARS")
    threads = found["STARTER_NUM_THREADS_ENV_VARS"].split()
    assert {"OMP_NUM_THREADS", "GOMAXPROCS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS", "MC_CORES"} <= set(threads)
    assert len(threads) == len(set(threads))


def test_the_startd_knows_a_starters_address_after_three_seconds(tmp_path: Path) -> None:
    """Until then condor_ssh_to_job fails."""
    found = parsed(tmp_path, written(), "STARTER_INITIAL_UPDATE_INTERVAL", "STARTER_UPDATE_INTERVAL")
    assert list(found.values()) == ["3", "120"]


OVER = {"K8SHoldJob": "7.3", "K8SHoldReason": "too much", "K8SHoldSince": STARTED, "JobId": "7.3", "JobStart": STARTED}


@pytest.mark.parametrize(
    ("slot", "held"),
    [
        (OVER, True),
        ({**OVER, "JobId": "7.4"}, False),
        ({**OVER, "JobStart": STARTED + 1}, False),  # a job of another access point, with the same number
        ({"JobId": "7.3", "JobStart": STARTED}, False),
        ({}, False),
    ],
    ids=["the job", "another", "a later one", "no fault", "no job"],
)
def test_the_job_that_the_engine_names_is_held_and_no_other(tmp_path: Path, slot: dict[str, Any], held: bool) -> None:
    names = ("PREEMPT", "WANT_HOLD", "WANT_HOLD_REASON", "WANT_HOLD_SUBCODE")
    ad = classad2.ClassAd({**slot, "JobUniverse": 5})
    found = {}
    for name, text in parsed(tmp_path, written(), *names).items():
        ad[name] = classad2.ExprTree(text)
        value = ad.eval(name)
        found[name] = None if value == classad2.Value.Undefined else value
    assert found == dict(zip(names, (True, True, "too much", 104) if held else (False, False, None, None), strict=True))


def test_the_disk_that_a_slot_promises_leaves_headroom_below_the_kubelets_limit(tmp_path: Path) -> None:
    assert parsed(tmp_path, written(payload_disk_mb=4096), "DISK")["DISK"] == str(3686 * 1024)
    known = {"payload_disk_mb": 1000, "disk_headroom_percent": 25.0}
    assert parsed(tmp_path, written(**known), "DISK")["DISK"] == str(750 * 1024)


def test_a_pod_is_known_by_the_name_of_its_machine() -> None:
    for known in (settings(), settings(glidein_randomize_name=True)):
        assert pod_of(known, machine_name(known)) == "pilot-7"
    assert pod_of(settings(), "Other.pilot-8") == ""


@pytest.mark.parametrize("name", [".", "..", "pilot-7.", ".pilot-7", "a..b", "Pilot", "-a", "a_b", "a" * 254, ""])
def test_what_cannot_be_a_pods_name_is_none(name: str) -> None:
    resource = machine_name(settings()).removesuffix("pilot-7")
    assert pod_of(settings(), f"{resource}pilot-8.x") == "pilot-8.x"
    assert pod_of(settings(), f"{resource}{name}") == ""


def test_where_htcondor_is_not_root_nothing_of_a_users_runs_beside_it(tmp_path: Path) -> None:
    known = settings()
    text = render(known, Folders.of(known), started=STARTED, rootless=True)
    names = ("ENABLE_SSH_TO_JOB", "STARTER_DISABLE_USER_SUPPLIED_TRANSFER_PLUGINS", "FS_LOCAL_DIR", "STARTER_LOG")
    found = parsed(tmp_path, text, *names)
    assert list(found.values()) == ["False", "True", "/run/condor", "/var/log/condor/starter/StarterLog"]
    base = parsed(tmp_path, written(), *names)
    assert base["ENABLE_SSH_TO_JOB"] == "True"
    assert base["FS_LOCAL_DIR"] in ("None", "/tmp")


def test_the_operators_files_are_read_last(tmp_path: Path) -> None:
    (tmp_path / "drop-ins").mkdir()
    (tmp_path / "drop-ins/mine.conf").write_text("NUM_CPUS = 7\n")
    text = written().replace("/etc/condor/k8spilot.d", str(tmp_path / "drop-ins"))
    assert parsed(tmp_path, text, "NUM_CPUS") == {"NUM_CPUS": "7"}


def test_every_advertised_attribute_has_a_value(tmp_path: Path) -> None:
    text = written(pool="ospool", condor_host=None, osg_project_name="P")
    for names in parsed(tmp_path, text, "STARTD_ATTRS", "MASTER_ATTRS").values():
        for name, value in parsed(tmp_path, text, *names.split()).items():
            assert value != "None", name
            classad2.ExprTree(value)


@pytest.mark.parametrize("job", [DOCKER, CONTAINER, SINGULARITY], ids=["docker", "container", "singularity"])
def test_jobs_with_an_image_from_a_registry_are_taken(tmp_path: Path, job: dict[str, Any]) -> None:
    assert accepts(tmp_path, job)


@pytest.mark.parametrize(
    "job",
    [{}, *({**DOCKER, "JobUniverse": number} for number in OTHER_UNIVERSES), {**DOCKER, "ToolDaemonCmd": "gdb"}],
    ids=["plain", *OTHER_UNIVERSES.values(), "tool daemon"],
)
def test_jobs_that_would_run_in_the_pilot_container_are_not_taken(tmp_path: Path, job: dict[str, Any]) -> None:
    assert not accepts(tmp_path, job)


def test_plain_jobs_run_in_the_default_image(tmp_path: Path) -> None:
    assert accepts(tmp_path, {}, default_image="docker://rocky:9")
    assert image(tmp_path, {}, default_image="rocky:9") == "docker://rocky:9"


def test_the_default_image_may_depend_on_the_job_and_the_slot(tmp_path: Path) -> None:
    default = 'ifThenElse(TARGET.RequestGPUs > 0, "docker://cuda", ifThenElse(MY.HasDocker, undefined, "x"))'
    assert image(tmp_path, {"RequestGPUs": 1}, default_image=default) == "docker://cuda"
    assert accepts(tmp_path, {"RequestGPUs": 1}, default_image=default)
    assert not accepts(tmp_path, {"RequestGPUs": 0}, default_image=default)


@pytest.mark.parametrize("pattern", ["$", "$(HOME)", "\\\\\\\\x", "%"])
def test_no_character_of_a_default_image_means_anything_to_the_configuration(tmp_path: Path, pattern: str) -> None:
    default = f'strcat("docker://a:", {quoted(pattern)})'
    assert image(tmp_path, {}, default_image=default) == f"docker://a:{pattern}"


def test_a_default_image_that_cannot_be_parsed_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"K8SPILOT_DEFAULT_IMAGE is 'ifThenElse\('"):
        written(default_image="ifThenElse(")


@pytest.mark.parametrize("job", [SIF, {"SingularityImage": "/cvmfs/image"}, {"SingularityImage": "oras://a/b"}])
def test_jobs_whose_image_is_a_file_are_taken_to_be_held(tmp_path: Path, job: dict[str, Any]) -> None:
    assert accepts(tmp_path, job)
    assert image(tmp_path, job) == f"docker://{FILE_IMAGE}"


@pytest.mark.slow
@pytest.mark.parametrize("job", [SIF, {"SingularityImage": "/cvmfs/image"}, {"SingularityImage": "oras://a/b"}])
def test_jobs_whose_image_is_a_file_can_be_left_to_others(tmp_path: Path, job: dict[str, Any]) -> None:
    assert not accepts(tmp_path, job, unmapped_images="leave", default_image="docker://rocky:9")
    osg: dict[str, Any] = {"condor_host": None, "pool": "ospool"}
    assert not accepts(tmp_path, {**job, "ProjectName": "P"}, **osg)
    assert accepts(tmp_path, {**job, "ProjectName": "P"}, unmapped_images="hold", **osg)


RULES = r"""
^/cvmfs/singularity\.opensciencegrid\.org/(?<image>[^:]+)(:.*)?$ => docker://docker.io/\1\2
([^/]*)\.sif$ => docker://registry.example/site/\1; ^a$|b+\\\\$ => docker://registry.example/$(HOME)
"""


@pytest.mark.parametrize(
    ("file", "mapped"),
    [
        ("/cvmfs/singularity.opensciencegrid.org/htc/rocky:9", "docker.io/htc/rocky:9"),
        ("/cvmfs/singularity.opensciencegrid.org/htc/rocky", "docker.io/htc/rocky"),
        ("/images/a.sif", "registry.example/site/a"),
        ("osdf:///images/b.sif", "registry.example/site/b"),
        ("a", "registry.example/$(HOME)"),
        ("ab\\\\", "registry.example/$(HOME)"),
        ("/cvmfs/other/image", FILE_IMAGE),
        ("docker://own/image.sif", "own/image.sif"),
    ],
)
def test_images_that_are_files_become_what_the_operator_maps_them_to(tmp_path: Path, file: str, mapped: str) -> None:
    for job in (
        {"SingularityImage": file},
        {"WantContainer": True, "WantSIF": True, "ContainerImage": file},
        {"WantContainer": True, "WantSIF": True, "ContainerImage": "a.sif", "ContainerImageFullPath": file},
    ):
        assert image(tmp_path, job, image_map=image_rules(RULES)) == f"docker://{mapped}"
        assert accepts(tmp_path, job, image_map=image_rules(RULES), unmapped_images="leave") is (mapped != FILE_IMAGE)


@pytest.mark.parametrize(
    ("rules", "words"),
    [("( => docker://a", "regular expression: '\\('"), (r"a(?:b)(c) => docker://a/\3", "whose group")],
)
def test_a_rule_that_cannot_work_is_refused(rules: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        written(image_map=image_rules(rules))


@pytest.mark.parametrize("value", ["undefined", "error", "5", "1/0", "TARGET.x", '""'])
def test_whatever_a_job_names_it_gets_a_container(tmp_path: Path, value: str) -> None:
    named = image(tmp_path, {"SingularityImage": classad2.ExprTree(value)})
    assert named == f"docker://{FILE_IMAGE}"


def test_a_container_job_with_a_file_becomes_a_plain_job_and_one_with_docker_a_docker_job(tmp_path: Path) -> None:
    text = written()
    arguments = parsed(tmp_path, text, "K8SPILOT_HOOK_PREPARE_JOB_ARGS")["K8SPILOT_HOOK_PREPARE_JOB_ARGS"]
    answer = subprocess.run(
        ["sed", *shlex.split(arguments)], input="A = 1\nB = 2\n", capture_output=True, text=True, check=True
    ).stdout
    for job, container, docker in (
        (SIF, False, False),
        ({**SIF, "WantDockerImage": False}, False, False),
        (CONTAINER, True, True),
        (DOCKER, False, True),
        ({}, False, False),
    ):
        ad = classad2.ClassAd(job)
        ad.update(classad2.parseOne(answer))
        assert (ad.eval("WantContainer"), ad.eval("WantDocker")) == (container, docker)


@pytest.mark.parametrize(
    ("job", "names"),
    [
        ({**DOCKER, "DockerImage": "busybox"}, ["docker.io", "docker.io/library/busybox", ":latest"]),
        ({**DOCKER, "DockerImage": "index.docker.io/library/busybox"}, ["docker.io", "docker.io/library/busybox"]),
        ({**DOCKER, "DockerImage": "user/image:1.0"}, ["docker.io", "docker.io/user/image", ":1.0"]),
        ({**CONTAINER, "ContainerImage": "docker://10.0.0.1:5000/a/b"}, ["10.0.0.1:5000", "10.0.0.1:5000/a/b"]),
        ({**CONTAINER, "ContainerImage": "docker:registry.example/a"}, ["registry.example", "registry.example/a"]),
        ({"SingularityImage": "docker://registry.example/a"}, ["registry.example", "registry.example/a", ":latest"]),
        ({}, ["default.example", "default.example/a", ":latest"]),
    ],
)
def test_jobs_of_an_avoided_image_are_not_taken_for_a_while(
    tmp_path: Path, job: dict[str, Any], names: list[str]
) -> None:
    def taken(avoided: str, until: int | None) -> bool:
        slot = {"K8SAvoidedImages": avoided, **({} if until is None else {"K8SAvoidUntil": until})}
        return accepts(tmp_path, job, slot=slot, default_image="docker://default.example/a")

    assert accepts(tmp_path, job, default_image="docker://default.example/a")
    assert taken("other.example,docker.io/library,docker.io/user,registry.example/b", STARTED + 60)
    registry, repository, *tag = names
    for name in (registry, repository, *(repository + one for one in tag)):
        assert not taken(f"other.example,{name}", STARTED + 60)
        assert taken(name, STARTED - 1)
        assert taken(name, None)


def test_a_slot_that_is_a_black_hole_says_so_and_opens_by_itself(tmp_path: Path) -> None:
    for until, is_one in ((None, False), (STARTED + 60, True), (STARTED - 1, False)):
        slot = {} if until is None else {"K8SBlackHoleUntil": until}
        assert evaluated(tmp_path, DOCKER, "IsBlackHole", at=STARTED, slot=slot) is is_one
        assert accepts(tmp_path, DOCKER, slot=slot) is not is_one


def test_without_the_engine_no_job_is_taken(tmp_path: Path) -> None:
    assert not accepts(tmp_path, DOCKER, slot={"HasDocker": False})


@pytest.mark.parametrize(("network", "taken"), [("bridge", True), ("host", True), ("mine", False), (5, False)])
def test_jobs_for_another_network_are_not_taken(tmp_path: Path, network: object, taken: bool) -> None:
    # Their starter would take docker off the machine.
    assert accepts(tmp_path, {**DOCKER, "DockerNetworkType": network}) is taken


@pytest.mark.parametrize("attribute", ["Arguments", "Args", "Environment", "Env", "ProcId", "ClusterId", "In", "Out"])
def test_what_differs_for_each_job_of_a_cluster_is_not_asked_for(attribute: str) -> None:
    # It would be a significant attribute of the whole pool, which could group no jobs for matchmaking any more.
    assert not re.search(rf"TARGET\.{attribute}\b", written())


def test_no_job_is_taken_after_the_accepting_hours(tmp_path: Path) -> None:
    assert accepts(tmp_path, DOCKER, accept_jobs_for_hours=1, at=STARTED + 3599)
    assert not accepts(tmp_path, DOCKER, accept_jobs_for_hours=1, at=STARTED + 3601)


def test_sites_are_chosen_and_avoided_by_their_name(tmp_path: Path) -> None:
    assert accepts(tmp_path, {**DOCKER, "DESIRED_Sites": "Other,Site (A)"})
    assert not accepts(tmp_path, {**DOCKER, "DESIRED_Sites": "Other"})
    assert not accepts(tmp_path, {**DOCKER, "UNDESIRED_Sites": "Site (A)"})


@pytest.mark.slow
def test_the_operators_own_conditions_count(tmp_path: Path) -> None:
    mine = {**DOCKER, "Owner": "alice", "ProjectName": "P"}
    assert accepts(tmp_path, mine, glidein_start_extra='TARGET.Owner == "alice"', osg_project_name="P")
    assert not accepts(tmp_path, mine, glidein_start_extra='TARGET.Owner == "bob"')
    assert not accepts(tmp_path, mine, osg_project_name="Q")


@pytest.mark.parametrize("condition", ['TARGET.Group == "mine"', "TARGET.Group", '!(TARGET.Group == "other")', "1 / 0"])
def test_a_condition_on_what_a_job_lacks_takes_no_job(tmp_path: Path, condition: str) -> None:
    assert not accepts(tmp_path, DOCKER, glidein_start_extra=condition)


def test_an_expression_that_cannot_be_parsed_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"GLIDEIN_Start_Extra is .*true\) \|\| \(true"):
        written(glidein_start_extra="true) || (true")


def test_ospool_wants_projects_and_keeps_test_jobs_out(tmp_path: Path) -> None:
    job = {**DOCKER, "ProjectName": "P"}
    ospool: dict[str, Any] = {"condor_host": None, "pool": "ospool"}
    assert accepts(tmp_path, job, **ospool)
    assert not accepts(tmp_path, DOCKER, **ospool)
    assert not accepts(tmp_path, {**job, "ITB_Sites": True}, **ospool)


def test_a_pool_without_a_name_is_a_host_that_is_its_own_broker() -> None:
    pool = resolve(settings(condor_host=None, pool="cm.school.example:9619"))
    assert (pool.condor_host, pool.collector_host) == ("cm.school.example:9619",) * 2
    assert pool.ccb_address == "$(COLLECTOR_HOST)"
    assert not pool.is_osg


def test_condor_host_has_priority_over_pool() -> None:
    assert resolve(settings(condor_host="cm.example", pool="ospool")).condor_host == "cm.example"


def test_brokers_can_be_left_out() -> None:
    assert resolve(settings(use_ccb=False)).ccb_address == ""
    assert resolve(settings(use_ccb=False, condor_host=None, pool="ospool")).ccb_address == ""


def test_pods_spread_over_a_range_of_brokers_and_stay_with_theirs() -> None:
    def broker(uid: int) -> str:
        return resolve(settings(pod_uid=f"{uid}", ccb_range_low=9000, ccb_range_high=9000 + BROKERS - 1)).ccb_address

    assert {broker(uid) for uid in range(200)} == {f"cm.example:{9000 + n}" for n in range(BROKERS)}
    assert broker(1) == broker(1)


def test_the_machine_is_named_after_resource_and_pod() -> None:
    assert machine_name(settings()) == "Resource-A.pilot-7"
    assert machine_name(settings(glidein_randomize_name=True)) == "Resource-A.0b5d9a6e1c.pilot-7"


def test_gpus_are_what_the_engine_says_and_never_what_the_pilot_container_sees(tmp_path: Path) -> None:
    names = ("MACHINE_RESOURCE_INVENTORY_GPUs", "ENVIRONMENT_FOR_AssignedGPUs", "ENVIRONMENT_VALUE_FOR_UnAssignedGPUs")
    found = parsed(tmp_path, written(), *names)
    assert found[names[0]] == str(Folders.of(settings()).gpus)
    assert "CUDA_VISIBLE_DEVICES" in found[names[1]]
    assert found[names[2]] == "10000"
