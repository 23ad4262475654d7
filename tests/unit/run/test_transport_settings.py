"""What `transport:` means on a lab: classes, UET's parameters, delays, and how long a transfer alone should take."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_lab import small_lab

from testbed.base.errors import ScenarioError
from testbed.base.units import Duration
from testbed.lab.core.fabric.base_rtt import model_base_rtt
from testbed.lab.core.model import DelayBy
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology, load_topology_text
from testbed.protocols.uet.config import UetConfig
from testbed.run.ideals.point_ideals import PointIdeals
from testbed.run.placed.placement import RankPlacement
from testbed.run.placed.traffic import RunTraffic
from testbed.run.schema.model import Scenario, TopologyRef, Transport, TransportKind, Workload
from testbed.run.transports.registry import transport_on
from testbed.run.transports.user_space import pairs_by_host
from testbed.workload.patterns import generate_point_to_point

K = 1000.0
UEC_SPRAY = Path(__file__).parents[3] / "topologies/uec-spray.yml"
UET = TransportKind.UET
ROCE = TransportKind.ROCE
TCP = TransportKind.TCP


def lab(**changes: Any) -> Any:
    model, plan = small_lab(k=K)
    return SimpleNamespace(name="fake", model=model, plan=replace(plan, **changes))


def settings(kind: TransportKind = TCP, where: Any = None, **transport: Any) -> Any:
    return transport_on(where or lab(), Transport(kind=kind, **transport))


def traffic_class(name: str, priority: int, *, lossless: bool = False, ecn: bool = False) -> Any:
    return SimpleNamespace(name=name, priority=priority, lossless=lossless, kmin_bytes=1 if ecn else None, strict=False)


def lab_with_classes(*classes: Any, trimming: bool = False) -> Any:
    """DSCP 10 p leads to priority p; all others to 0, and 48 to 6."""
    table = [0] * 64
    for item in classes:
        if item.priority:
            table[10 * item.priority] = item.priority
    profile = SimpleNamespace(
        switch=True, classes=classes, class_of_dscp=tuple(table), trimming=trimming, control_class=6
    )
    table[48] = 6
    profile.class_of_dscp = tuple(table)
    return lab(qos=SimpleNamespace(profiles=(profile,), buffers=(), base_rtt_ns=10_000, reaction_ns=0))


BULK = traffic_class("bulk", 0)


def test_the_class_that_is_asked_for() -> None:
    where = lab_with_classes(BULK, traffic_class("rdma", 3, lossless=True), traffic_class("storage", 4))
    assert settings(TCP, where, traffic_class="storage").dscp == 40
    with pytest.raises(ScenarioError) as refused:
        settings(TCP, where, traffic_class="nvme")
    assert "'nvme'" in refused.value.message and refused.value.hint == "one of bulk, rdma, storage"
    with pytest.raises(ScenarioError, match="no qos"):
        settings(TCP, traffic_class="rdma")


def test_the_class_that_is_chosen() -> None:
    ecn, lossless = traffic_class("ecn", 2, ecn=True), traffic_class("rdma", 3, lossless=True)
    assert settings(UET, lab_with_classes(BULK, ecn, lossless)).dscp == 30
    assert settings(UET, lab_with_classes(BULK, ecn)).dscp == 20
    assert settings(UET, lab_with_classes(BULK)).dscp == 0
    assert settings(TCP, lab_with_classes(BULK, ecn, lossless)).dscp == 0


def uet_of_first_host(subject: Any, where: Any) -> Any:
    ranks = [where.plan.hosts[0].nics[0], where.plan.hosts[3].nics[0]]
    workload = generate_point_to_point(ranks=2, size_bytes=10)
    channels = subject.plan_channels(workload, ranks, seed=1)
    return ranks, subject.host_settings(pairs_by_host(ranks, channels)[ranks[0].node], job_id=5, key="")


def test_uet_gets_the_labs_numbers() -> None:
    where = lab_with_classes(BULK, traffic_class("rdma", 3, lossless=True), trimming=True)
    ranks, found = uet_of_first_host(settings(UET, where, cc="rccc", paths="oblivious", options={"mpr": 4}), where)
    config = UetConfig(**found.config)
    assert config.link_rate_bps == ranks[0].rate_bps
    assert config.base_rtt_ns == model_base_rtt(where.model).scaled(K).ns
    assert (config.cc, config.paths, config.trimming, config.mpr, config.time_scale) == (
        "rccc",
        "oblivious",
        True,
        4,
        K,
    )
    assert (found.dscp, found.control_dscp, found.mode, found.job_id) == (30, 48, "RUD", 5)
    assert config.payload_bytes == 4096


def test_uet_holds_datagrams_for_what_endpoints_delay() -> None:
    where = lab()
    ranks, found = uet_of_first_host(settings(UET, where), where)
    assert found.config["base_rtt_ns"] == model_base_rtt(where.model).scaled(K).ns
    here, there = (str(nic.address.ip) for nic in ranks)
    assert found.delays_ns == {here: {there: 2 * 500 * 1000}}  # two links of 500 ns between the segments
    sent_ns = sum(8 * (4096 + 98) * 10**9 // rate for rate in settings(UET, where).path(*ranks).rates_bps)
    answer_ns = sum(8 * 64 * 10**9 // rate for rate in settings(UET, where).path(*ranks).rates_bps)
    assert found.least_rtts_ns == {here: {there: 2 * 2 * 500 * 1000 + sent_ns + answer_ns}}, "an idle fabric's"
    by_kernel = tuple(replace(port, delay_by=DelayBy.KERNEL) for port in where.plan.ports)
    where = lab(ports=by_kernel)
    assert uet_of_first_host(settings(UET, where), where)[1].delays_ns == {}


def test_a_declared_round_trip_is_made_up_by_the_endpoints() -> None:
    """12 us are declared, of which the links have less: the rest is held at both ends, and UET's own RTT has it all."""
    where = lab_with_classes(BULK)
    declared = SimpleNamespace(profiles=(SimpleNamespace(base_rtt=Duration.parse("12us")),))
    where.model = SimpleNamespace(qos=declared, **{name: getattr(where.model, name) for name in ("nodes", "links")})
    subject = settings(UET, where)
    assert subject.base_rtt_ns == pytest.approx(12_000 * K, abs=2)
    assert settings(TCP, where).pipeline_ns == 0
    ranks, found = uet_of_first_host(subject, where)
    ((_, held),) = found.delays_ns[str(ranks[0].address.ip)].items()
    assert held == pytest.approx(2 * 500 * 1000 + subject.pipeline_ns, abs=2)


