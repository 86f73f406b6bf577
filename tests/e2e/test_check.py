"""`k8spilot check`, beside a pilot that runs, and with manifests as operators render them."""

import json
import sys

import pytest

from lab.api import Lab
from lab.errors import LabError
from lab.settings import CHECKOUT, PILOT_NAMESPACE
from tests.e2e.pool import Pool

IN_THE_PILOT = ("exec", "-i", "-n", PILOT_NAMESPACE)
COMMAND = ("-c", "pilot", "--", "k8spilot", "check")


def test_a_pilot_that_runs_has_all_that_it_needs(pool: Pool) -> None:
    answer = json.loads(pool.lab.kubectl(*IN_THE_PILOT, pool.pod, *COMMAND, "--json"))
    wrong = [one for one in answer["findings"] if one["verdict"] != "good"]
    assert wrong == []
    assert answer["fit"] is True
    assert {one["check"] for one in answer["findings"]} == {
        "programs", "volumes", "space", "user", "API", "pod", "processes", "authority", "credentials", "settings",
        "images", "HTCondor", "registry", "pool",
    }  # fmt: skip


def test_the_image_has_the_python_version_of_the_tests(pool: Pool) -> None:
    version = pool.inside("/opt/k8spilot/bin/python -c 'import sys; print(*sys.version_info[:2])'").split()
    assert version == [str(sys.version_info.major), str(sys.version_info.minor)]


def test_what_is_wrong_is_told_to_people_with_exit_status_2(pool: Pool) -> None:
    asked = "CONDOR_HOST=127.0.0.1:1 K8SPILOT_VACATE_SECONDS=600 k8spilot check; echo status $?"
    *lines, verdict, status = pool.inside(asked).splitlines()
    assert [line for line in lines if line.startswith("FAULT") and "terminationGracePeriodSeconds" in line]
    assert [line for line in lines if line.startswith("FAULT") and "no collector" in line]
    assert (verdict, status) == ("not fit: 2 faults, no warnings", "status 2")


@pytest.mark.parametrize("overlay", ["overlays/example", "lab/overlay"])
def test_rendered_manifests_are_judged_without_a_cluster(pool: Pool, lab: Lab, overlay: str) -> None:
    text = lab.kubectl("kustomize", str(CHECKOUT / overlay))
    if overlay == "lab/overlay":  # the central manager comes in a layer above
        with pytest.raises(LabError, match="exit"):
            lab.kubectl(*IN_THE_PILOT, pool.pod, *COMMAND, "--manifest", "-", input=text)
        text = text.replace("GLIDEIN_Site: lab", "GLIDEIN_Site: lab\n  CONDOR_HOST: cm")
    else:  # as it is, it is of no site
        with pytest.raises(LabError, match="exit"):
            lab.kubectl(*IN_THE_PILOT, pool.pod, *COMMAND, "--manifest", "-", input=text)
        text = text.replace("example.org", "mine.test").replace("Example-", "My-")
    said = lab.kubectl(*IN_THE_PILOT, pool.pod, *COMMAND, "--manifest", "-", input=text)
    assert said.splitlines()[-1] == "fit: no faults, no warnings"
