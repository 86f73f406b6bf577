"""The manifests of a factory: what the site's overlay has is there once, however many templates are made from it."""

from collections import Counter
from pathlib import Path

import pytest
import yaml

from tests.unit.test_cli_slots import built, copied_overlays

RIGHTS_OF_METRICS = {"Role k8spilot-gpu-metrics": 1, "RoleBinding k8spilot-gpu-metrics": 1}
OF_THE_SITE = {
    "own-pod": {
        f"ValidatingAdmissionPolicy{kind} k8spilot-own-{what}": 1
        for kind in ("", "Binding")
        for what in ("pod", "events")
    },
    "relist": {"Role k8spilot-relist": 1, "RoleBinding k8spilot-relist": 1},
    "node-images": {"ClusterRole k8spilot-node-images": 1, "ClusterRoleBinding k8spilot-node-images": 1},
    "network-policy": {"NetworkPolicy k8spilot": 1, "NetworkPolicy k8spilot-site": 1},
    "monitoring": {"PodMonitor k8spilot": 1, "PrometheusRule k8spilot": 1, "ConfigMap k8spilot-dashboard": 1},
}


@pytest.fixture
def overlays(tmp_path: Path) -> Path:
    """A copy of the overlays, which a test may change."""
    return copied_overlays(tmp_path)


def factory(overlays: Path) -> Counter[str]:
    """Kind and name of each object of the factory, with their number."""
    documents = yaml.safe_load_all(built(overlays / "factory-example"))
    return Counter(f"{one['kind']} {one['metadata']['name']}" for one in documents)


def change(file: Path, before: str, after: str) -> None:
    text = file.read_text()
    assert text.count(before) == 1
    file.write_text(text.replace(before, after))


@pytest.mark.slow
@pytest.mark.parametrize("component", OF_THE_SITE)
def test_a_component_of_the_site_is_there_once_for_all_templates(overlays: Path, component: str) -> None:
    without = factory(overlays)
    site = overlays / "example/kustomization.yaml"
    line = "# components: [../../components/own-pod, ../../components/pull-secret]"
    change(site, line, f"components: [../../components/{component}]")
    assert factory(overlays) - without == Counter(OF_THE_SITE[component])
    assert set(factory(overlays).values()) == {1}


def test_one_template_can_have_the_gpu_metrics_container(overlays: Path) -> None:
    without = factory(overlays)
    template = overlays / "factory-example/gpu/kustomization.yaml"
    change(
        template, "  - ../../../components/gpu\n", "  - ../../../components/gpu\n  - ../../../components/gpu-metrics\n"
    )
    assert factory(overlays) - without == Counter(RIGHTS_OF_METRICS)


@pytest.mark.slow
def test_pilots_of_all_templates_have_the_gpu_metrics_container_if_the_factory_has_the_component(
    overlays: Path,
) -> None:
    without = factory(overlays)
    whole = overlays / "factory-example/kustomization.yaml"
    change(
        whole,
        "components: [../../components/provisioner]",
        "components: [../../components/provisioner, ../../components/gpu-metrics]",
    )
    assert factory(overlays) - without == Counter(RIGHTS_OF_METRICS)
