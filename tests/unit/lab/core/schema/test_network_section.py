"""The section `networks:`: what it makes of a lab, and where its faults are."""

from __future__ import annotations

import pytest

from testbed.base.units import Duration
from testbed.lab.core.deploy.records.lab_record import decode_lab, encode_lab
from testbed.lab.core.model import BACKEND, Lab
from testbed.lab.core.schema.load import load_topology_text

BASE = """name: dc
fabric: {design: rail-optimized, hosts: 4, gpus: 2, segments: 1, spines: 1}
networks:
"""


def load(networks: str) -> Lab:
    return load_topology_text(BASE + networks, file="dc.yml")


def test_networks_stand_beside_the_back_end_and_share_hosts_alone() -> None:
    lab = load("  frontend: {nic: {ports: 2}}\n  storage: {design: single-switch, hosts: [p1-s1-h1, '*-h3']}\n")
    assert lab.network_names == (BACKEND, "frontend", "storage")
    switches = {name: {node.name for node in lab.of_network(name).switches} for name in lab.network_names}
    assert not switches[BACKEND] & switches["frontend"] and not switches["frontend"] & switches["storage"]
    assert [node.name for node in lab.of_network("storage").hosts] == ["p1-s1-h1", "p1-s1-h3"]
    assert len(lab.of_network("frontend").hosts) == 4
    assert decode_lab(encode_lab(lab)) == lab


def test_a_network_is_seen_with_its_own_routing_and_the_back_end_as_without_it() -> None:
    lab = load("  frontend: {routing: {protocol: ibgp, bfd: off}}\n")
    alone = load_topology_text(BASE.removesuffix("networks:\n"), file="dc.yml")
    seen = lab.of_network("frontend")
    assert (seen.routing.protocol, seen.routing.bfd) == ("ibgp", None)
    assert lab.of_network(BACKEND) == alone
    with pytest.raises(KeyError):
        alone.of_network("frontend")


def test_some_networks_are_seen_together() -> None:
    lab = load("  frontend: {}\n  storage: {}\n")
    seen = lab.of_network(BACKEND, "storage")
    assert seen.network_names == (BACKEND, "storage")
    assert (seen.routing, seen.design) == (lab.routing, lab.design)
    assert seen.of_network("storage") == lab.of_network("storage")
    with pytest.raises(KeyError):
        lab.of_network(BACKEND, "management")


@pytest.mark.parametrize(("homing", "ports"), [("single", 1), ("subnets", 2)])
def test_how_ports_are_joined_may_be_written_and_is_what_it_would_be(homing: str, ports: int) -> None:
    text = "name: dc\nfabric: {{design: rail-optimized, hosts: 3}}\nnetworks:\n  frontend: {{{}nic: {{ports: {}}}}}\n"
    written = load_topology_text(text.format(f"homing: {homing}, ", ports), file="dc.yml")
    assert written == load_topology_text(text.format("", ports), file="dc.yml")


def test_bfd_auto_counts_the_sessions_of_all_networks() -> None:
    few, more = (load(f"  frontend: {{leaves: 4, spines: {spines}}}\n") for spines in (4, 8))
    intervals = [
        routing.bfd.interval
        for lab in (few, more)
        for routing in (lab.routing, lab.networks[0].routing)
        if routing.bfd is not None
    ]
    assert intervals == [Duration.parse("300ms")] * 2 + [Duration.parse("2s")] * 2
