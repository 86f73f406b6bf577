"""The ad that the provisioner expects of a pilot's slot, beside the ad of a real one."""

import asyncio
import json
import time
from typing import Any

import classad2
import pytest

from k8spilot.provisioner.templates.pod_template import source_names, template_of
from lab.api import Lab
from tests.e2e.pool import Pool

OF_THE_POD = frozenset({"GLIDEIN_ToDie", "GLIDEIN_ToRetire", "K8SPodName", "K8SPodUID", "Machine", "Name"})
"""Attributes that each pilot has of its own."""
OF_THE_NODE = frozenset({"CondorVersion", "K8SPhysicalHostName", "OSG_HOST_KERNEL_VERSION", "SHM_AVAILABLE"})
"""Attributes that tell of the node, or of HTCondor's package."""
OF_THE_STATE = frozenset({"Activity", "State"})
OF_THE_PLAN = frozenset({"Requirements"})
"""The startd adds WithinResourceLimits. The plan compares resources by itself, since it counts what fits."""


def expected(lab: Lab, pod: str) -> classad2.ClassAd:
    """The ad of the slot of pilots from a template with the pod of a pilot that runs."""
    found = json.loads(lab.kubectl("get", "pod", pod, "-n", lab.namespace, "-o", "json"))
    template = {
        "metadata": {"name": "any", "namespace": lab.namespace, "annotations": {"k8spilot/max-pilots": "1"}},
        "spec": {"suspend": True, "jobTemplate": {"spec": {"template": {"metadata": {}, "spec": found["spec"]}}}},
    }
    sources: list[dict[str, Any]] = []
    for kind, name in source_names(template):
        answer = lab.kubectl("get", kind, name, "-n", lab.namespace, "--ignore-not-found", "-o", "json")
        sources += [json.loads(answer)] if answer.strip() else []
    made = asyncio.run(template_of(template, sources, lab.pool_host, time.time()))
    (slots,) = made.kinds
    (ad,) = classad2.parseAds(slots.ad, classad2.ParserType.Old)
    return ad


@pytest.mark.both_levels
def test_the_expected_ad_is_that_of_a_pilot(pool: Pool) -> None:
    query = ["condor_status", "-long", "-constraint", f'K8SPodName == "{pool.pod}"']
    (real,) = classad2.parseAds(pool.lab.access_point("alice", query), classad2.ParserType.Old)
    ad = expected(pool.lab, pool.pod)
    if not real.get("PartitionableSlot"):
        real["PartitionableSlot"] = False
    names = {name for name in ad if name not in OF_THE_POD | OF_THE_NODE | OF_THE_STATE | OF_THE_PLAN}
    different = {name: (said(ad, name), said(real, name)) for name in names if said(ad, name) != said(real, name)}
    assert different == {}


def said(ad: classad2.ClassAd, name: str) -> object:
    """An attribute: a number, or the words of its expression; None without it."""
    value = ad.get(name)
    if isinstance(value, int | float):
        return float(value)
    return str(ad.lookup(name)) if name in ad else None
