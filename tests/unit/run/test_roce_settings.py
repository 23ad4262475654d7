"""What `transport: {kind: roce}` means on a lab: connections, classes, path MTUs, and what is warned of."""

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fake_lab import small_lab

from testbed.base.errors import ScenarioError
from testbed.protocols.roce.config import LEAST_ENTROPY, RoceConfig
from testbed.run.placed.placed_workload import PlacedWorkload
from testbed.run.schema.model import Transport, TransportKind
from testbed.run.schema.transports import TRANSPORTS
from testbed.run.transports.registry import transport_on
from testbed.run.transports.user_space import pairs_by_host
from testbed.workload.patterns import generate_permutation, generate_point_to_point

K = 1000.0
LOSSY = SimpleNamespace(name="bulk", priority=0, lossless=False, kmin_bytes=None, strict=False)
LOSSLESS = SimpleNamespace(name="rdma", priority=3, lossless=True, kmin_bytes=1, strict=False)


def lab(*classes: Any, mtu_bytes: int | None = None) -> Any:
    model, plan = small_lab(k=K)
    if mtu_bytes is not None:
        ports = tuple(replace(port, mtu_bytes=mtu_bytes) for port in plan.ports)
        hosts = tuple(
            replace(host, nics=tuple(replace(nic, mtu_bytes=mtu_bytes) for nic in host.nics)) for host in plan.hosts
        )
        plan = replace(plan, ports=ports, hosts=hosts)
    if classes:
        table = [0] * 64
        table[26], table[48] = 3, 6
        profile = SimpleNamespace(
            switch=True, classes=classes, class_of_dscp=tuple(table), trimming=False, control_class=6
        )
        plan = replace(plan, qos=SimpleNamespace(profiles=(profile,), buffers=(), base_rtt_ns=10_000, reaction_ns=0))
    return SimpleNamespace(name="fake", model=model, plan=plan)


def roce(where: Any, *, traffic_class: str | None = None, **options: Any) -> Any:
    return transport_on(where, Transport(kind=TransportKind.ROCE, traffic_class=traffic_class, options=options))


def settings_of(subject: Any, where: Any, flows: int = 1) -> tuple[PlacedWorkload, Any]:
    """The placement of a permutation over all NICs, and what the first host's worker is told."""
    nics = [nic for host in where.plan.hosts for nic in host.nics]
    workload = generate_permutation(ranks=len(nics), size_bytes=10, rng=random.Random(1), flows=flows)
    channels = subject.plan_channels(workload, nics, seed=1)
    placement = PlacedWorkload(workload=workload, ranks=nics, channels=channels, k=K, seed=1)
    return placement, subject.worker_settings(placement)(nics[0].node)


def test_by_default_each_channel_has_a_queue_pair_of_its_own() -> None:
    where = lab()
    placement, told = settings_of(roce(where), where, flows=3)
    assert (told.connections, told.qps) == ("rc", 1)
    channels = placement.channels.channels
    pairs = {(channel.source, channel.destination) for channel in channels}
    assert len(channels) == len(placement.channels.of_step) > len(pairs)
    assert RoceConfig(**told.config).time_scale == K


@pytest.mark.parametrize("connections", ["rc", "dct"])
def test_source_ports_are_those_of_rocev2(connections: str) -> None:
    """Annex A17 leaves them to the sender; NICs use 49152 and above, which switches are configured to hash."""
    where = lab()
    placement, told = settings_of(roce(where, connections=connections, qps=256), where, flows=3)
    for channel in placement.channels.channels:
        assert channel.source_port >= LEAST_ENTROPY and channel.source_port + told.qps <= 1 << 16


def test_with_dynamic_connections_a_pair_has_one_channel_from_its_nics_port() -> None:
    where = lab()
    placement, told = settings_of(roce(where, connections="dct", dcis=3), where, flows=3)
    assert (told.connections, told.dcis) == ("dct", 3)
    pairs = [(channel.source, channel.destination) for channel in placement.channels.channels]
    assert len(set(pairs)) == len(pairs) < len(placement.channels.of_step)
    ports = {(channel.source, channel.source_port) for channel in placement.channels.channels}
    assert len(ports) == len({source for source, _ in pairs})


def test_classes_and_notifications() -> None:
    where = lab(LOSSY, LOSSLESS)
    _, told = settings_of(roce(where), where)
    assert (told.dscp, told.ack_dscp, told.notification_dscp) == (26, 26, 48)
    _, told = settings_of(roce(where, traffic_class="bulk"), where)
    assert (told.dscp, told.notification_dscp) == (0, 48)


