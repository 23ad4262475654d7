"""Which NIC is which rank."""

import pytest
from fake_lab import small_lab

from testbed.base.errors import ScenarioError
from testbed.base.units import ByteCount, Duration
from testbed.lab.core.model import BACKEND
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.link_delays import WirePaths
from testbed.lab.core.schema.load import load_topology_text
from testbed.run.ideals.fabric_graph import fabric_graph
from testbed.run.ideals.point_ideals import PointIdeals
from testbed.run.placed.channels import plan_channels
from testbed.run.placed.lab import PlannedLab
from testbed.run.placed.placement import RankPlacement, place_ranks
from testbed.run.placed.traffic import RunTraffic, make_traffic
from testbed.run.schema.model import RankOrder, Ranks, Scenario, TopologyRef, Transport, TransportKind, Workload

LAB, PLAN = small_lab(segments=2, hosts=2, rails=2, spines=2)


def asked(
    kind: str, ranks: Ranks | None = None, transport: TransportKind = TransportKind.TCP, **parameters: object
) -> Scenario:
    workload = Workload(kind=kind, parameters=parameters, ranks=ranks or Ranks())
    return Scenario(
        name="x", topology=TopologyRef(file="x.yml"), transport=Transport(kind=transport), workload=workload
    )


def placed(seed: int = 1, **choice: object) -> RankPlacement:
    return place_ranks(LAB, PLAN, Ranks(**choice), seed=seed)  # type: ignore[arg-type]


def names(placement: RankPlacement) -> list[str]:
    return [f"{nic.node.removeprefix('p1-')}:{nic.name.removeprefix('rail')}" for nic in placement.nics]


def test_host_by_host() -> None:
    found = placed()
    assert names(found) == ["s1-h1:1", "s1-h1:2", "s1-h2:1", "s1-h2:2", "s2-h1:1", "s2-h1:2", "s2-h2:1", "s2-h2:2"]
    assert found.ranks_per_domain == 2
    assert found.rails == ((0, 2, 4, 6), (1, 3, 5, 7))
    assert found.leaf(2) == "p1-s1-rail1" and found.host(2) == "p1-s1-h2"


def test_rail_by_rail() -> None:
    found = placed(order=RankOrder.RAIL)
    assert names(found) == ["s1-h1:1", "s1-h2:1", "s2-h1:1", "s2-h2:1", "s1-h1:2", "s1-h2:2", "s2-h1:2", "s2-h2:2"]
    assert found.ranks_per_domain == 0


def test_spread_over_leaves() -> None:
    found = placed(order=RankOrder.SPREAD, rails=(1,))
    assert names(found) == ["s1-h1:1", "s2-h1:1", "s1-h2:1", "s2-h2:1"]
    neighbours = zip(found.nics, found.nics[1:], strict=False)
    assert all(a.peer.partition(":")[0] != b.peer.partition(":")[0] for a, b in neighbours)


def test_shuffled_by_the_seed() -> None:
    one, same, other = (placed(seed, order=RankOrder.SHUFFLED) for seed in (3, 3, 4))
    assert names(one) == names(same) != names(other)
    assert sorted(names(one)) == sorted(names(placed()))


