"""What programs of a node see in place of this machine's files: names of all nodes, and FRR's directories."""

from dataclasses import replace
from ipaddress import IPv4Interface
from pathlib import Path

import pytest

from testbed.base.linux.vty import OWN_CONFIGURATION, OWN_RUN_DIRECTORY
from testbed.lab.core.deploy.node_files import (
    HOSTNAME,
    HOSTS,
    hosts_path,
    hosts_text,
    remove_node_files,
    view_of,
    write_node_files,
)
from testbed.lab.core.deploy.records.journal import StateError
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.schema.load import load_topology_text

DEMO = "name: names\nfabric: {design: rail-optimized, segments: 2, hosts: 2, gpus: 2, spines: 2}\n"
MANAGED = DEMO + "networks: {management: {design: out-of-band}}\n"
MLAG = DEMO.replace("gpus: 2", "gpus: 2, nic: {ports: 2, multihoming: mlag}")
TENANTS = """name: tenants
fabric: {design: rail-optimized, segments: 2, hosts: 2, gpus: 1, spines: 2, overlay: evpn, mtu: 4200}
tenants:
  red: {subnets: {web: {prefix: 172.30.0.0/24, nics: ["p1-s1-h1:rail1", "p1-s2-h1:rail1"]}}}
  blue: {subnets: {web: {prefix: 172.30.0.0/24, nics: ["p1-s1-h2:rail1", "p1-s2-h2:rail1"]}}}
"""


def planned(text: str) -> tuple[Lab, LabPlan]:
    lab = load_topology_text(text, file="names.yml")
    return lab, plan_lab(lab, k=1000)


