"""The lab's GPUs are such that tests do not meet, and can be told apart."""

from lab.gpu import claims
from lab.gpu.devices import RESOURCES, Inventory

INVENTORY = Inventory.make()


def test_each_resource_has_four_devices_of_its_own() -> None:
    ids = [one for resource in RESOURCES for one in INVENTORY.ids[resource.name]]
    assert len(ids) == len(set(ids)) == 4 * len(RESOURCES)
    assert {one.partition("::")[0] for one in ids} <= set(INVENTORY.nodes)


def test_htcondors_short_names_of_gpus_differ() -> None:
    gpus = INVENTORY.driver.gpus
    assert len({gpu.uuid[: len("GPU-01234567")] for gpu in gpus}) == len(gpus)


def test_each_node_has_a_number_of_its_own() -> None:
    nodes = INVENTORY.all_nodes
    assert len({node.path for node in nodes}) == len({(node.major, node.minor) for node in nodes}) == len(nodes)


def test_what_cdi_gives_is_what_the_plugin_names() -> None:
    table = INVENTORY.table("library", "settings", "specs")
    spec = INVENTORY.cdi("library", "settings")
    assert spec["kind"] == table["kind"]
    paths = {one["name"]: [node["path"] for node in one["containerEdits"]["deviceNodes"]] for one in spec["devices"]}
    assert paths == {one["uuid"]: [node["path"] for node in one["nodes"]] for one in table["devices"]}


def test_devices_of_claims_are_no_devices_of_the_plugin() -> None:
    ids = {one.partition("::")[0] for resource in RESOURCES for one in INVENTORY.ids[resource.name]}
    assert not ids & set(INVENTORY.claimed)
    assert len(INVENTORY.claimed) == 6
    names = claims.names(INVENTORY)
    assert sorted(names.values()) == sorted(INVENTORY.claimed)
    table = claims.table(INVENTORY, "library", "settings")
    assert set(table["edits"]) == set(names) == {one["name"] for one in table["devices"]}
    kinds = [one["attributes"]["type"]["string"] for one in table["devices"]]
    assert sorted(kinds) == ["gpu"] * 4 + ["mig"] * 2
