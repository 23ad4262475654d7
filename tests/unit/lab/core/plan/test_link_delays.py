"""Who realises a delay, the operations for it, and the delays of paths."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from random import Random

import pytest

from testbed.base.errors import CapabilityError, PlanError
from testbed.base.units import Duration
from testbed.lab.core.fabric import generate_fabric
from testbed.lab.core.fabric.params import FabricParams, NicParams, UplinkParams
from testbed.lab.core.model import Delay, DelayBy, Lab
from testbed.lab.core.model.qos import QosPolicy
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.lab.core.plan.link_delays import (
    WireCapabilities,
    WirePaths,
    check_losses,
    decide_delay,
    delay_operation,
    has_delays,
    mechanism,
    mechanism_text,
)
from testbed.lab.core.plan.operations import DelayPort

FULL = WireCapabilities(netem="", ifb="")
WITHOUT_NETEM = WireCapabilities(netem="Specified qdisc kind is unknown", ifb="")


def lab_with(delay: Delay | None, **params: object) -> Lab:
    chosen: dict[str, object] = {"design": "rail-optimized", "segments": 2, "hosts": 2, "gpus": 2, "spines": 2}
    return generate_fabric(FabricParams(**(chosen | {"uplink": UplinkParams(delay=delay)} | params)), name="x")  # type: ignore[arg-type]


def delay_of(text: str, by: DelayBy = DelayBy.AUTO, jitter: str = "0ns") -> Delay:
    return Delay(value=Duration.parse(text), by=by, jitter=Duration.parse(jitter))


@pytest.mark.parametrize(
    ("by", "capabilities", "found"),
    [
        (DelayBy.AUTO, FULL, DelayBy.KERNEL),
        (DelayBy.AUTO, WITHOUT_NETEM, DelayBy.ENDPOINT),
        (DelayBy.ENDPOINT, FULL, DelayBy.ENDPOINT),
        (DelayBy.KERNEL, FULL, DelayBy.KERNEL),
        (DelayBy.IGNORE, FULL, DelayBy.IGNORE),
        (DelayBy.IGNORE, WITHOUT_NETEM, DelayBy.IGNORE),
    ],
)
def test_who_realises_a_delay(by: DelayBy, capabilities: WireCapabilities, found: DelayBy) -> None:
    lab = lab_with(delay_of("500ns", by))
    plan = plan_lab(lab, k=1000, auto_delay=decide_delay(lab, capabilities))
    fabric = [port for port in plan.ports if port.rail == 0]
    assert {port.delay_by for port in fabric} == {found}
    assert {port.delay_ns for port in fabric} == {0 if found is DelayBy.IGNORE else 500_000}
    assert {port.delay_by for port in plan.ports if port.rail} == {DelayBy.IGNORE}
    operations = [item for item in plan.operations if isinstance(item, DelayPort)]
    assert len(operations) == (len(fabric) if found is DelayBy.KERNEL else 0)


def test_kernel_without_netem_names_the_option() -> None:
    lab = lab_with(delay_of("500ns", DelayBy.KERNEL))
    with pytest.raises(CapabilityError) as raised:
        decide_delay(lab, WITHOUT_NETEM)
    assert raised.value.missing == "CONFIG_NET_SCH_NETEM"
    assert "p1-s1-rail1:uplink1" in raised.value.message
    assert "by: endpoint" in (raised.value.hint or "")
    with pytest.raises(CapabilityError, match="CONFIG_IFB"):
        decide_delay(lab, WireCapabilities(netem="", ifb="Unknown device type"))
    without_mirred = WireCapabilities(netem="", ifb="", mirred="Failed to load TC action module")
    old = WireCapabilities(netem="", ifb="", redirect="this is 6.1.0")
    with pytest.raises(CapabilityError, match="CONFIG_NET_ACT_MIRRED"):
        decide_delay(lab, without_mirred)
    assert decide_delay(lab, old) is DelayBy.KERNEL
    with_qos = replace(lab, qos=QosPolicy(profiles=()))
    assert decide_delay(with_qos, without_mirred) is DelayBy.KERNEL
    with pytest.raises(CapabilityError, match=r"Linux 6\.4"):
        decide_delay(with_qos, old)


def test_a_delay_of_nothing_needs_nobody() -> None:
    assert mechanism(None, DelayBy.KERNEL) is DelayBy.IGNORE
    assert mechanism(delay_of("0ns", DelayBy.KERNEL), DelayBy.KERNEL) is DelayBy.IGNORE
    assert mechanism(delay_of("0ns", jitter="1us"), DelayBy.KERNEL) is DelayBy.KERNEL
    assert not has_delays(lab_with(delay_of("0ns", DelayBy.KERNEL)))
    assert not has_delays(lab_with(delay_of("1us", DelayBy.IGNORE)))
    assert has_delays(lab_with(delay_of("1us")))
    assert decide_delay(lab_with(delay_of("0ns", DelayBy.KERNEL)), WITHOUT_NETEM) is DelayBy.ENDPOINT


def test_the_ifb_stands_at_the_receiver_and_holds_what_is_on_the_wire() -> None:
    lab = lab_with(delay_of("5us", jitter="1us"))
    plan = plan_lab(lab, k=1000, auto_delay=DelayBy.KERNEL)
    names = [f"{port.node}:{port.name}" for port in plan.ports]
    for item in (item for item in plan.operations if isinstance(item, DelayPort)):
        port = plan.ports[item.port - 1]
        assert names[item.port - 1] == f"{item.node}:{item.name}"
        assert (item.delay_ns, item.jitter_ns) == (5_000_000, 1_000_000)
        # Two bandwidth-delay products of the smallest frames: 400 Mbit/s x (5 + 4 x 1) ms are 7,031 frames of 64 bytes.
        assert item.limit_packets == 2 * (port.rate_bps * 9 // 1000 // 512)
        assert item.ifb_name[0] == "_", "no interface in a topology may be called so"
        assert len(item.ifb_name) <= 15
    indexes = [(item.node, item.ifb_ifindex) for item in plan.operations if isinstance(item, DelayPort)]
    assert len(set(indexes)) == len(indexes)
    assert not {(port.node, port.ifindex) for port in plan.ports} & set(indexes)
    text = str(next(item for item in plan.operations if isinstance(item, DelayPort)))
    assert text.startswith("delay what p1-s1-rail1:uplink1 receives by 5 ms +- 1 ms, at most")


def test_only_a_lab_without_qos_makes_its_own_clsact() -> None:
    port = plan_lab(lab_with(None), k=1000).ports[0]
    for has_qos in (False, True):
        item = delay_operation(port, 1, rate_bps=1, delay_ns=1, jitter_ns=0, has_qos=has_qos)
        assert item.clsact is not has_qos
        assert item.limit_packets == 1000


def paths_of(lab: Lab, auto: DelayBy = DelayBy.ENDPOINT, k: float = 1000) -> WirePaths:
    return WirePaths(plan_lab(lab, k=k, auto_delay=auto).ports, [node.name for node in lab.hosts])


def test_delay_of_a_path_counts_its_links_once_each() -> None:
    paths = paths_of(lab_with(delay_of("500ns")))
    same_rail = paths.path("p1-s1-h1:rail1", "p1-s1-h2:rail1")
    assert (same_rail.switches, same_rail.delay_ns) == (1, 0)
    far = paths.path("p1-s1-h1:rail1", "p1-s2-h2:rail2")
    assert (far.switches, far.endpoint_ns, far.kernel_ns) == (3, 1_000_000, 0)
    assert len(far.rates_bps) == 4
    assert paths.path("p1-s1-h1:rail1", "p1-s2-h2:rail2").endpoint_ns == 1_000_000


def test_transports_hold_nothing_where_the_kernel_does() -> None:
    paths = paths_of(lab_with(delay_of("500ns")), DelayBy.KERNEL)
    assert paths.path("p1-s1-h1:rail1", "p1-s2-h1:rail1").endpoint_ns == 0
    assert paths.path("p1-s1-h1:rail1", "p1-s2-h1:rail1").kernel_ns == 1_000_000


def test_base_rtt_of_a_path() -> None:
    model = paths_of(lab_with(delay_of("500ns"))).path("p1-s1-h1:rail1", "p1-s2-h1:rail1")
    nic, uplink = model.rates_bps[0], model.rates_bps[1]
    one_way = 1_000_000 + 2 * (8 * 1000 * 10**9 // nic) + 2 * (8 * 1000 * 10**9 // uplink)
    assert model.base_rtt_ns(1000) == 2 * one_way


def test_equal_cost_paths_of_different_delays_count_as_the_longest() -> None:
    plan = plan_lab(lab_with(delay_of("500ns")), k=1000)
    slow = [
        replace(port, delay_ns=3_000_000) if (port.node, port.name) == ("p1-s1-rail1", "uplink2") else port
        for port in plan.ports
    ]
    hosts = [host.node for host in plan.hosts]
    model = WirePaths(slow, hosts).path("p1-s1-h1:rail1", "p1-s2-h1:rail1")
    assert (model.delay_ns, model.least_ns) == (3_500_000, 1_000_000)
    back = WirePaths(slow, hosts).path("p1-s2-h1:rail1", "p1-s1-h1:rail1")
    assert (back.delay_ns, back.least_ns) == (1_000_000, 1_000_000), "a change acts in one direction"


def test_no_path_through_hosts_or_nowhere() -> None:
    paths = paths_of(lab_with(None))
    with pytest.raises(PlanError, match="belong to one host"):
        paths.path("p1-s1-h1:rail1", "p1-s1-h1:rail2")
    with pytest.raises(PlanError, match="is not a port"):
        paths.path("p1-s1-h1:rail1", "p1-s1-h9:rail1")
    planes = generate_fabric(
        FabricParams(design="dual-switch", segments=1, hosts=2, gpus=2, nic=NicParams(ports=2)), name="x"
    )
    a, b = (nic for nic in plan_lab(planes, k=1000).hosts[0].nics if nic.rail == 1)
    others = [f"p1-s1-h2:{nic.name}" for nic in (a, b)]
    assert paths_of(planes).path(f"p1-s1-h1:{a.name}", others[0]).switches == 1
    with pytest.raises(PlanError, match="no path leads"):
        paths_of(planes).path(f"p1-s1-h1:{a.name}", others[1])


def test_hosts_back_to_back() -> None:
    plan = plan_lab(lab_with(None), k=1000)
    a = replace(plan.ports[0], node="a", name="x", peer="b:y", delay_ns=7, delay_by=DelayBy.ENDPOINT)
    b = replace(plan.ports[1], node="b", name="y", peer="a:x")
    model = WirePaths([a, b], ["a", "b"]).path("a:x", "b:y")
    assert (model.switches, model.delay_ns) == (0, 7)


def test_loss_needs_the_data_path() -> None:
    lab = lab_with(None)
    lossy = replace(lab, links=(replace(lab.links[0], loss=0.01), *lab.links[1:]))
    check_losses(lab)
    with pytest.raises(PlanError, match="needs the eBPF data path") as raised:
        plan_lab(lossy, k=1000)
    assert raised.value.code == "loss-without-qos"


def test_the_mechanism_in_words() -> None:
    assert mechanism_text(plan_lab(lab_with(None), k=1000).ports) == ""
    lab = lab_with(delay_of("1us"))
    assert "netem" in mechanism_text(plan_lab(lab, k=1000, auto_delay=DelayBy.KERNEL).ports)
    assert "TCP and kernel RDMA get none" in mechanism_text(plan_lab(lab, k=1000).ports)


def every_way(ports: Sequence[PortPlan], source: str, target: str) -> list[list[PortPlan]]:
    """All shortest ways between two switches, port by port."""
    leaving: dict[str, list[PortPlan]] = {}
    for port in ports:
        leaving.setdefault(port.node, []).append(port)
    ways: list[list[PortPlan]] = [[]] if source == target else [[port] for port in leaving[source]]
    while ways:
        found = [way for way in ways if (way[-1].peer.partition(":")[0] if way else source) == target]
        if found:
            return found
        ways = [[*way, port] for way in ways for port in leaving.get(way[-1].peer.partition(":")[0], ())]
    return []


@pytest.mark.parametrize("seed", range(6))
def test_paths_are_those_of_a_walk_for_each_pair(seed: int) -> None:
    """Leaves that are alike share what was found for one of them: of links that differ, that must not show."""
    random = Random(seed)
    params = FabricParams(design="rail-optimized", pods=2, segments=3, hosts=1, gpus=2, spines=2, super_spines=2)
    plan = plan_lab(generate_fabric(params, name="x"), k=1000, auto_delay=DelayBy.KERNEL)
    some = [
        replace(port, delay_ns=random.choice((0, 500, 500, 900))) if random.random() < seed / 8 else port
        for port in plan.ports
    ]
    hosts = [host.node for host in plan.hosts]
    paths, nics = WirePaths(some, hosts), {f"{port.node}:{port.name}": port for port in some}
    between = [port for port in some if port.node not in hosts and port.peer.partition(":")[0] not in hosts]
    ends = [name for name, port in nics.items() if port.node in hosts]
    for a, b in product(ends, ends):
        if nics[a].node == nics[b].node:
            continue
        source, target = (nics[end].peer.partition(":")[0] for end in (a, b))
        last = nics[nics[b].peer]
        totals = [sum(port.delay_ns for port in (nics[a], *way, last)) for way in every_way(between, source, target)]
        model = paths.path(a, b)
        assert (model.least_ns, model.delay_ns) == (min(totals), max(totals))
        assert model.switches == len(model.rates_bps) - 1


def test_a_fabric_is_walked_through_once_for_each_kind_of_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    params = FabricParams(design="rail-optimized", pods=2, segments=8, hosts=2, gpus=1, spines=4, super_spines=4)
    plan = plan_lab(generate_fabric(params, name="x"), k=1000)
    walked: list[str] = []
    walk = WirePaths._walk
    monkeypatch.setattr(WirePaths, "_walk", lambda self, source: walked.append(source) or walk(self, source))
    paths = WirePaths.of(plan)
    nics = [host.nics[0].wire for host in plan.hosts]
    for a, b in product(nics, nics):
        if a.partition(":")[0] != b.partition(":")[0]:
            paths.path(a, b)
    assert len(walked) == 2, "the leaves of a pod are alike"