def test_some_hosts_rails_and_a_number() -> None:
    assert names(placed(hosts=("p1-s2-*",), rails=(2,))) == ["s2-h1:2", "s2-h2:2"]
    assert names(placed(count=3)) == ["s1-h1:1", "s1-h1:2", "s1-h2:1"]
    assert placed(count=3).ranks_per_domain == 0


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"hosts": ("p1-s1-h9",)}, "no host of fake is called p1-s1-h9"),
        ({"rails": (3,)}, "fake has no rail 3"),
        ({"count": 9}, "9 ranks are asked for; the chosen hosts have 8 NICs"),
    ],
)
def test_what_the_lab_does_not_have(choice: dict[str, object], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        placed(**choice)


TWO_NETWORKS = """
name: two
fabric: {design: rail-optimized, segments: 1, hosts: 3, gpus: 2, spines: 1, nic: {rate: 400G}}
networks:
  frontend: {design: single-switch, nic: {rate: 100G}}
"""


def two_networks(*tenants: dict[str, object]) -> tuple[Scenario, PlannedLab, RunTraffic]:
    """Traffic on the six NICs of the back end, ranks 0 to 5, and the three of the front end."""
    model = load_topology_text(TWO_NETWORKS, file="two.yml")
    lab = PlannedLab(model=model, plan=plan_lab(model, k=1000)).of_network(BACKEND, "frontend")
    scenario = asked("tenants", Ranks(networks=(BACKEND, "frontend")), tenants=tenants)
    return scenario, lab, make_traffic(scenario, lab, seed=1)


def test_nics_of_one_network_after_those_of_the_other() -> None:
    ring = {"name": "ring", "ranks": (0, 1, 2, 3), "workload": {"kind": "all-reduce", "bytes": ByteCount(4096)}}
    mice = {"name": "mice", "ranks": (6, 7, 8), "workload": {"kind": "mice", "span": Duration.parse("1ms")}}
    scenario, lab, traffic = two_networks(ring, mice)
    found = traffic.placement
    assert [nic.network for nic in found.nics] == [BACKEND] * 6 + ["frontend"] * 3
    assert [nic.node for nic in found.nics] == [f"p1-s1-h{host}" for host in (1, 1, 2, 2, 3, 3, 1, 2, 3)]
    assert found.ranks_per_domain == 0
    # The ring's own ranks share hosts by two, and it goes round by the scale-up network first.
    inside = [step for step in traffic.workload.transfers if step.scale_up]
    assert inside and all(found.host(step.source) == found.host(step.destination) for step in inside)
    # Bus bandwidth is a share of what the ring's own NICs have, however slow those of the others are.
    assert PointIdeals.of(scenario, lab, [traffic]).nic_bps == 400e6


def test_the_slowest_nic_that_sends_is_the_bound() -> None:
    scenario, lab, traffic = two_networks(
        {"name": "ring", "ranks": (0, 2, 4), "workload": {"kind": "all-reduce", "bytes": ByteCount(4096)}}
    )
    assert PointIdeals.of(scenario, lab, [traffic]).nic_bps == 400e6


ROUTED = """name: r
fabric: {design: rail-optimized, hosts: 4, gpus: 1, segments: 1, spines: 1}
networks:
  frontend: {homing: routed, nic: {ports: 2, rate: 100G}}
"""


def of_hosts(homing: str, kind: str) -> tuple[Scenario, PlannedLab, RunTraffic]:
    ranks = Ranks(networks=("frontend",))
    scenario = asked("permutation", ranks, TransportKind(kind), bytes=ByteCount(1_000_000))
    lab = load_topology_text(ROUTED.replace("routed", homing), file="r.yml")
    planned = PlannedLab(model=lab, plan=plan_lab(lab, k=1000)).of_network("frontend")
    return scenario, planned, make_traffic(scenario, planned, seed=1)


@pytest.mark.parametrize(("homing", "nic"), [("routed", "fe1"), ("mlag", "fe0")])
def test_a_nic_of_several_ports_with_one_address_sends_by_all_of_them(homing: str, nic: str) -> None:
    scenario, lab, traffic = of_hosts(homing, "tcp")
    assert [one.name for one in traffic.placement.nics] == [nic] * 4
    ideals = PointIdeals.of(scenario, lab, [traffic])
    assert ideals.nic_bps == 200e6
    time_s = ideals.pattern_ideal_s(traffic)
    assert time_s is not None and 8e6 / 200e6 < time_s < 1.1 * 8e6 / 200e6


@pytest.mark.parametrize("homing", ["routed", "mlag"])
@pytest.mark.parametrize("kind", ["uet", "roce"])
def test_what_sends_by_one_port_has_no_ranks_where_an_address_is_behind_several(homing: str, kind: str) -> None:
    with pytest.raises(ScenarioError, match=f"{kind} sends by one port, and p1-s1-h1 has one address behind 2 ports"):
        of_hosts(homing, kind)


def test_link_groups_of_the_back_end_are_named_by_its_own_key() -> None:
    text = (
        "name: m\nfabric: {design: rail-optimized, segments: 1, hosts: 2, gpus: 1, spines: 1,"
        " nic: {ports: 2, multihoming: mlag}}\n"
    )
    model = load_topology_text(text, file="m.yml")
    lab = PlannedLab(model=model, plan=plan_lab(model, k=1000))
    with pytest.raises(ScenarioError, match="sends by one port") as caught:
        make_traffic(asked("permutation", transport=TransportKind.ROCE, bytes=ByteCount(1_000_000)), lab, seed=1)
    assert "nic: {multihoming: subnets}" in str(caught.value.hint)


def test_nobody_sends_from_one_network_to_another() -> None:
    across = {"name": "across", "ranks": (0, 7), "workload": {"kind": "point-to-point", "bytes": ByteCount(4096)}}
    with pytest.raises(ScenarioError, match=r"rank 0 \(p1-s1-h1:rail1\) is in network backend, and rank 7"):
        two_networks(across)


IN_TENANTS = """
name: two
fabric: {design: rail-optimized, segments: 1, hosts: 4, gpus: 2, spines: 1, nic: {rate: 400G}, overlay: evpn}
tenants:
  red: {subnets: {web: {prefix: 10.250.0.0/24, nics: ["p1-s1-h1:rail1", "p1-s1-h2:rail2"]}}}
  blue: {subnets: {web: {prefix: 10.250.0.0/24, nics: ["p1-s1-h3:rail1", "p1-s1-h4:rail2"]}}}
"""


def in_tenants(*names: str, kind: str = "point-to-point") -> RunTraffic:
    model = load_topology_text(IN_TENANTS, file="two.yml")
    lab = PlannedLab(model=model, plan=plan_lab(model, k=1000))
    return make_traffic(asked(kind, Ranks(tenants=names), bytes=ByteCount(4096)), lab, seed=1)


def test_the_nics_of_a_tenant_and_of_none() -> None:
    red = in_tenants("red").placement.nics
    assert [f"{nic.node}:{nic.name}" for nic in red] == ["p1-s1-h1:rail1", "p1-s1-h2:rail2"]
    assert [str(nic.address) for nic in red] == ["10.250.0.2/24", "10.250.0.3/24"]
    assert [nic.tenant for nic in in_tenants("none").placement.nics] == [""] * 4
    both = in_tenants("blue", "none").placement.nics
    assert [nic.tenant for nic in both] == ["blue"] * 2 + [""] * 4
    with pytest.raises(ScenarioError, match=r"p1-s1-h1:rail1 is in the tenant red"):
        in_tenants()


OUTSIDE = """
name: outside
fabric: {design: rail-optimized, segments: 1, hosts: 4, gpus: 1, spines: 1}
networks:
  frontend: {leaves: 2, spines: 1, nic: {ports: 1, rate: 100G}, uplink: {rate: 100G, count: 1}, overlay: evpn}
tenants:
  red:
    external: {leaf: fe-leaf1, asn: 64999, prefixes: [198.51.100.0/24], rate: 40G}
    subnets: {web: {prefix: 10.201.0.0/24, nics: ["p1-s1-h1:fe1", "p1-s1-h3:fe1"]}}
  blue: {subnets: {web: {prefix: 10.201.0.0/24, nics: ["p1-s1-h2:fe1"]}}}
"""


def from_outside(*externals: str, kind: TransportKind = TransportKind.TCP) -> tuple[Scenario, PlannedLab]:
    model = load_topology_text(OUTSIDE, file="outside.yml")
    ranks = Ranks(tenants=("red",), externals=externals)
    times = {key: Duration.parse(value) for key, value in (("span", "10ms"), ("prefill", "10us"), ("tpot", "1us"))}
    scenario = asked("inference-requests", ranks, kind, clients=1, requests_per_s=1000.0, **times)
    lab = PlannedLab(model=model, plan=plan_lab(model, k=1000))
    return scenario, lab.of_network(*ranks.networks_in(model))


def test_routers_outside_are_the_first_ranks() -> None:
    scenario, lab = from_outside("red")
    traffic = make_traffic(scenario, lab, seed=1)
    nics = traffic.placement.nics
    assert [(nic.node, str(nic.address)) for nic in nics] == [
        ("red-external", "198.51.100.1/24"),
        ("p1-s1-h1", "10.201.0.2/24"),
        ("p1-s1-h3", "10.201.0.3/24"),
    ]
    assert {(one.client, one.server) for one in traffic.workload.requests} == {(0, 1), (0, 2)}
    with pytest.raises(ScenarioError, match=r"the tenant blue has no router outside"):
        make_traffic(from_outside("blue")[0], lab, seed=1)
    with pytest.raises(ScenarioError, match=r"the port of a router outside has no address that uet"):
        make_traffic(*from_outside("red", kind=TransportKind.UET), seed=1)


def test_ideals_of_the_way_from_outside() -> None:
    """At k = 1000: the access link at 40 Mbit/s, and to h3 two more hops of 100 Mbit/s that carry VXLAN."""
    scenario, lab = from_outside("red")
    traffic = make_traffic(scenario, lab, seed=1)
    ideals = PointIdeals.of(scenario, lab, [traffic])
    plain = 8 * 78 / 40e6 + 3 * 8 * 78 / 100e6
    assert ideals.base_rtt_s == pytest.approx(2 * (plain + 2 * 8 * 50 / 100e6), rel=1e-4)
    assert ideals.nic_bps == 40e6
    assert ideals.tiers["red-external:uplink1"] == "access"
    graph = fabric_graph(lab.model, lab.plan)
    there = graph.paths("red-external:uplink1", "p1-s1-h3:fe1")
    assert [graph.links[number].name for number in next(iter(there))] == [
        "red-external:uplink1",
        "fe-leaf1:uplink1",
        "fe-spine1:down2",
        "fe-leaf2:down1",
    ]


def test_no_rank_talks_to_one_of_another_tenant() -> None:
    with pytest.raises(ScenarioError, match=r"in the tenant red, and rank 2 .* talks to, in the tenant blue"):
        in_tenants("red", "blue", kind="all-reduce")


def test_packets_of_tenants_are_wrapped_between_switches() -> None:
    model = load_topology_text(IN_TENANTS, file="two.yml")
    plan = plan_lab(model, k=1000)
    paths = WirePaths(plan.ports, [host.node for host in plan.hosts])
    wrapped, plain = paths.path("p1-s1-h1:rail1", "p1-s1-h2:rail2"), paths.path("p1-s1-h1:rail2", "p1-s1-h2:rail1")
    assert wrapped.rates_bps == plain.rates_bps and len(wrapped.wrapped_bps) == 2 and not plain.wrapped_bps
    more = sum(8 * 50 * 10**9 // rate for rate in wrapped.wrapped_bps)
    assert wrapped.base_rtt_ns(78) - plain.base_rtt_ns(78) == 2 * more


def test_ranks_of_a_network_that_another_one_carries_are_its_ports() -> None:
    lab = load_topology_text(
        "name: conv\nfabric: {design: rail-optimized, segments: 1, hosts: 3, gpus: 1, spines: 1}\n"
        "networks:\n  frontend: {overlay: evpn}\n  storage: {on: frontend}\n",
        file="conv.yml",
    )
    plan = plan_lab(lab, k=1000)

    def of(*networks: str) -> list[str]:
        seen, planned = lab.of_network(*networks), plan.of_network(*networks)
        found = place_ranks(seen, planned, Ranks(networks=networks), seed=1)
        return [f"{nic.node.removeprefix('p1-s1-')}:{nic.name}" for nic in found.nics]

    assert of("storage") == ["h1:st1", "h2:st1", "h3:st1"]
    assert of("frontend") == ["h1:fe1", "h2:fe1", "h3:fe1"]
    assert of("storage", "frontend") == [*of("storage"), *of("frontend")]
    graph = fabric_graph(lab.of_network("storage"), plan.of_network("storage"))
    assert set(graph.group_of) >= {"p1-s1-h1:st1", "p1-s1-h2:st1"} and "p1-s1-h1:fe1" not in graph.group_of
    ways = {graph.links[hop].name for hop in graph.next_hops("fe-leaf1", "p1-s1-h3:st1")}
    assert ways == {"fe-leaf1:uplink1", "fe-leaf1:uplink2"}, "over the switches of the front end"


def test_storage_targets_are_the_last_ranks_where_they_are_asked_for() -> None:
    text = """name: x
fabric: {design: rail-optimized, hosts: 3, gpus: 1, spines: 1}
networks:
  storage: {targets: {flash: {count: 2}, disk: {}}}
  other: {targets: {tape: {}}}
"""
    lab = load_topology_text(text, file="x.yml")
    plan = plan_lab(lab, k=1000)

    def nodes(**choice: object) -> list[str]:
        return [nic.node for nic in place_ranks(lab, plan, Ranks(**choice), seed=1).nics]  # type: ignore[arg-type]

    hosts = ["p1-s1-h1", "p1-s1-h2", "p1-s1-h3"]
    assert nodes(networks=("storage",)) == hosts
    assert nodes(networks=("storage",), targets=("*",)) == [*hosts, "flash1", "flash2", "disk"]
    assert nodes(networks=("storage",), targets=("flash*",), count=1) == ["p1-s1-h1", "flash1", "flash2"]
    assert nodes(networks=("other", "storage"), targets=("tape",)) == [*hosts, *hosts, "tape"]
    with pytest.raises(ScenarioError, match="no storage target of x in the networks of the ranks is called tape"):
        nodes(networks=("storage",), targets=("tape",))
    with pytest.raises(ScenarioError, match="no host of x is called flash1"):
        nodes(networks=("storage",), hosts=("flash1",))


def test_targets_of_the_back_end_are_ranks_by_their_nics_on_the_rails_that_are_asked_for() -> None:
    text = """name: x
fabric: {design: rail-optimized, hosts: 2, gpus: 2, spines: 1, targets: {flash: {count: 2}, disk: {rails: [2]}}}
networks: {storage: {targets: {tape: {}}}}
"""
    lab = load_topology_text(text, file="x.yml")
    plan = plan_lab(lab, k=1000)

    def nics(**choice: object) -> list[str]:
        found = place_ranks(lab, plan, Ranks(targets=("*",), count=1, **choice), seed=1)  # type: ignore[arg-type]
        return [f"{nic.node}:{nic.name}" for nic in found.nics[1:]]

    flash = [f"flash{number}:rail{rail}" for number in (1, 2) for rail in (1, 2)]
    assert nics() == [*flash, "disk:rail2"]
    assert nics(rails=(1,)) == ["flash1:rail1", "flash2:rail1"]
    assert nics(networks=("storage", "backend"), rails=(1,)) == ["flash1:rail1", "flash2:rail1", "tape:st1"]
    per_rail = place_ranks(lab, plan, Ranks(targets=("flash*",)), seed=1).rails
    assert per_rail == ((0, 2, 4, 6), (1, 3, 5, 7)), "a rail's hosts, then the NICs that targets have on it"


TWO_PLANES = """name: planes
scale: {time: 1000}
fabric: {design: dual-plane, segments: 1, hosts: 3, gpus: 2, spines: 1}
"""
A_PLANE_EACH = """name: planes
scale: {time: 1000}
fabric: {design: multi-plane, segments: 1, hosts: 3, gpus: 2, spines: 1, uplink: {count: 1}}
"""


def made(
    text: str,
    kind: str = "all-to-all",
    ranks: Ranks | None = None,
    transport: TransportKind = TransportKind.UET,
    **parameters: object,
) -> RunTraffic:
    model = load_topology_text(text, file="planes.yml")
    lab = PlannedLab(model=model, plan=plan_lab(model, k=1000.0))
    return make_traffic(asked(kind, ranks, transport, bytes=ByteCount(60_000), **parameters), lab, seed=1)


@pytest.mark.parametrize(("text", "planes"), [(TWO_PLANES, 2), (A_PLANE_EACH, 2)])
def test_every_plane_runs_the_workload_by_itself(text: str, planes: int) -> None:
    """No transfer has its ends in two planes, and all ranks of a plane talk to each other."""
    traffic = made(text)
    letters = [traffic.placement.leaf(rank)[-1] for rank in range(len(traffic.placement.nics))]
    pairs = {(step.source, step.destination) for step in traffic.workload.transfers}
    assert {letters[a] == letters[b] for a, b in pairs} == {True}
    for letter in "ab":
        members = [rank for rank, one in enumerate(letters) if one == letter]
        assert {(a, b) for a in members for b in members if a != b} <= pairs


def test_a_plane_alone_may_be_chosen() -> None:
    traffic = made(TWO_PLANES, ranks=Ranks(planes=(2,)))
    assert {nic.name[-1] for nic in traffic.placement.nics} == {"b"}
    with pytest.raises(ScenarioError, match=r"planes has no plane c\n.*its planes are a to b"):
        made(TWO_PLANES, ranks=Ranks(planes=(3,)))


def test_a_flow_rides_one_plane() -> None:
    """Both ends of every channel of TCP, RoCE and UET have addresses of one plane."""
    traffic = made(TWO_PLANES)
    nics = traffic.placement.nics
    plan = plan_channels(traffic.workload, nics, seed=1)
    assert plan.channels
    assert {nics[one.source].name[-1] == nics[one.destination].name[-1] for one in plan.channels} == {True}


def test_joined_ports_are_one_rank() -> None:
    """Of four NICs each sends to one: UET in both planes, half of it each; RoCE and TCP in one of them."""
    text = TWO_PLANES.replace("hosts: 3, gpus: 2", "hosts: 4, gpus: 1")
    sizes = {}
    for kind in (TransportKind.UET, TransportKind.ROCE, TransportKind.TCP):
        traffic = made(text, "permutation", Ranks(joined=True), transport=kind)
        nics = traffic.placement.nics
        sizes[kind] = [step.size_bytes for step in traffic.workload.transfers]
        assert {nics[step.source].name[-1] == nics[step.destination].name[-1] for step in traffic.workload.transfers}
    assert sizes[TransportKind.UET] == [30_000] * 8
    assert sizes[TransportKind.ROCE] == sizes[TransportKind.TCP] == [60_000] * 4


def test_a_collective_of_joined_ports_has_its_share_in_each_plane() -> None:
    traffic = made(TWO_PLANES, "all-reduce", Ranks(joined=True), algorithm="ring")
    assert [(one.size_bytes, len(one.ranks)) for one in traffic.workload.collectives] == [(30_000, 6), (30_000, 6)]


def test_ports_of_one_plane_cannot_be_joined() -> None:
    with pytest.raises(ScenarioError, match="no ports in several planes"):
        made(A_PLANE_EACH, "permutation", Ranks(joined=True))
