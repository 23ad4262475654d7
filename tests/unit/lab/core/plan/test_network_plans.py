"""Networks beside the back end as they are planned: addresses, AS numbers, routes, and what hosts do with packets."""

from collections.abc import Mapping
from ipaddress import IPv4Network

from testbed.lab.core.model import BACKEND, Lab
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import AddRoute, AddRule, InstallPort, ShapePort
from testbed.lab.core.schema.load import load_topology_text

TEXT = """name: dc
fabric: {design: rail-optimized, hosts: 4, gpus: 2, segments: 1, spines: 1}
qos: {preset: uec}
networks:
  frontend: {leaves: 2, nic: {ports: 2, rate: 100G}}
  storage: {leaves: 2, nic: {rate: 200G}, mtu: 9000, routing: {protocol: ibgp}}
"""


def test_a_network_has_the_addresses_of_its_prefix_alone(lab: Lab, plan: LabPlan) -> None:
    prefixes = {network.name: network.prefix for network in lab.networks}
    for port in plan.ports:
        if port.address is not None:
            home = prefixes.get(port.network, IPv4Network("10.0.0.0/8"))
            assert port.address.network.subnet_of(home)
    for switch in plan.switches:
        home = prefixes.get(switch.network, IPv4Network("172.16.0.0/12"))
        assert switch.loopback.ip in home
    addresses = [port.address.ip for port in plan.ports if port.address is not None]
    assert len(set(addresses)) == len(addresses)


def test_the_back_end_is_planned_as_without_the_others(plan: LabPlan) -> None:
    alone = plan_lab(load_topology_text(TEXT[: TEXT.index("networks:")], file="dc.yml"), k=1000)
    seen = plan.of_network(BACKEND)
    assert (seen.ports, seen.switches, seen.hosts) == (alone.ports, alone.switches, alone.hosts)
    assert (seen.expected_routes, seen.qos) == (alone.expected_routes, alone.qos)
    installed = [item for item in plan.operations if isinstance(item, InstallPort)]
    assert installed == [item for item in alone.operations if isinstance(item, InstallPort)]


def test_ports_of_other_networks_are_shaped_and_have_no_classes(plan: LabPlan) -> None:
    shaped = {(item.node, item.name): item.rate_bps for item in plan.operations if isinstance(item, ShapePort)}
    wanted = {(port.node, port.name): port.rate_bps for port in plan.ports if port.network != BACKEND}
    assert shaped == wanted
    assert shaped["p1-s1-h1", "fe1"] == 100_000_000 and shaped["p1-s1-h1", "st1"] == 200_000_000


def test_no_two_networks_have_a_session_or_an_as_number_in_common(plan: LabPlan) -> None:
    network_of = {switch.node: switch.network for switch in plan.switches}
    asns: Mapping[str, set[int]] = {name: set() for name in network_of.values()}
    for switch in plan.switches:
        asns[switch.network].add(switch.asn)
        assert {network_of[neighbor.remote] for neighbor in switch.neighbors} <= {switch.network}
    assert not asns["frontend"] & asns["storage"] and not asns["frontend"] & asns[BACKEND]
    assert len(asns["storage"]) == 1  # iBGP


def test_expected_routes_stay_in_their_network(lab: Lab, plan: LabPlan) -> None:
    prefixes = {network.name: network.prefix for network in lab.networks}
    for switch in plan.switches:
        home = prefixes.get(switch.network)
        for route in plan.expected_routes[switch.node]:
            assert home is None or route.prefix.subnet_of(home)
    leaf = plan.expected_routes["fe-leaf1"]
    assert {str(route.prefix): route.next_hops for route in leaf}["192.168.2.0/24"] == 2


def test_a_host_sends_what_is_for_a_network_by_its_nics_alone(plan: LabPlan) -> None:
    host = "p1-s1-h1"
    names = {port.ifindex: port.name for port in plan.ports if port.node == host}
    main = {
        (str(item.destination), item.metric): names[item.ifindex]
        for item in plan.operations
        if isinstance(item, AddRoute) and item.node == host and item.table == 254
    }
    assert main == {
        ("0.0.0.0/0", 0): "rail1",
        ("192.168.0.0/18", 0): "fe1",
        ("192.168.0.0/18", 1): "fe2",
        ("192.168.64.0/18", 0): "st1",
    }
    rules = {
        str(item.source): item.table for item in plan.operations if isinstance(item, AddRule) and item.node == host
    }
    tables = {
        item.table: names[item.ifindex]
        for item in plan.operations
        if isinstance(item, AddRoute) and item.node == host and item.destination.prefixlen == 0
    }
    assert {address: tables[table] for address, table in rules.items()} == {
        "10.0.1.2": "rail1",
        "10.0.2.2": "rail2",
        "192.168.1.2": "fe1",
        "192.168.2.2": "fe2",
        "192.168.65.2": "st1",
    }


WITH_QOS = """name: dc
fabric: {design: rail-optimized, hosts: 4, gpus: 2, segments: 1, spines: 1}
qos: {preset: uec}
networks:
  plain: {leaves: 2, short: pl}
  frontend:
    leaves: 2
    nic: {ports: 2, rate: 100G}
    qos: {preset: dcqcn, nodes: {fe-leaf1: {load_balancing: {mode: spray}}}}
"""


def test_a_network_has_classes_of_its_own_and_the_back_end_those_that_it_had() -> None:
    lab = load_topology_text(WITH_QOS, file="dc.yml")
    plan = plan_lab(lab, k=1000)
    alone = plan_lab(load_topology_text(WITH_QOS[: WITH_QOS.index("networks:")], file="dc.yml"), k=1000)
    assert plan.of_network(BACKEND).installs == alone.installs and plan.of_network(BACKEND).qos == alone.qos
    seen = plan.of_network("frontend")
    assert {(item.node, item.name) for item in seen.installs} == {(port.node, port.name) for port in seen.ports}
    assert not plan.of_network("plain").installs and plan.of_network("plain").qos is None
    assert [item.port for item in plan.installs] == list(range(1, len(plan.installs) + 1))
    assert plan.tables is not None and seen.qos is not None
    assert {plan.tables.profiles[item.profile] for item in seen.installs} == set(seen.qos.profiles)
    peers = {item.port: item for item in plan.installs}
    links = {(f"{port.node}:{port.name}", port.peer) for port in plan.ports}
    for item in seen.installs:
        peer = peers[item.peer]
        assert (f"{item.node}:{item.name}", f"{peer.node}:{peer.name}") in links
        assert plan.tables.buffers[item.buffer].node == (item.node if item.switch else "")
    assert {b.node: b.mode.value for b in seen.qos.buffers if b.node}["fe-leaf1"] == "spray"


def test_a_network_has_classes_where_the_back_end_has_none() -> None:
    lab = load_topology_text(WITH_QOS.replace("qos: {preset: uec}\n", "", 1), file="dc.yml")
    plan = plan_lab(lab, k=1000)
    assert plan.qos is None and plan.tables is not None
    assert {plan.tables.buffers[item.buffer].node for item in plan.installs if item.switch} == {
        node.name for node in lab.of_network("frontend").switches
    }
    assert all(port.network == "frontend" for port in plan.ports if f"{port.node}:{port.name}" in plan.port_numbers)
