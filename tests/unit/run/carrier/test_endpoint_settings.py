"""The endpoints that carry TCP have the settings of a scenario's, where that says no more than its transport's kind."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.protocols.roce.config import RoceConfig
from testbed.protocols.uet.config import UetConfig
from testbed.run.carrier.endpoint_settings import LabEndpoints, address_of
from testbed.run.carrier.frames import HEADER_BYTES
from testbed.run.carrier.planning import sizes
from testbed.run.carrier.protocol import ConnectionLimits
from testbed.run.schema.model import Transport, TransportKind
from testbed.run.transports.registry import transport_on
from testbed.workload.patterns import generate_permutation

K = 20_000.0
TOPOLOGY = """
name: carried
fabric: {design: rail-optimized, segments: 2, hosts: 2, gpus: 2, spines: 2, nic: {per: gpu, ports: 1, rate: 400G}}
"""
QOS = "qos: {preset: uec, base_rtt: 12us}\n"


def lab(more: str, k: float = K) -> Any:
    model = load_topology_text(TOPOLOGY + more, file="carried.yml")
    return SimpleNamespace(name="carried", model=model, plan=plan_lab(model, slot=0, k=k))


def of_a_scenario(kind: TransportKind, where: Any, nics: list[Any]) -> dict[str, Any]:
    """What a scenario's workers are told, by address; each NIC sends to each other."""
    transport: Any = transport_on(where, Transport(kind=kind))
    found = {}
    for shift in range(1, len(nics)):
        for nic, peer in zip(nics, nics[shift:] + nics[:shift], strict=True):
            if nic.node == peer.node:
                continue
            workload = generate_permutation(ranks=2, size_bytes=10, rng=random.Random(1))
            channels = transport.plan_channels(workload, [nic, peer], seed=1)
            placement: Any = SimpleNamespace(ranks=[nic, peer], channels=channels)
            told = transport.worker_settings(placement)(nic.node)
            entry = found.setdefault(address_of(nic), {"told": told, "delays": {}, "least": {}})
            entry["delays"] |= told.delays_ns.get(address_of(nic), {})
            entry["least"] |= getattr(told, "least_rtts_ns", {}).get(address_of(nic), {})
    return found


@pytest.mark.parametrize("more", ["", QOS], ids=["plain", "qos"])
@pytest.mark.parametrize("kind", [TransportKind.UET, TransportKind.ROCE])
def test_settings_are_those_of_a_scenario(kind: TransportKind, more: str) -> None:
    where = lab(more)
    nics = [nic for host in where.plan.hosts for nic in host.nics]
    endpoints = LabEndpoints(where.model, where.plan)
    settings = endpoints.settings(kind.value, nics)
    expected = of_a_scenario(kind, where, nics)
    assert settings.keys() == expected.keys() and len(settings) == 8
    for address, found in settings.items():
        told = expected[address]["told"]
        own = {"packets_per_entropy": 4} if kind is TransportKind.UET else {}  # what programs send leaves in bursts
        assert dict(found.config) == {**told.config, **own}
        assert found.dscp == told.dscp
        assert found.control_dscp == (told.control_dscp if kind is TransportKind.UET else told.notification_dscp)
        assert dict(found.delays_ns) == expected[address]["delays"]
        assert dict(found.least_rtts_ns) == expected[address]["least"]
        if kind is TransportKind.UET:
            UetConfig(**found.config)  # type: ignore[arg-type]
        else:
            RoceConfig(**found.config)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("base_rtt", "k", "tick_ns"),
    [
        (2, K, 2000 * K / 10),  # in 4 ms a NIC sends less than 3 packets
        (12, K, 12_000 * K / 20),  # in 24 ms it would have sent more than the 8 that it is given ahead
        (2, 2000, 0),
    ],
)
def test_turns_are_ticks_where_round_trips_are_long(base_rtt: int, k: float, tick_ns: float) -> None:
    where = lab(f"qos: {{preset: uec, base_rtt: {base_rtt}us}}\n", k)
    assert LabEndpoints(where.model, where.plan).tick_ns(where.plan.hosts[0].nics) == tick_ns


@pytest.mark.parametrize(
    ("bdp", "payload", "window", "packets"),
    [(18_000, 4096, 1 << 16, 4), (100_000, 4096, 200_000, 12), (10_000_000, 4096, 1 << 22, 16), (0, 256, 1 << 16, 16)],
)
def test_windows_and_messages(bdp: int, payload: int, window: int, packets: int) -> None:
    assert sizes(bdp, payload) == (window, packets * payload - HEADER_BYTES)
    ConnectionLimits(window_bytes=window, data_bytes=packets * payload - HEADER_BYTES, patience_ns=0)
