"""The templates that pilots are made from are those that the last plan has seen."""

import time
from typing import Any

from kubernetes.aio import client

from k8spilot.provisioner.cluster import Cluster
from k8spilot.provisioner.template_store import TemplateStore


def cron_job(version: int) -> dict[str, Any]:
    """A CronJob with a template without containers: it is read all the same."""
    pod: dict[str, Any] = {"metadata": {}, "spec": {"containers": []}}
    return {
        "kind": "CronJob",
        "metadata": {"name": "cpu", "uid": "1b4e28ba", "resourceVersion": str(version), "annotations": {}},
        "spec": {"suspend": True, "jobTemplate": {"spec": {"template": pod}}},
    }


async def test_a_template_that_changes_during_a_turn_makes_no_pilots_before_the_next_one() -> None:
    store = TemplateStore(Cluster(client.ApiClient(), "pilots"), "cm.example.org")
    store.objects["cpu"] = cron_job(1)
    assert store.current == {}
    await store.refresh(time.time())
    assert store.current == store.objects
    store.objects["cpu"] = cron_job(2)
    assert store.current == {}
    await store.refresh(time.time())
    assert store.current == store.objects
