"""The provisioner: pilots come when jobs wait, and go when none do."""

import json
import re
import time
from collections import Counter
from dataclasses import replace
from datetime import datetime

import pytest

from lab.factory import Factory, TemplateOf
from tests.e2e.pool import until
from tests.e2e.provisioner.pilots import IDLE_S, SMALL, Submit, alive, told

pytestmark = pytest.mark.usefixtures("fresh")


@pytest.mark.timeout(500)
def test_pilots_come_for_idle_jobs_and_go_when_there_are_none(site: Factory, submit: Submit) -> None:
    site.apply(SMALL)
    site.provisioner()
    assert alive(site) == []
    began = time.monotonic()
    waiting = submit("sleep 5", count=8)
    until(lambda: bool(alive(site)), "a pilot", 60)
    created = min(datetime.fromisoformat(pod["metadata"]["creationTimestamp"]).timestamp() for pod in site.pilots())
    most = 0
    for proc in range(8):
        while not any(event.proc == proc and event.kind == "JobTerminatedEvent" for event in waiting.events):
            waiting.look()
            most = max(most, len(alive(site)))
            assert time.monotonic() - began < 240
            time.sleep(0.5)
    assert most == 3, "as many as the limit allows"
    until(lambda: not alive(site), "all pilots have ended by themselves", IDLE_S + 40)
    assert {pod["status"]["phase"] for pod in site.pilots()} == {"Succeeded"}
    assert all(re.fullmatch(r"small-[a-z2-7]{5}-\d{8}-\d{4}-\d{3}", pod["metadata"]["name"]) for pod in site.pilots())
    submitted = min(event.at for event in waiting.events if event.kind == "SubmitEvent")
    assert created - submitted < 20, "the first turn after the submission creates pilots"


def test_jobs_that_no_template_can_run_are_told_with_the_expression(site: Factory, submit: Submit) -> None:
    """There are jobs of other stories in the pool: the largest numbers are named first."""
    site.apply(SMALL)
    site.provisioner()
    submit("true", count=50, request_memory="64G")
    submit("true", count=50, user="bob", requirements=f'TARGET.K8SNamespace == "{site.namespace}" && TARGET.Rack == 7')
    wanted = ("a job requests 1 CPU, 65536 MiB of memory", "Requirements of the jobs: TARGET.Rack == 7 is not true")

    def told_all() -> bool:
        reasons = [one["reason"] for one in site.status().get("unmatched", ())]
        return all(any(words in reason for reason in reasons) for words in wanted)

    until(told_all, "the reasons", 60)


@pytest.mark.landing
@pytest.mark.timeout(300)
def test_an_image_that_cannot_be_pulled_closes_its_template_and_is_told(site: Factory, submit: Submit) -> None:
    image = [
        {
            "op": "replace",
            "path": "/spec/jobTemplate/spec/template/spec/containers/0/image",
            "value": f"{site.lab.registry}/nothing:1",
        }
    ]
    install = [
        {
            "op": "replace",
            "path": "/spec/jobTemplate/spec/template/spec/initContainers/0/image",
            "value": f"{site.lab.registry}/nothing:1",
        }
    ]
    broken = TemplateOf("broken", {"max-pilots": "5", "max-pending": "2"}, patches=[*image, *install])
    site.apply(broken)
    submit("true", count=5)
    until(lambda: told(site, "broken").get("closure", {}).get("failures", 0) > 0, "the template is closed", 150)
    reason = told(site, "broken")["closure"]["reason"]
    assert "does not start: the container install waits" in reason
    assert len(alive(site)) == 2, "no more than two are pending"
    events = [one["message"] for one in site.events() if one["reason"] == "TemplateClosed"]
    assert any("does not start: the container install waits" in message for message in events)
    site.kubectl("delete", "cronjob", "broken")
    until(lambda: not alive(site), "its pilots go with it", 60)


def test_a_template_that_cannot_be_used_is_told_and_the_others_work(site: Factory, submit: Submit) -> None:
    wrong = TemplateOf("wrong", {"max-pilots": "many"})
    site.apply(SMALL, wrong)
    until(lambda: "wrong" in site.status().get("invalid", {}), "the fault", 60)
    assert "must be an integer" in site.status()["invalid"]["wrong"]
    submit("true").ended(timeout=120)
    site.kubectl("delete", "cronjob", "wrong")


@pytest.mark.landing
@pytest.mark.timeout(300)
def test_a_provisioner_that_is_killed_goes_on_and_makes_no_pilot_twice(site: Factory, submit: Submit) -> None:
    site.apply(SMALL)
    waiting = submit("sleep 8", count=6)
    until(lambda: bool(alive(site)), "a pilot", 60)
    site.kubectl("delete", "pod", site.provisioner(), "--grace-period=0", "--force")
    for proc in range(6):
        waiting.ended(proc, timeout=200)
        assert len(alive(site)) <= 3
    names = Counter(pod["metadata"]["name"] for pod in site.pilots())
    assert max(names.values()) == 1


@pytest.mark.landing
@pytest.mark.timeout(300)
def test_two_provisioners_at_once_make_no_more_pilots_than_one(site: Factory, submit: Submit) -> None:
    site.apply(replace(SMALL, annotations={**SMALL.annotations, "max-pilots": "9"}))
    site.kubectl("scale", "deployment", "k8spilot-provisioner", "--replicas=2")
    until(lambda: len(site.provisioners()) == 2, "two provisioners", 60)
    waiting = submit("sleep 20", count=3)
    for proc in range(3):
        waiting.ended(proc, timeout=200)
        assert len(site.pilots()) == 3
    site.kubectl("scale", "deployment", "k8spilot-provisioner", "--replicas=1")
    until(lambda: len(site.provisioners()) == 1, "one provisioner", 60)


def test_a_dry_run_prints_the_plan_and_changes_nothing(site: Factory, submit: Submit) -> None:
    site.apply(SMALL)
    name = site.provisioner()
    site.kubectl("annotate", "cronjob", "small", "k8spilot/max-pilots=0", "--overwrite")
    submit("true")
    printed = site.kubectl("exec", name, "--", "k8spilot", "provision", "--dry-run")
    assert "template small: 1 idle job matches" in printed
    assert "1 more pilot would have jobs: max-pilots (0) is reached" in printed
    until(lambda: told(site, "small").get("limit") == "max-pilots (0) is reached", "a turn with that limit", 60)
    shown = json.loads(site.kubectl("exec", name, "--", "k8spilot", "provision", "status", "--json"))
    assert shown["templates"]["small"]["limit"] == "max-pilots (0) is reached"
    assert not site.pilots()
