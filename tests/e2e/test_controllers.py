"""Pilots from a Deployment and from a Job: what the API server accepts, and who ends when there are to be fewer."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import yaml

from lab import jobs, pilot
from lab.api import Lab
from lab.settings import CHECKOUT, PILOT_NAMESPACE
from tests.e2e.pool import Pool, result, runs, until

HERE = ("-n", PILOT_NAMESPACE)


def overlay(lab: Lab, name: str, component: str) -> str:
    """A controller called `name` of the lab's pilots, rendered."""
    below = pilot.write_overlay(lab, f"{name}-pod", {"ACCEPT_IDLE_MINUTES": "0"})
    folder = below.with_name(name)
    folder.mkdir(exist_ok=True)
    changes = [{"op": "replace", "path": "/metadata/name", "value": name}, *pilot.label(lab)]
    text = {
        "namespace": PILOT_NAMESPACE,
        "resources": [os.path.relpath(below, folder)],
        "components": [os.path.relpath(CHECKOUT / "components" / component, folder)],
        "patches": [{"target": {"kind": component.capitalize()}, "patch": json.dumps(changes)}],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(text))
    return lab.kubectl("kustomize", str(folder))


@pytest.mark.parametrize("component", ["job", "deployment"])
def test_what_the_components_render_is_accepted(lab: Lab, owner: str, component: str) -> None:
    text = overlay(lab, f"e2e-{owner}-{component}", component)
    said = lab.kubectl("apply", "--dry-run=server", "-f", "-", input=text)
    assert f"e2e-{owner}-{component} created (server dry run)" in said


@pytest.fixture
def deployment(lab: Lab, owner: str) -> Iterator[str]:
    name = f"e2e-{owner}-scale"
    text = overlay(lab, name, "deployment")
    lab.kubectl("apply", "-f", "-", input=text)
    lab.kubectl("scale", "deployment", name, *HERE, "--replicas=2")
    yield name
    lab.kubectl("delete", "deployment", name, *HERE, "--wait=false", "--cascade=foreground")


def _pods(lab: Lab) -> list[dict[str, Any]]:
    query = ("get", "pods", *HERE, "-l", "k8spilot/deployment=pilots", "-o", "json")
    pods: list[dict[str, Any]] = json.loads(lab.kubectl(*query))["items"]
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


@pytest.mark.nightly
def test_a_deployment_that_is_scaled_down_keeps_the_busy_pilot_and_one_that_has_ended_lives_again(
    lab: Lab, deployment: str
) -> None:
    until(lambda: len(_pods(lab)) == 2, "there are two pods")
    first, second = (pod["metadata"]["name"] for pod in _pods(lab))
    for name in (first, second):
        jobs.wait_in_pool(lab, name)
    with ExitStack() as cleanup:
        busy = Pool(lab, second, cleanup)
        job = busy.shell("exec sleep 611")
        job.wait("ExecuteEvent")
        runs(busy, "sleep 611")
        # As a Job chooses, this pod would end: it has started its payload container again, and became ready last.
        lab.kubectl("scale", "deployment", deployment, *HERE, "--replicas=1")
        until(lambda: [pod["metadata"]["name"] for pod in _pods(lab)] == [second], "the idle pilot ends", 60)
        time.sleep(3)
        assert [line for line in busy.processes() if "sleep 611" in line]
        job.command("condor_rm")
        began = busy.of_slot("GLIDEIN_ToRetire")
        pilot.inside(lab, second, f"pkill -of {pilot.SUPERVISOR} || true")

        def again() -> bool:
            return busy.of_slot("GLIDEIN_ToRetire") not in ("", "undefined", began)

        until(again, "a new life has begun", 120)
        assert result(busy.shell("echo fine"), timeout=120).text == "fine\n"
