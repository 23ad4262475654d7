"""The out-of-band network as it is planned: beside all that is planned for data, which does not know of it."""

from dataclasses import replace

from testbed.lab.core.model import BACKEND, Lab
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan, PortPlan
from testbed.lab.core.plan.link_delays import WirePaths
from testbed.lab.core.plan.management_plan import FormCommunity, GuardManagement
from testbed.lab.core.plan.operations import CreateVeth, GuardSwitch, SetBridgePort
from testbed.lab.core.plan.scale import MachineProfile, choose_scale, largest_k
from testbed.lab.core.schema.load import load_topology_text

TEXT = """name: dc
fabric: {design: rail-optimized, hosts: 2, gpus: 2, segments: 2, spines: 1, uplink: {delay: 1us}}
qos: {preset: uec}
networks:
  frontend: {leaves: 2, nic: {ports: 2, rate: 100G}}
  management: {design: out-of-band, prefix: 192.168.250.0/24}
"""
BEFORE = TEXT[: TEXT.index("  management:")]


def ports(plan: LabPlan) -> list[PortPlan]:
    return [port for port in plan.ports if port.network == "management"]


def test_data_is_planned_as_without_it(plan: LabPlan) -> None:
    before = plan_lab(load_topology_text(BEFORE, file="dc.yml"), k=1000)
    for network in (BACKEND, "frontend"):
        assert plan.of_network(network) == replace(before.of_network(network), operations=plan.operations)
    assert (plan.hosts, plan.switches, plan.expected_routes) == (before.hosts, before.switches, before.expected_routes)
    assert (plan.tables, plan.qos) == (before.tables, before.qos)


def test_rates_are_not_scaled_and_the_time_scale_knows_none_of_it(lab: Lab, plan: LabPlan) -> None:
    assert {(port.rate_bps, port.line_rate_bps, port.out_of_band) for port in ports(plan)} == {(10**9, 10**9, True)}
    before = load_topology_text(BEFORE, file="dc.yml")
    machine = MachineProfile(cores=2, forwarding_bps=10**9)
    assert choose_scale(lab, machine) == choose_scale(before, machine)
    assert largest_k(lab, machine) == largest_k(before, machine)


def test_paths_of_data_lead_over_no_management_switch(plan: LabPlan) -> None:
    hosts = [host.node for host in plan.hosts]
    path = WirePaths(plan.ports, hosts).path("p1-s1-h1:rail1", "p1-s2-h1:rail1")
    alone = WirePaths(plan.of_network(BACKEND).ports, hosts).path("p1-s1-h1:rail1", "p1-s2-h1:rail1")
    assert path == alone and path.switches == 3


def test_each_node_is_guarded_and_its_port_on_the_switch_is_isolated(plan: LabPlan) -> None:
    management = plan.management
    guards = [item for item in plan.operations if isinstance(item, GuardManagement)]
    assert {item.node for item in guards} == set(management.addresses)
    isolated = [item for item in plan.operations if isinstance(item, SetBridgePort)]
    assert len(isolated) == len(management.nodes) and all(item.isolated for item in isolated)
    assert "uplink1" not in {item.name for item in isolated}, "the server's"
    (switch,) = (item for item in plan.operations if isinstance(item, GuardSwitch) and item.node == "mgmt-sw1")
    macs = {port.node: port.mac for port in ports(plan) if port.name == "mgmt0"}
    assert {port.name for port in switch.ports} == {item.name for item in isolated}
    for guarded, node in zip(switch.ports, management.nodes, strict=True):
        assert (guarded.mac, guarded.addresses[0]) == (macs[node], management.addresses[node].ip)


def test_its_ports_have_no_ipv6_and_bgp_does_not_announce_its_prefix(plan: LabPlan) -> None:
    management = plan.management
    ends = [end for item in plan.operations if isinstance(item, CreateVeth) for end in (item.a, item.b)]
    assert {end.ipv6 for end in ends if end.name == "mgmt0"} == {False}
    announced = [net for speaker in plan.speakers for net in (*speaker.networks, *speaker.aggregates)]
    assert announced and not any(net.overlaps(management.prefix) for net in announced)
    assert {neighbor.interface for speaker in plan.speakers for neighbor in speaker.neighbors}.isdisjoint({"mgmt0"})


def test_a_view_of_another_network_has_nothing_of_it(lab: Lab, plan: LabPlan) -> None:
    assert plan.of_network("frontend").management is None and lab.of_network("frontend").out_of_band is None
    seen, planned = lab.of_network("management"), plan.of_network("management")
    assert {node.name for node in seen.nodes} == {node.name for node in lab.nodes}
    assert planned.management == plan.management and planned.hosts == () and planned.switches == ()
    assert list(planned.ports) == ports(plan)
    assert lab.data_networks == ("backend", "frontend") and "management" in lab.network_names


def test_its_own_nodes_are_namespaces_where_all_others_are_containers() -> None:
    text = TEXT.replace("qos: {preset: uec}\n", "").partition("  frontend")[0] + TEXT[TEXT.index("  management") :]
    lab = load_topology_text(text + "topology: {defaults: {runtime: docker}}\n", file="dc.yml")
    runtimes = {node.name: node.runtime for node in lab.nodes}
    assert {name for name, runtime in runtimes.items() if runtime == "netns"} == {"mgmt-sw1", "mgmt1"}
    guarded = {item.node for item in plan_lab(lab, k=1000).operations if isinstance(item, GuardManagement)}
    assert guarded == set(runtimes) - {"mgmt-sw1"}


def test_hosts_are_a_community_of_the_switch_where_there_is_slurm() -> None:
    text = TEXT.replace("design: out-of-band", "design: out-of-band, services: [slurm]")
    assert text != TEXT
    found = plan_lab(load_topology_text(text, file="dc.yml"), k=1000)
    (community,) = (item for item in found.operations if isinstance(item, FormCommunity))
    ends = {port.peer.partition(":")[0]: port.ifindex for port in found.ports if port.node == "mgmt-sw1"}
    hosts = {host.node for host in found.hosts}
    assert set(community.nodes) == {ends[node] for node in ends if node != "mgmt1"}
    assert set(community.hosts) == {ends[node] for node in hosts}
    isolated = {item.ifindex for item in found.operations if isinstance(item, SetBridgePort) and item.isolated}
    assert isolated == set(community.nodes) - set(community.hosts)
    kinds = [type(item).__name__ for item in found.operations]
    assert kinds.index("FormCommunity") < kinds.index("SetUp")
