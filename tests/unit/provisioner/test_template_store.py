"""The templates that pilots are made from are those that the last plan has seen."""

import time
from typing import Any

from kubernetes.aio import client

from k8spilot.provisioner.cluster import NamespaceClient
from k8spilot.provisioner.controller import postpone
from k8spilot.provisioner.planning.plan import TemplatePlan, TurnPlan
from k8spilot.provisioner.templates.store import TemplateStore
from tests.unit.provisioner.world import template


def cron_job(version: int) -> dict[str, Any]:
    """A CronJob with a template without containers: it is read all the same."""
    pod: dict[str, Any] = {"metadata": {}, "spec": {"containers": []}}
    return {
        "kind": "CronJob",
        "metadata": {"name": "cpu", "uid": "1b4e28ba", "resourceVersion": str(version), "annotations": {}},
        "spec": {"suspend": True, "jobTemplate": {"spec": {"template": pod}}},
    }


async def test_a_template_that_changes_during_a_turn_makes_no_pilots_before_the_next_one() -> None:
    store = TemplateStore(NamespaceClient(client.ApiClient(), "pilots"), "cm.example.org")
    store.objects["cpu"] = cron_job(1)
    assert store.current == {}
    await store.refresh(time.time())
    assert store.current == store.objects
    store.objects["cpu"] = cron_job(2)
    assert store.current == {}
    await store.refresh(time.time())
    assert store.current == store.objects


def test_pilots_of_a_template_that_has_changed_are_lacking_until_the_next_turn() -> None:
    changed, same = TemplatePlan(template(), create=2), TemplatePlan(template(), create=3)
    postpone(TurnPlan({"changed": changed, "same": same}, []), {"same"})
    assert (changed.create, changed.lacking) == (0, 2)
    assert changed.limit == "the template has just changed, so that the next turn plans its pilots anew"
    assert (same.create, same.lacking, same.limit) == (3, 0, "")
