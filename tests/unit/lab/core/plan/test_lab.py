"""What `plan_lab` decides about hosts, hand-written links, rates, sysctls and the order of operations."""

from collections.abc import Iterable
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network

import pytest

from testbed.base.errors import PlanError
from testbed.base.units import Duration, Rate
from testbed.lab.core.fabric import FabricParams, generate_fabric
from testbed.lab.core.model import Bfd, Delay, DelayBy, End, Lab, Link, LinkKind, Node, NodeKind, Role, Routing
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan, PortPlan
from testbed.lab.core.plan.operations import (
    AddRoute,
    AddRule,
    CreateBridge,
    CreateVeth,
    SetSysctl,
    ShapePort,
    StartRouting,
)

RATE = Rate.parse("400G")


def small(**changes: int) -> Lab:
    values = {"hosts": 2, "gpus": 2, "spines": 2, **changes}
    return generate_fabric(FabricParams(design="rail-optimized", **values), name="x")


def link(a: str, b: str, kind: LinkKind = LinkKind.ROUTED, prefix: str | None = None) -> Link:
    ends = [End(node=node, interface=name) for node, name in (a.split(":"), b.split(":"))]
    network = IPv4Network(prefix) if prefix is not None else None
    return Link(a=ends[0], b=ends[1], kind=kind, rate=RATE, mtu_bytes=4500, prefix=network)


def with_probe(lab: Lab, *links: Link, hosts: Iterable[str] = ("probe1",)) -> Lab:
    nodes = tuple(Node(name=name, kind=NodeKind.HOST) for name in hosts)
    return replace(lab, nodes=lab.nodes + nodes, links=lab.links + links)


def ports(plan: LabPlan) -> dict[str, PortPlan]:
    return {f"{port.node}:{port.name}": port for port in plan.ports}


def test_access_ports_are_created_without_ipv6_and_fabric_ports_with_it() -> None:
    key = "net/ipv6/conf/default/disable_ipv6"
    off: dict[str, bool] = {}
    for operation in plan_lab(small(), k=1000).operations:
        match operation:
            case SetSysctl(node=node, key=name, value=value) if name in (key, "net/ipv6/conf/all/disable_ipv6"):
                off[node] = value == "1"
            case CreateBridge(node=node):
                assert off[node]
            case CreateVeth(a=a, b=b):
                assert [off[a.node], off[b.node]] == [not a.ipv6, not b.ipv6]
                assert a.ipv6 is b.ipv6 is a.name.startswith("uplink")
            case _:
                pass
    assert set(off) == {node.name for node in small().nodes}


def test_an_isolated_switch_with_several_rails_does_not_forward() -> None:
    lab = generate_fabric(FabricParams(design="single-switch", hosts=2, gpus=2), name="x")
    forward = {
        isolated: [
            op.value
            for op in plan_lab(replace(lab, isolated_rails=isolated), k=1000).operations
            if isinstance(op, SetSysctl) and op.key == "net/ipv4/ip_forward"
        ]
        for isolated in (False, True)
    }
    assert forward == {False: ["1"], True: ["0"]}


def test_rates_are_divided_and_delays_multiplied_by_k() -> None:
    lab = small()
    delay = Delay(value=Duration.parse("500ns"))
    links = tuple(replace(entry, delay=delay) if entry.kind is LinkKind.FABRIC else entry for entry in lab.links)
    found = ports(plan_lab(replace(lab, links=links), k=2000))
    uplink = found["p1-s1-rail1:uplink1"]
    assert (uplink.line_rate_bps, uplink.rate_bps, uplink.delay_ns) == (400 * 10**9, 200 * 10**6, 10**6)
    assert found["p1-s1-h1:rail1"].delay_ns == 0
    ignored = Delay(value=Duration.parse("500ns"), by=DelayBy.IGNORE)
    links = tuple(replace(entry, delay=ignored) for entry in lab.links)
    assert ports(plan_lab(replace(lab, links=links), k=2000))["p1-s1-rail1:uplink1"].delay_ns == 0


@pytest.mark.parametrize(("k", "burst"), [(100, 250_000), (1000, 25_000), (4000, 6250), (10**6, 25)])
def test_a_shaper_is_half_a_millisecond_ahead_at_most(k: float, burst: int) -> None:
    bursts = {op.burst_bytes for op in plan_lab(small(), k=k).operations if isinstance(op, ShapePort)}
    assert bursts == {burst}


def test_bfdd_runs_only_where_bfd_does() -> None:
    on = Bfd(interval=Duration.parse("300ms"))
    for bfd, daemons in ((on, ("zebra", "bgpd", "bfdd")), (None, ("zebra", "bgpd"))):
        params = FabricParams(design="rail-optimized", routing=Routing(bfd=bfd, bfd_auto=False))
        plan = plan_lab(generate_fabric(params, name="x"), k=1000)
        assert {op.daemons for op in plan.operations if isinstance(op, StartRouting)} == {daemons}


