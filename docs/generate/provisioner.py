"""The reference of the provisioner: its settings, states, metrics and Events."""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from docs.generate.metrics import series, type_of
from docs.generate.settings import allowed
from docs.generate.sources import (
    TEMPLATE_EVENTS,
    Limits,
    PilotState,
    ProvisionerMetrics,
    ProvisionerSettings,
    Template,
    TemplatePlan,
    TurnPlan,
    default_of,
    documented,
    provisioner_variables,
)
from docs.generate.tables import NAMES, table

INTRODUCTION: Final = """\
# Provisioner: reference

[Make pilots when jobs wait](../how-to/provision.md) has the annotations of pod templates.

*This page is generated from the code.*

## Settings

Environment variables of the provisioner's container. It reads the ConfigMap `k8spilot-pilot`, for the pilots' pool, and
the ConfigMap `k8spilot-provisioner`.
"""


def page() -> str:
    """Return the page."""
    meanings = documented(ProvisionerSettings)
    rows = [
        (f"`{name}`", meanings[one.name][1], f"`{text}`" if (text := default_of(one)) else "", allowed(one))
        for name, one in provisioner_variables().items()
    ]
    return "\n".join(
        [
            INTRODUCTION,
            NAMES.format(table(("Variable", "Meaning", "Default", "Allowed values"), rows)),
            "## Metrics\n",
            "Served at `/metrics` on port 9464, with the probes `/healthz` and `/readyz`.\n",
            NAMES.format(
                table(
                    ("Series", "Type", "Meaning"),
                    [(series(one), type_of(one), f"{one.documentation.rstrip('.')}.") for one in exposed()],
                )
            ),
            "### Label `state` of `k8spilot_provisioner_pilots`\n",
            ", ".join(f"`{state}`" for state in PilotState) + ".\n",
            "## Events\n",
            "On the `CronJob` objects of pod templates.\n",
            table(
                ("Reason", "Type", "When", "What to do"),
                [(f"`{name}`", one.type, one.when, one.action) for name, one in TEMPLATE_EVENTS.items()],
            ),
        ]
    )


def exposed() -> Iterator[Metric]:
    """Return the families of a provisioner with a template."""
    metrics = ProvisionerMetrics()
    template = Template("cpu", Limits(1), ())
    metrics.plan = TurnPlan({"cpu": TemplatePlan(template)}, [])
    metrics.created["cpu"] = metrics.deleted["cpu"] = 1
    for one in text_string_to_metric_families(metrics.text().decode()):
        if not one.name.startswith("process_"):
            yield one
