"""Attributes of the slot beside START: its life, its node, and how much of a job's image is there already."""

from pathlib import Path
from typing import Any

import pytest

from k8spilot.common.errors import SettingsError
from k8spilot.condor.ads.node_images import NodeImages, listed
from k8spilot.condor.ads.startd_ad import LocalStartdAd
from k8spilot.condor.configuration.values import render
from k8spilot.condor.folders import Folders
from k8spilot.kube.client import Access, Api
from k8spilot.kube.node import image_names
from k8spilot.model.reference import Reference
from k8spilot.settings import Settings
from tests.unit.condor_reads import STARTED, accepts, evaluated, parsed, settings, written


def docker(image: str) -> dict[str, Any]:
    return {"WantDocker": True, "DockerImage": image}


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("user/tool:3", "docker.io/user/tool:3"),
        ("docker://registry.example/a/b", "registry.example/a/b:latest"),
        ("registry.example:5000/a", "registry.example:5000/a:latest"),
        ("registry.example:5000/a:1.0", "registry.example:5000/a:1.0"),
        ("localhost/a", "localhost/a:latest"),
        (f"registry.example/a:1@sha256:{'0' * 64}", f"registry.example/a@sha256:{'0' * 64}"),
    ],
)
def test_a_jobs_image_has_one_name_however_it_is_written(tmp_path: Path, image: str, name: str) -> None:
    assert evaluated(tmp_path, docker(image), "K8SJobImageName", at=STARTED, slot={}) == name
    assert Reference.parse(image.removeprefix("docker://")).source == name


@pytest.mark.parametrize(
    ("there", "rank"),
    [
        ("registry.example/a:1,docker.io/library/busybox:latest", 1.0),
        ("docker.io/library/busybox:1", 0.5),
        (f"docker.io/library/busybox@sha256:{'0' * 64}", 0.5),
        ("docker.io/library/busybox2:latest,registry.example/docker.io/library/busybox:latest", 0.0),
        (None, 0.0),
    ],
)
def test_a_slot_ranks_a_job_by_what_the_node_has_of_its_image(tmp_path: Path, there: str | None, rank: float) -> None:
    slot = {} if there is None else {"K8SNodeImages": there}
    assert evaluated(tmp_path, docker("busybox"), "K8SJobImageRank", at=STARTED, slot=slot) == rank


def test_a_job_without_an_image_has_a_rank_all_the_same(tmp_path: Path) -> None:
    assert evaluated(tmp_path, {}, "K8SJobImageRank", at=STARTED, slot={"K8SNodeImages": "a"}) == 0.0


def test_the_nodes_images_are_listed_largest_first_as_far_as_there_is_space() -> None:
    digest = f"registry.example/b@sha256:{'0' * 64}"
    node = {"status": {"images": [{"names": [f"x@sha256:{'1' * 64}", "x:1", "x:2"]}, {"names": [digest]}, {}]}}
    assert image_names(node) == ["x:1", "x:2", digest]
    assert listed(["b", "a", "b", "with,comma"]) == "b,a"
    assert 4000 < len(listed(f"registry.example/image:{number}" for number in range(1000))) <= 4096


class Told(LocalStartdAd):
    """A slot's ad that remembers."""

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []

    async def set(self, attributes: Any) -> bool:
        self.said.append(dict(attributes))
        return True


async def test_an_image_that_was_bound_is_told_once() -> None:
    slot = Told()
    async with Api(Access("http://127.0.0.1:1")) as api:
        images = NodeImages(slot, api, "")
        for name in ("a", "b", "a"):
            await images.bound(Reference.parse(name))
    assert [one["K8SNodeImages"] for one in slot.said] == [
        "docker.io/library/a:latest",
        "docker.io/library/b:latest,docker.io/library/a:latest",
    ]


def test_the_life_of_a_pilot_may_be_a_part_of_an_hour(tmp_path: Path) -> None:
    text = written(accept_jobs_for_hours=0.02, retirement_hours=0.01, accept_idle_minutes=0.5)
    assert parsed(tmp_path, text, "GLIDEIN_ToRetire", "GLIDEIN_ToDie", "STARTD_NOCLAIM_SHUTDOWN") == {
        "GLIDEIN_ToRetire": str(STARTED + 72),
        "GLIDEIN_ToDie": str(STARTED + 108),
        "STARTD_NOCLAIM_SHUTDOWN": "30",
    }


def test_a_maximum_wall_time_shortens_the_time_in_which_jobs_are_taken(tmp_path: Path) -> None:
    text = written(glidein_max_walltime=36000, retirement_hours=4)
    assert parsed(tmp_path, text, "GLIDEIN_ToRetire", "GLIDEIN_ToDie", "GLIDEIN_Max_Walltime") == {
        "GLIDEIN_ToRetire": str(STARTED + 6 * 3600),
        "GLIDEIN_ToDie": str(STARTED + 36000),
        "GLIDEIN_Max_Walltime": "36000",
    }
    longer = written(glidein_max_walltime=10**6, accept_jobs_for_hours=1, retirement_hours=1)
    assert parsed(tmp_path, longer, "GLIDEIN_ToDie") == {"GLIDEIN_ToDie": str(STARTED + 7200)}


def test_a_maximum_wall_time_without_time_for_jobs_is_refused() -> None:
    environment = {
        "POD_NAME": "p", "POD_NAMESPACE": "n", "K8SPILOT_SERVICES": "engine", "GLIDEIN_Max_Walltime": "3600",
    }  # fmt: skip
    with pytest.raises(SettingsError, match=r"^RETIREMENT_HOURS \(24\) must be less than GLIDEIN_Max_Walltime"):
        Settings.of(environment)
    assert Settings.of({**environment, "RETIREMENT_HOURS": "0.5"}).life_seconds == 3600


def test_ospools_long_jobs_are_taken_while_there_is_time_for_them(tmp_path: Path) -> None:
    job = {**docker("busybox"), "ProjectName": "P", "JobDurationCategory": "Long"}
    pool: dict[str, Any] = {"pool": "ospool", "condor_host": None, "accept_jobs_for_hours": 336, "retirement_hours": 24}
    assert accepts(tmp_path, job, **pool)
    assert not accepts(tmp_path, job, at=STARTED + 321 * 3600, **pool)
    assert accepts(tmp_path, {**job, "JobDurationCategory": "Medium"}, at=STARTED + 321 * 3600, **pool)


def test_what_the_cluster_tells_is_advertised_if_it_is_plain(tmp_path: Path) -> None:
    known = settings(cluster="prod", pool="itb", condor_host=None)
    facts = {"K8SVersion": "v1.36.3", "K8SContainerRuntime": 'x"\nSTART = true', "K8SKubeletVersion": ""}
    text = render(known, Folders.of(known), started=STARTED, facts=facts)
    names = parsed(tmp_path, text, "STARTD_ATTRS")["STARTD_ATTRS"].split()
    assert {"K8SVersion", "K8SClusterName", "Is_ITB_Site", "OSG_HOST_KERNEL_VERSION", "SHM_AVAILABLE"} <= set(names)
    assert not {"K8SContainerRuntime", "K8SKubeletVersion", "GLIDEIN_Max_Walltime"} & set(names)
    assert parsed(tmp_path, text, "K8SVersion", "K8SClusterName") == {
        "K8SVersion": '"v1.36.3"',
        "K8SClusterName": '"prod"',
    }