def test_a_routed_link_gets_a_subnet_that_the_switch_announces() -> None:
    lab = with_probe(small(), link("probe1:eth1", "p1-s1-rail1:extra1"))
    plan = plan_lab(lab, k=1000)
    host, switch = ports(plan)["probe1:eth1"], ports(plan)["p1-s1-rail1:extra1"]
    assert host.address.network == switch.address.network
    assert host.address.network.subnet_of(IPv4Network("100.64.0.0/10"))
    assert switch.address.ip + 1 == host.address.ip
    assert host.gateway == switch.address.ip
    rail_switch = next(entry for entry in plan.switches if entry.node == "p1-s1-rail1")
    assert host.address.network in rail_switch.networks
    assert host.address.network in {route.prefix for route in plan.expected_routes["p1-s1-rail2"]}


def test_the_order_of_a_routed_links_ends_does_not_matter() -> None:
    one = ports(plan_lab(with_probe(small(), link("probe1:eth1", "p1-s1-rail1:extra1")), k=1000))
    two = ports(plan_lab(with_probe(small(), link("p1-s1-rail1:extra1", "probe1:eth1")), k=1000))
    assert one == two


@pytest.mark.parametrize("prefix", ["10.0.1.0/30", "10.0.0.0/8", "172.18.0.0/31"])
def test_a_written_prefix_that_overlaps_is_refused(prefix: str) -> None:
    lab = with_probe(small(), link("probe1:eth1", "p1-s1-rail1:extra1", prefix=prefix))
    with pytest.raises(PlanError, match="overlaps") as refused:
        plan_lab(lab, k=1000)
    assert refused.value.code == "overlap"


def test_a_written_prefix_in_the_pool_is_not_given_to_another_link() -> None:
    one = link("probe1:eth1", "p1-s1-rail1:extra1")
    taken = ports(plan_lab(with_probe(small(), one), k=1000))["probe1:eth1"].address
    two = link("probe2:eth1", "p1-s1-rail1:extra2", prefix=str(taken.network))
    found = ports(plan_lab(with_probe(small(), one, two, hosts=("probe1", "probe2")), k=1000))
    assert found["probe2:eth1"].address in IPv4Network(taken.network).hosts() or found["probe2:eth1"].address == taken
    assert found["probe1:eth1"].address != taken


def test_a_prefix_without_room_for_two_is_refused() -> None:
    lab = with_probe(small(), link("probe1:eth1", "p1-s1-rail1:extra1", prefix="192.0.2.1/32"))
    with pytest.raises(PlanError, match="no room"):
        plan_lab(lab, k=1000)


def test_hosts_back_to_back_need_no_gateway_and_no_rule() -> None:
    lab = Lab(
        name="x",
        nodes=(Node(name="a", kind=NodeKind.HOST), Node(name="b", kind=NodeKind.HOST)),
        links=(link("b:eth1", "a:eth1"),),
    )
    plan = plan_lab(lab, k=1000)
    low, high = ports(plan)["a:eth1"].address, ports(plan)["b:eth1"].address
    assert low is not None and high is not None and low.ip + 1 == high.ip
    assert not [op for op in plan.operations if isinstance(op, AddRoute | AddRule)]
    assert plan.expected_routes == {}


def test_a_hand_written_host_on_a_rail_takes_a_free_address() -> None:
    access = replace(link("probe1:eth1", "p1-s1-rail1:down9", LinkKind.ACCESS), rail=1)
    found = ports(plan_lab(with_probe(small(), access), k=1000))
    address = found["probe1:eth1"].address
    assert address is not None and address.network == IPv4Network("10.0.1.0/24")
    assert address.ip not in {IPv4Address("10.0.1.1"), IPv4Address("10.0.1.2"), IPv4Address("10.0.1.3")}
    assert found["probe1:eth1"].gateway == IPv4Address("10.0.1.1")


def test_an_interface_used_twice_is_refused() -> None:
    lab = with_probe(small(), link("probe1:eth1", "p1-s1-rail1:uplink1"))
    with pytest.raises(PlanError, match="p1-s1-rail1: two things want the interface uplink1"):
        plan_lab(lab, k=1000)


def test_a_rail_without_a_subnet_is_refused() -> None:
    access = replace(link("probe1:eth1", "p1-s1-rail1:down9", LinkKind.ACCESS), rail=7)
    with pytest.raises(PlanError, match="rail 7 of p1-s1-rail1"):
        plan_lab(with_probe(small(), access), k=1000)


@pytest.mark.parametrize("k", [0, -1.0])
def test_a_time_scale_must_be_positive(k: float) -> None:
    with pytest.raises(PlanError, match="time scale"):
        plan_lab(small(), k=k)


def test_a_switch_without_a_role_is_a_rail_switch() -> None:
    lab = Lab(name="x", nodes=(Node(name="a", kind=NodeKind.SWITCH),), links=())
    assert plan_lab(lab, k=1).switches[0].role is Role.RAIL
