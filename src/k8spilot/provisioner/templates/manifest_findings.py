"""Checks of pod templates and of the provisioner in a manifest, without a cluster (`k8spilot check --manifest`)."""

from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from k8spilot.common.errors import SettingsError
from k8spilot.preflight.finding import Finding, fault, good
from k8spilot.preflight.slot_size import is_placeholder
from k8spilot.provisioner.limits import TemplateError
from k8spilot.provisioner.settings import ProvisionerSettings
from k8spilot.provisioner.templates.pod_template import limits_in, pod_in

Json = dict[str, Any]

_TEMPLATE, _PROVISIONER = "pilot-template", "provisioner"
"""Values of the label app.kubernetes.io/component."""


def template_findings(text: str) -> list[Finding]:
    """Check what only the provisioner reads. `text` is a manifest that `manifest_findings` has taken."""
    objects = [one for one in yaml.safe_load_all(text) if isinstance(one, dict)]
    objects = [item for one in objects for item in (one.get("items") or () if one.get("kind") == "List" else [one])]
    found = []
    for one in objects:
        component = ((one.get("metadata") or {}).get("labels") or {}).get("app.kubernetes.io/component")
        if one.get("kind") == "CronJob" and component == _TEMPLATE:
            found.append(_template(one))
        elif one.get("kind") == "Deployment" and component == _PROVISIONER:
            found += _provisioner(one, objects)
    return found


def _template(one: Json) -> Finding:
    about = f"CronJob/{one['metadata']['name']}"
    try:
        limits = limits_in(one)
    except TemplateError as error:
        return fault(about, str(error))
    if (policy := pod_in(one)["spec"].get("restartPolicy")) == "Always":
        return fault(about, f"restartPolicy is {policy}, but a pilot must come to its end; set Never or OnFailure")
    return good(about, f"its annotations are valid: {limits.min_pilots} to {limits.max_pilots} pilots")


def _provisioner(one: Json, objects: Sequence[Json]) -> Iterator[Finding]:
    about = f"Deployment/{one['metadata']['name']}"
    containers = one["spec"]["template"]["spec"]["containers"]
    container = next((each for each in containers if each["name"] == _PROVISIONER), containers[0])
    if is_placeholder(str(container.get("image", ""))):
        yield fault(about, f"replace the image {container['image']}, a placeholder, by the one that you have built")
    maps = {item["metadata"]["name"]: item.get("data") or {} for item in objects if item.get("kind") == "ConfigMap"}
    environment = {"POD_NAMESPACE": str(one["metadata"].get("namespace") or "default")}
    for source in container.get("envFrom") or ():
        environment |= maps.get((source.get("configMapRef") or {}).get("name", ""), {})
    for variable in container.get("env") or ():
        if "value" in variable:
            environment[variable["name"]] = str(variable["value"])
    try:
        ProvisionerSettings.of(environment)
    except SettingsError as error:
        yield fault(about, str(error))
    else:
        yield good(
            about, f"the provisioner's settings are valid; all is in the namespace {environment['POD_NAMESPACE']}"
        )
