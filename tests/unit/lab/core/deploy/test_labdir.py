"""The lab directory: what it says, and what of it is removed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from testbed.lab.core.deploy.records import labdir
from testbed.lab.core.deploy.records.journal import Journal
from testbed.lab.core.deploy.records.labdir import remove_paths, write_lab_directory
from testbed.lab.core.fabric import generate_fabric
from testbed.lab.core.fabric.params import FabricParams
from testbed.lab.core.model import Lab
from testbed.lab.core.model.containers import Container, RuntimeDeclaration
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.schema.load import load_topology_text


@pytest.fixture(scope="module")
def planned() -> tuple[Lab, LabPlan]:
    lab = generate_fabric(FabricParams(design="rail-optimized", segments=1, hosts=2, gpus=2, spines=2), name="ai")
    return lab, plan_lab(lab, k=1000)


def test_topology_data_and_inventory_hold_the_plan(planned: tuple[Lab, LabPlan], tmp_path: Path) -> None:
    lab, plan = planned
    directory = tmp_path / "testbed-ai"
    write_lab_directory(lab, plan, directory, Journal(tmp_path / "state"))
    data = json.loads((directory / "topology-data.json").read_text())
    assert set(data["nodes"]) == {node.name for node in lab.nodes}
    assert len(data["links"]) == len(lab.links)
    nic = data["nodes"]["p1-s1-h1"]["interfaces"][0]
    planned_nic = plan.hosts[0].nics[0]
    assert (nic["address"], nic["mac"], nic["lab_rate_bps"]) == (
        str(planned_nic.address),
        planned_nic.mac,
        planned_nic.rate_bps,
    )
    rail = next(switch for switch in plan.switches if switch.node == "p1-s1-rail1")
    assert data["nodes"]["p1-s1-rail1"]["asn"] == rail.asn

    inventory = yaml.safe_load((directory / "ansible-inventory.yml").read_text())["all"]["children"]
    assert set(inventory) == {"host", "switch_rail", "switch_spine"}
    assert inventory["switch_rail"]["hosts"]["p1-s1-rail1"]["ansible_host"] == str(rail.loopback.ip)
    assert inventory["host"]["hosts"]["p1-s1-h1"]["testbed_namespace"] == "ai-p1-s1-h1"


def test_the_inventory_has_addresses_of_management_where_nodes_have_them() -> None:
    text = "name: ai\nfabric: {design: single-switch, hosts: 1, gpus: 1}\nnetworks: {oob: {design: out-of-band}}\n"
    lab = load_topology_text(text, file="ai.yml")
    groups = labdir.ansible_inventory(lab, plan_lab(lab, k=1000))["all"]["children"]
    found = {name: one["ansible_host"] for group in groups.values() for name, one in group["hosts"].items()}
    assert found == {"p1-s1-rail1": "192.168.0.2", "p1-s1-h1": "192.168.0.3", "mgmt1": "192.168.0.1", "mgmt-sw1": ""}


@pytest.mark.parametrize("plugin", ["community.docker.docker", ""])
def test_ansible_is_told_how_a_container_is_reached(
    planned: tuple[Lab, LabPlan], monkeypatch: pytest.MonkeyPatch, plugin: str
) -> None:
    declared = RuntimeDeclaration(name="docker", description="a container", ansible_connection=plugin)
    monkeypatch.setattr(labdir, "CONTAINER_RUNTIMES", {"docker": declared})
    lab, plan = planned
    contained = replace(lab, nodes=tuple(replace(node, container=Container(image="x:1")) for node in lab.nodes))
    host = labdir.ansible_inventory(contained, plan)["all"]["children"]["host"]["hosts"]["p1-s1-h1"]
    assert host.get("ansible_connection", "") == plugin
    assert host["ansible_host"] == ("ai-p1-s1-h1" if plugin else str(plan.hosts[0].nics[0].address.ip))


def test_all_of_it_goes(planned: tuple[Lab, LabPlan], tmp_path: Path) -> None:
    journal = Journal(tmp_path / "state")
    write_lab_directory(*planned, tmp_path / "testbed-ai", journal)
    remove_paths(journal.read().paths)
    assert not (tmp_path / "testbed-ai").exists()
    remove_paths(journal.read().paths)


def test_what_was_there_before_and_what_a_user_added_stays(planned: tuple[Lab, LabPlan], tmp_path: Path) -> None:
    journal = Journal(tmp_path / "state")
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    write_lab_directory(*planned, old, journal)
    write_lab_directory(*planned, new, journal)
    (new / "notes").touch()
    remove_paths(journal.read().paths)
    assert old.is_dir()
    assert list(old.iterdir()) == []
    assert [path.name for path in new.iterdir()] == ["notes"]


def test_a_path_is_journalled_before_it_exists(planned: tuple[Lab, LabPlan], tmp_path: Path) -> None:
    class Watching(Journal):
        def path(self, path: Path) -> None:
            assert not path.exists()
            super().path(path)

    journal = Watching(tmp_path / "state")
    write_lab_directory(*planned, tmp_path / "lab", journal)
    assert len(journal.read().paths) == 3


def test_what_a_change_leaves_as_it_is_said_is_not_written_again(planned: tuple[Lab, LabPlan], tmp_path: Path) -> None:
    """A file that is gone is, and one that says something else now; no path is journalled a second time."""
    lab, plan = planned
    journal = Journal(tmp_path / "state")
    write_lab_directory(lab, plan, tmp_path, journal)
    data, inventory = tmp_path / "topology-data.json", tmp_path / "ansible-inventory.yml"
    wanted = data.read_text(), inventory.read_text()
    inventory.write_text("mine")
    data.write_text("mine")
    write_lab_directory(lab, plan, tmp_path, journal, (lab, plan))
    assert (data.read_text(), inventory.read_text()) == ("mine", "mine")

    longer = replace(lab, links=lab.links[:-1])
    write_lab_directory(longer, plan, tmp_path, journal, (lab, plan))
    assert len(json.loads(data.read_text())["links"]) == len(lab.links) - 1
    assert inventory.read_text() == "mine", "its nodes and addresses are the same"

    data.unlink()
    inventory.unlink()
    write_lab_directory(lab, plan, tmp_path, journal, (lab, plan))
    assert (data.read_text(), inventory.read_text()) == wanted
    data.write_text("mine")
    write_lab_directory(lab, plan, tmp_path, journal)
    assert (data.read_text(), inventory.read_text()) == wanted, "nobody knows what was there"
    assert journal.read().paths == [data, inventory]


@pytest.mark.parametrize("change", ["k", "host"])
def test_each_file_follows_what_it_is_made_of(planned: tuple[Lab, LabPlan], tmp_path: Path, change: str) -> None:
    lab, plan = planned
    write_lab_directory(lab, plan, tmp_path, Journal(tmp_path / "state"))
    hosts = 3 if change == "host" else 2
    params = FabricParams(design="rail-optimized", segments=1, hosts=hosts, gpus=2, spines=2)
    other = generate_fabric(params, name="ai")
    after = other, plan_lab(other, k=1000 if change == "host" else 2000)
    write_lab_directory(*after, tmp_path, Journal(tmp_path / "state"), (lab, plan))
    fresh = tmp_path / "fresh"
    write_lab_directory(*after, fresh, Journal(tmp_path / "other"))
    for name in ("topology-data.json", "ansible-inventory.yml"):
        assert (tmp_path / name).read_text() == (fresh / name).read_text()


def test_a_link_to_a_directory_is_removed_as_a_link(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    remove_paths([tmp_path / "link", tmp_path / "real" / "x" / "y"])
    assert real.is_dir()
    assert not (tmp_path / "link").is_symlink()