def test_a_declared_round_trip_holds_where_links_take_longer() -> None:
    where = lab_with_classes(BULK)
    modelled = model_base_rtt(where.model)
    less = Duration(modelled.ns - 1000)
    declared = SimpleNamespace(profiles=(SimpleNamespace(base_rtt=less), SimpleNamespace(base_rtt=None)))
    where.model = SimpleNamespace(qos=declared, **{name: getattr(where.model, name) for name in ("nodes", "links")})
    for kind in (UET, ROCE):
        subject = settings(kind, where)
        assert (subject.base_rtt_ns, subject.pipeline_ns) == (less.scaled(K).ns, 0)
        assert any("1 ms (lab time) less than the longest path" in line for line in subject.approximations())
    _, found = uet_of_first_host(settings(UET, where), where)
    assert UetConfig(**found.config).nscc().max_wnd_bytes == pytest.approx(
        1.5 * less.scaled(K).ns * found.config["link_rate_bps"] / 8e9
    )
    assert settings(TCP, where).base_rtt_ns == modelled.scaled(K).ns, "whose endpoints hold nothing"


def test_packets_fit_into_the_mtu() -> None:
    small = tuple(replace(port, mtu_bytes=1500) for port in lab().plan.ports)
    hosts = tuple(
        replace(host, nics=tuple(replace(nic, mtu_bytes=1500) for nic in host.nics)) for host in lab().plan.hosts
    )
    where = lab(ports=small, hosts=hosts)
    _, found = uet_of_first_host(settings(UET, where), where)
    assert UetConfig(**found.config).payload_bytes == 1500 - 20 - 8 - 12 - 44


