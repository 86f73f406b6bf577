"""The component `monitoring`: its alerts and its dashboard use series that pilots and provisioners have."""

import json
import re
from pathlib import Path

import pytest
import yaml

from docs.generate import metrics as pilots
from docs.generate import provisioner

FOLDER = Path(__file__).parents[3] / "components/monitoring"
ALERTS = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())


def known() -> set[str]:
    """The names of all series."""
    families = [*pilots.exposed(), *provisioner.exposed()]
    return {sample.name for one in families for sample in one.samples} | {one.name for one in families}


def expressions() -> list[str]:
    """All expressions of Prometheus's language."""
    rules = [rule["expr"] for group in ALERTS["spec"]["groups"] for rule in group["rules"]]
    return [*rules, *(target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"])]


@pytest.mark.parametrize("expression", expressions())
def test_every_series_of_an_expression_exists(expression: str) -> None:
    names = set(re.findall(r"\bk8spilot_\w+", expression))
    assert names
    assert names <= known()


def test_every_alert_says_what_is_wrong_and_what_to_do() -> None:
    for group in ALERTS["spec"]["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["summary"].endswith(".")
            assert rule["annotations"]["description"].endswith(".")
            assert rule["labels"]["severity"] in ("warning", "info")
