"""The provisioner's series, and the component `monitoring`, in the real Prometheus."""

import json
from pathlib import Path

import pytest
import yaml

from lab import prometheus
from lab.api import Lab
from lab.factory import Factory
from lab.http import opened
from lab.settings import CHECKOUT
from tests.e2e.pool import until
from tests.e2e.provisioner.pilots import SMALL, Submit

MONITORING = CHECKOUT / "components/monitoring"
GROUPS = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["spec"]["groups"]
PANELS = json.loads((MONITORING / "dashboard.json").read_text())["panels"]

FIRING = {
    "K8spilotProvisionerAway": ['k8spilot_provisioner_leader{pod="p"}', "0x20"],
    "K8spilotPoolAway": [
        'k8spilot_provisioner_leader{pod="p"}',
        "1x20",
        'k8spilot_provisioner_pool_up{pod="p"}',
        "0x20",
    ],
    "K8spilotTemplateClosed": ['k8spilot_provisioner_closed_until_timestamp_seconds{template="cpu"}', "60+60x20"],
    "K8spilotTemplateInvalid": ["k8spilot_provisioner_invalid_templates", "1x20"],
    "K8spilotJobsWait": [
        'k8spilot_provisioner_lacking_pilots{template="cpu"}',
        "1x400",
        'k8spilot_provisioner_closed_until_timestamp_seconds{template="cpu"}',
        "0x400",
    ],
    "K8spilotApiUnreachable": ['k8spilot_api_reachable{pod="p"}', "0x20"],
    "K8spilotPilotNotInPool": ['k8spilot_in_pool{pod="p"}', "0x20"],
    "K8spilotEngineRestarts": ['k8spilot_engine_restarts_total{pod="p"}', "0+1x20"],
}
"""Alerts, and series with which each fires."""
SILENT = {
    "K8spilotTemplateClosed": ['k8spilot_provisioner_closed_until_timestamp_seconds{template="cpu"}', "60x20"],
    "K8spilotJobsWait": [
        'k8spilot_provisioner_lacking_pilots{template="cpu"}',
        "1x400",
        'k8spilot_provisioner_closed_until_timestamp_seconds{template="cpu"}',
        "60+60x400",
    ],
}
"""Alerts, and series with which each does not fire: a closure that is over, and one that lasts."""
SLOW = {"K8spilotJobsWait": "6h5m"}
"""When an alert fires that takes more than fifteen minutes."""


def test_prometheus_has_the_number_of_wanted_pilots_and_evaluates_each_panel(site: Factory, submit: Submit) -> None:
    site.apply(SMALL)
    address = site.address(site.provisioner())
    site.kubectl("annotate", "cronjob", "small", "k8spilot/max-pilots=0", "--overwrite")
    submit("true", count=2)
    with prometheus.scraping(site.lab, [f"{address}:9464"]) as found:
        wanted = 'k8spilot_provisioner_wanted_pilots{template="small"}'
        until(lambda: found.value(wanted) == 2, "both jobs want a pilot", 60)
        expressions = [target["expr"] for panel in PANELS for target in panel["targets"]]
        expressions += [rule["expr"] for group in GROUPS for rule in group["rules"]]
        for expression in expressions:
            text = expression.replace("$namespace", site.namespace).replace("$template", ".*")
            found.get("query", query=text)  # an error of the language is an error of the request
        with opened(f"http://{address}:9464/metrics") as answer:
            assert found.lint(answer.read().decode()) == ""


def test_each_alert_has_series_with_which_it_fires() -> None:
    assert set(FIRING) == {rule["alert"] for group in GROUPS for rule in group["rules"]}


@pytest.mark.parametrize(
    ("name", "series", "fires"),
    [*((name, series, True) for name, series in FIRING.items()), *((name, one, False) for name, one in SILENT.items())],
)
def test_an_alert_fires_when_it_should(lab: Lab, tmp_path: Path, name: str, series: list[str], fires: bool) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump({"groups": GROUPS}))
    (rule,) = [rule for group in GROUPS for rule in group["rules"] if rule["alert"] == name]
    tests = {
        "rule_files": [str(rules)],
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": one, "values": values} for one, values in zip(series[::2], series[1::2], strict=True)
                ],
                "promql_expr_test": [
                    {
                        "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})',
                        "eval_time": SLOW.get(name, "15m"),
                        "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
                    }
                ],
            }
        ],
    }
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump(tests))
    assert prometheus.promtool(lab, "test", "rules", str(file)) == "", rule