@pytest.mark.parametrize(
    ("transport", "message"),
    [
        ({"options": {"windows": 4}}, "none called 'windows'"),
        ({"options": {"link_rate_bps": 4}}, "none called 'link_rate_bps'"),
        ({"options": {"mode": "UUD"}}, "UUD carries no messages for certain"),
        ({"options": {"mpr": 0}}, "mpr is 0"),
        ({"cc": "cubic"}, "unknown congestion control 'cubic'"),
        ({"paths": "all"}, "unknown path selection 'all'"),
    ],
)
def test_what_uet_cannot_have(transport: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        settings(UET, **transport)


def test_tcp_has_no_options() -> None:
    with pytest.raises(ScenarioError, match="'mpr'"):
        settings(TCP, options={"mpr": 1})


@pytest.mark.parametrize(("mode", "told"), [("spray", True), ("flow", False), ("flowlet", False)])
def test_paths_of_which_switches_take_no_notice_are_told(mode: str, told: bool) -> None:
    """Switches that spray gave three ways to choose paths one figure, to the last digit, and nobody said why."""
    model = load_topology(UEC_SPRAY, overrides={"qos.load_balancing.mode": mode})
    where = SimpleNamespace(name="lab", model=model, plan=plan_lab(model, k=K))
    found = [one for one in settings(UET, where, paths="oblivious").warnings() if "of no effect" in one]
    assert bool(found) is told
    assert not any("of no effect" in one for one in settings(UET, where).warnings()), "nobody asked for it"


def test_single_path() -> None:
    assert settings(UET, paths="single").single_path
    assert settings(UET, options={"mode": "ROD"}).single_path
    assert not settings(UET).single_path


@pytest.mark.parametrize("kind", [TCP, UET, ROCE])
def test_a_transfer_alone(kind: TransportKind) -> None:
    """Two segments apart: four links of one rate, 1 ms of delay that TCP does not get."""
    where = lab()
    a, b = where.plan.hosts[0].nics[0], where.plan.hosts[3].nics[0]
    ideals = settings(kind, where).ideals()
    framing = ideals.framing(a)
    size = 10 * framing.payload_bytes
    frame = framing.payload_bytes + framing.overhead_bytes
    expected = (10 + 3) * frame * 8 / a.rate_bps + (0.0 if kind is TCP else 0.001)
    assert ideals.one_way_s(a, b, size) == pytest.approx(expected, rel=1e-6)
    one = ideals.one_way_s(a, b, 1)
    assert one == pytest.approx(
        4 * (1 + framing.overhead_bytes) * 8 / a.rate_bps + expected - 13 * frame * 8 / a.rate_bps
    )


def test_what_packets_cost() -> None:
    nic = lab().plan.hosts[0].nics[0]
    costs = {
        TCP: (4500 - 52, 66),
        UET: (4096, 14 + 20 + 8 + 12 + 44),
        ROCE: (4096, 14 + 20 + 8 + 12 + 4),
        TransportKind.RDMA: (4096, 14 + 20 + 8 + 12 + 4),
    }
    for kind, cost in costs.items():
        framing = settings(kind).ideals().framing(nic)
        assert (framing.payload_bytes, framing.overhead_bytes) == cost
    secure = settings(UET, options={"tss": True}).ideals().framing(nic)
    assert (secure.payload_bytes, secure.overhead_bytes) == (4096 - 28, 98 + 28)
    checked = settings(UET, options={"crc": True}).ideals().framing(nic)
    assert (checked.payload_bytes, checked.overhead_bytes) == (4096 - 4, 98 + 4)


def test_the_payload_that_is_asked_for_is_that_of_packets_and_of_their_ideal_or_is_refused() -> None:
    where = lab()
    nic = where.plan.hosts[0].nics[0]
    asked = settings(UET, where, options={"payload_bytes": 4416})
    assert asked.ideals().framing(nic).payload_bytes == 4416, "more than the 4096 of the default"
    assert asked._config(nic)["payload_bytes"] == 4416
    with pytest.raises(ScenarioError, match=r"payload_bytes: 4417 bytes do not fit .* which leaves 4416"):
        settings(UET, where, options={"payload_bytes": 4417})


TENANTS = """
name: tenants
scale: {{time: 1000}}
fabric:
  design: rail-optimized
  segments: 1
  hosts: 3
  gpus: 2
  spines: 1
  mtu: 1500
  nic: {{rate: 100G}}
  uplink: {{rate: {uplink}, count: 1}}
  overlay: evpn
tenants:
  red: {{subnets: {{web: {{prefix: 10.1.0.0/24, nics: ["p1-s1-h1:rail1", "p1-s1-h2:rail2", "p1-s1-h3:rail1"]}}}}}}
"""


def in_tenant(uplink: str) -> tuple[Any, dict[str, Any]]:
    """A lab, and its NICs by "host:rail"."""
    model = load_topology_text(TENANTS.format(uplink=uplink), file="tenants.yml")
    plan = plan_lab(model, k=1000.0)
    nics = {f"{nic.node[-2:]}:{nic.name}": nic for host in plan.hosts for nic in host.nics}
    return SimpleNamespace(name="tenants", model=model, plan=plan), nics


@pytest.mark.parametrize(
    ("uplink", "per_frame"),
    [("100G", 1398 / 1514), ("50G", 1398 / 1514), ("102G", 1.02 * 1398 / 1514), ("400G", 1398 / 1464)],
)
def test_the_ideal_goodput_of_a_tenant_has_vxlan_where_it_is_the_limit(uplink: str, per_frame: float) -> None:
    """1398 bytes in a frame of 1464 bytes at a NIC, and of 1514 between switches."""
    where, nics = in_tenant(uplink)
    ideals = settings(TCP, where).ideals()
    near, far, same_leaf = nics["h1:rail1"], nics["h2:rail2"], nics["h3:rail1"]
    assert ideals.goodput_bps(near, far) == pytest.approx(near.rate_bps * per_frame)
    assert ideals.goodput_bps(near, same_leaf) == pytest.approx(near.rate_bps * 1398 / 1464)
    plain = ideals.goodput_bps(nics["h1:rail2"], nics["h3:rail2"])
    assert plain == pytest.approx(near.rate_bps * 1448 / 1514)


@pytest.mark.parametrize(("uplink", "wrapped"), [("100G", True), ("400G", False)])
def test_a_transfer_alone_in_a_tenant(uplink: str, wrapped: bool) -> None:
    """Ten packets through the slowest port, and the last one through the three others."""
    where, nics = in_tenant(uplink)
    near, far = nics["h1:rail1"], nics["h2:rail2"]
    uplink_bps = next(port.rate_bps for port in where.plan.ports if port.name == "uplink1")
    frame, framed = 8 * 1464 / near.rate_bps, 8 * 1514 / uplink_bps
    expected = 10 * framed + framed + 2 * frame if wrapped else 10 * frame + frame + 2 * framed
    assert settings(TCP, where).ideals().one_way_s(near, far, 13980) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("uplink", "ranks", "overhead"), [("100G", (0, 1), 116), ("100G", (0, 2), 66), ("400G", (0, 1), 66)]
)
def test_the_ideals_of_a_point_have_vxlan_where_it_slows_all_flows(
    uplink: str, ranks: tuple[int, int], overhead: int
) -> None:
    where, nics = in_tenant(uplink)
    red = tuple(nics[name] for name in ("h1:rail1", "h2:rail2", "h3:rail1"))
    source, destination = ranks
    workload = generate_point_to_point(ranks=3, size_bytes=10_000, source=source, destination=destination)
    traffic = RunTraffic(workload=workload, placement=RankPlacement(nics=red, ranks_per_domain=1), seed=1)
    scenario = Scenario(name="x", topology=TopologyRef(file="x"), workload=Workload(kind="point-to-point"))
    assert PointIdeals.of(scenario, where, [traffic]).framing.overhead_bytes == overhead