def names_of(text: str) -> dict[str, list[str]]:
    """The names of each address, as a resolver reads them."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        address, *names = line.split()
        found.setdefault(address, []).extend(names)
    return found


def test_every_node_and_every_address_has_a_name() -> None:
    lab, plan = planned(DEMO)
    names = names_of(hosts_text(plan))
    assert names["127.0.0.1"] == ["localhost"]
    for node in lab.nodes:
        assert sum(node.name in found for found in names.values()) == 1, "a name is that of one address"
        assert sum(f"{node.name}.names" in found for found in names.values()) == 1
    for host in plan.hosts:
        for nic in host.nics:
            assert f"{nic.name}.{nic.node}" in names[str(nic.address.ip)]
        first = host.nics[0].address
        assert first is not None and names[str(first.ip)][0] == host.node
    for switch in plan.switches:
        assert names[str(switch.loopback.ip)][0] == switch.node
        assert f"lo.{switch.node}" in names[str(switch.loopback.ip)]


def test_a_node_is_called_by_its_address_of_management_where_it_has_one() -> None:
    lab, plan = planned(MANAGED)
    assert plan.management is not None
    names = names_of(hosts_text(plan))
    for node in lab.nodes:
        if node.name in plan.management.addresses:
            address = str(plan.management.addresses[node.name].ip)
            assert names[address][:2] == [node.name, f"{node.name}.names"], "as the service dns has it"
    nic = plan.hosts[0].nics[0]
    assert names[str(nic.address.ip)][0] == f"{nic.name}.{nic.node}", "and a NIC by its own name"


def test_a_host_whose_nics_are_link_groups_is_called_by_the_first_of_these() -> None:
    _, plan = planned(MLAG)
    names = names_of(hosts_text(plan))
    for host in plan.hosts:
        group = host.nics[0]
        assert group.address is not None and group.name == "rail1"
        assert names[str(group.address.ip)] == [host.node, f"{host.node}.names", f"rail1.{host.node}"]


def test_an_address_that_several_nodes_have_is_called_by_none_of_them() -> None:
    _, plan = planned(TENANTS)
    names = names_of(hosts_text(plan))
    gateway = names["172.30.0.1"]
    assert gateway[0] == "shared-172-30-0-1"
    assert len(gateway) >= 5, "and each of them is found by its own"
    assert {"rail1.p1-s1-h1", "rail1.p1-s1-h2"} <= set(names["172.30.0.2"])


def test_what_is_written_is_what_a_program_sees(tmp_path: Path) -> None:
    lab, plan = planned(DEMO)
    write_node_files(lab, plan, tmp_path)
    switch, host = plan.switches[0].node, plan.hosts[0].node
    seen = view_of(tmp_path, switch)
    assert seen.hostname == switch
    assert seen.binds[HOSTS].read_text() == hosts_text(plan)
    assert seen.binds[HOSTNAME].read_text() == f"{switch}\n"
    assert seen.binds[OWN_RUN_DIRECTORY] == tmp_path / switch
    assert seen.binds[OWN_CONFIGURATION].parent == tmp_path / switch
    of_host = view_of(tmp_path, host).binds
    assert set(of_host) - {OWN_RUN_DIRECTORY} == {HOSTS, HOSTNAME}, "no FRR runs on a host"
    if OWN_RUN_DIRECTORY.is_dir():  # that of the machine is hidden by one without sockets
        assert list(of_host[OWN_RUN_DIRECTORY].iterdir()) == []


def test_a_name_that_was_cut_short_is_written_again(tmp_path: Path) -> None:
    """A command that is killed between making the file and writing it leaves it empty."""
    lab, plan = planned(DEMO)
    write_node_files(lab, plan, tmp_path)
    name = view_of(tmp_path, "p1-s1-h1").binds[HOSTNAME]
    name.write_text("")
    write_node_files(lab, plan, tmp_path)
    assert name.read_text() == "p1-s1-h1\n"


def test_a_lab_of_an_earlier_version_has_only_a_name(tmp_path: Path) -> None:
    assert view_of(tmp_path, "h1").binds == {}
    assert view_of(tmp_path, "h1").hostname == "h1"


def test_a_disk_that_does_not_take_them_is_named(tmp_path: Path) -> None:
    lab, plan = planned(DEMO)
    (tmp_path / "run").write_text("")
    with pytest.raises(StateError, match="run"):
        write_node_files(lab, plan, tmp_path / "run")


def test_a_node_without_an_address_has_no_line() -> None:
    _, plan = planned(DEMO)
    ports = tuple(replace(port, address=None) for port in plan.ports)
    bare = replace(plan, ports=ports, switches=(), operations=(), hosts=())
    assert names_of(hosts_text(bare)).keys() == {"127.0.0.1", "::1"}
    one = replace(bare, ports=(replace(ports[0], address=IPv4Interface("10.9.9.9/24")), *ports[1:]))
    assert names_of(hosts_text(one))["10.9.9.9"][0] == ports[0].node


def test_names_of_a_changed_lab_reach_programs_that_see_the_file_already(tmp_path: Path) -> None:
    lab, plan = planned(DEMO)
    write_node_files(lab, plan, tmp_path)
    hosts = hosts_path(tmp_path)
    seen = hosts.open()  # as a shell in a node has it, over its own /etc/hosts
    more, larger = planned(DEMO.replace("hosts: 2", "hosts: 3"))
    write_node_files(more, larger, tmp_path)
    assert "p1-s1-h3" in seen.read(), "the same file has the new names"
    write_node_files(lab, plan, tmp_path)
    seen.seek(0)
    assert seen.read() == hosts_text(plan), "and nothing is left behind a shorter text"
    seen.close()


def test_files_of_a_node_that_is_gone_go(tmp_path: Path) -> None:
    lab, plan = planned(DEMO)
    write_node_files(lab, plan, tmp_path)
    (tmp_path / "p1-s1-rail1").mkdir(exist_ok=True)
    memory = view_of(tmp_path, "p1-s1-h1").memory
    assert memory is not None and memory.node == "p1-s1-h1" and not memory.directory.exists(), "until it is joined"
    remove_node_files(tmp_path, ["p1-s1-rail1", "p1-s1-h1"])
    assert not view_of(tmp_path, "p1-s1-h1").binds.keys() & {HOSTNAME}
    assert not (tmp_path / "p1-s1-rail1").exists()
    assert HOSTNAME in view_of(tmp_path, "p1-s1-h2").binds