@pytest.mark.parametrize(("mtu_bytes", "path_mtu"), [(9000, 4096), (4156, 4096), (4155, 2048), (1500, 1024)])
def test_the_path_mtu_is_the_largest_that_fits(mtu_bytes: int, path_mtu: int) -> None:
    where = lab(mtu_bytes=mtu_bytes)
    assert settings_of(roce(where), where)[1].config["mtu"] == path_mtu


def test_a_path_mtu_that_does_not_fit_is_refused_with_both_figures() -> None:
    with pytest.raises(ScenarioError, match=r"2048 bytes do not fit into the MTU of .*, 1500 bytes, which leaves 1440"):
        roce(lab(mtu_bytes=1500), path_mtu=2048)


def test_what_is_allowed_and_hardly_meant_is_warned_of() -> None:
    assert roce(lab(LOSSY, LOSSLESS)).warnings() == []
    assert roce(lab(LOSSY, LOSSLESS), parameters="nvidia").warnings() == []
    (lossy,) = roce(lab(LOSSY, LOSSLESS), traffic_class="bulk").warnings()
    assert "of the class bulk, which is lossy" in lossy
    (none,) = roce(lab()).warnings()
    assert "of no class, since the lab has no qos" in none
    assert roce(lab(LOSSY), recovery="selective").warnings() == []
    (pfc,) = roce(lab(LOSSY), recovery="selective", parameters="nvidia").warnings()
    assert "beside PFC, and the lab gives this class none" in pfc
    subject = roce(lab(), parameters="nvidia")
    assert len(subject.warnings()) == 2
    assert set(subject.approximations()) >= {f"{said}." for said in subject.warnings()}


def lab_of_three_classes() -> Any:
    """The lab has bulk, a lossless class of DSCP 26, and a strict one of DSCP 48."""
    model, plan = small_lab(k=1000.0)
    table = [0] * 64
    table[26], table[48] = 3, 6
    classes = tuple(
        SimpleNamespace(name=name, priority=priority, lossless=lossless, kmin_bytes=None, strict=strict)
        for name, priority, lossless, strict in (
            ("bulk", 0, False, False),
            ("rdma", 3, True, False),
            ("control", 6, False, True),
        )
    )
    profile = SimpleNamespace(switch=True, classes=classes, class_of_dscp=tuple(table), trimming=False, control_class=6)
    qos = SimpleNamespace(profiles=(profile,), buffers=(), base_rtt_ns=10_000, reaction_ns=0)
    return SimpleNamespace(name="fake", model=model, plan=replace(plan, qos=qos, tables=qos))


def settings_of_first_host(cc: str | None = None, **options: Any) -> Any:
    where = lab_of_three_classes()
    subject: Any = transport_on(where, Transport(kind=TransportKind.ROCE, cc=cc, options=options))
    ranks = [where.plan.hosts[0].nics[0], where.plan.hosts[3].nics[0]]
    channels = subject.plan_channels(generate_point_to_point(ranks=2, size_bytes=10), ranks, seed=1)
    return subject._host_settings(pairs_by_host(ranks, channels)[ranks[0].node])


def test_notifications_have_a_class_of_their_own_unless_told_otherwise() -> None:
    found = settings_of_first_host()
    assert (found.dscp, found.ack_dscp, found.notification_dscp) == (26, 26, 48)
    assert settings_of_first_host(cnp_class="rdma").notification_dscp == 26
    assert settings_of_first_host(cnp_class="bulk").notification_dscp == 0


def test_a_class_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(ScenarioError, match="no traffic class 'cnp'") as refused:
        settings_of_first_host(cnp_class="cnp")
    assert refused.value.hint == "one of bulk, rdma, control"


def test_without_a_congestion_control_its_parameters_stand_idle() -> None:
    """A matrix that turns it off keeps the keys of the other points."""
    of_dcqcn = {"parameters": "nvidia", "cc_additive_bps": 1e9}
    controlled = settings_of_first_host(cc="dcqcn", **of_dcqcn)
    assert controlled.config["parameters"] == "nvidia" and controlled.cc_parameters == {"additive_bps": 1e9}
    idle = settings_of_first_host(cc="none", **of_dcqcn)
    assert "parameters" not in idle.config and not idle.cc_parameters
    RoceConfig(**idle.config, cc_parameters=idle.cc_parameters)
    declared = TRANSPORTS["roce"]
    assert not list(declared.conflicts({"cc": "none", **of_dcqcn}))
    assert [conflict.key for conflict in declared.conflicts({"cc": "swift", **of_dcqcn})] == [
        "parameters",
        "cc_additive_bps",
    ]
