"""The section `networks:`: what it makes of a lab, and where its faults are."""

import pytest

from testbed.base.errors import SpecError
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


@pytest.mark.parametrize(
    ("networks", "code", "place", "words"),
    [
        ("  backend: {}\n", "name-taken", "dc.yml:4:3", "fabric: describes"),
        ("  Front: {}\n", "bad-name", "dc.yml:4:3", "cannot name a network"),
        ("  frontend: {hosts: [h9]}\n", "unknown-host", "dc.yml:4:22", "no host is called"),
        ("  frontend: {leaves: 3, nic: {ports: 2}}\n", "design", "dc.yml:4:22", "no whole number"),
        ("  frontend: {prefix: 10.1.0.0/16}\n", "overlap", "dc.yml:4:22", "back end's rails"),
        ("  a: {prefix: 192.168.64.0/18}\n  b: {}\n", "overlap", "dc.yml:5", "the network a"),
        ("  frontend: {prefix: 192.168.0.0/24}\n", "bad-prefix", "dc.yml:4:22", "not between"),
        ("  frontend: {nic: {ports: 3}}\n", "unknown-value", "dc.yml:4:27", "3"),
        ("  frontend: {on: storage}\n", "unknown-network", "dc.yml:4:18", "no network 'storage'"),
        ("  frontend: {qos: {preset: uecc}}\n", "unknown-preset", "dc.yml:4:28", "uecc"),
        ("  frontend: {qos: {preset: uec, nodes: {x9: {}}}}\n", "unknown-node", "dc.yml:4:41", "'x9'"),
        ("  frontend: {qos: {preset: uec, buffer: {shared: 1kB}}}\n", "buffer-too-small", "dc.yml:4:", "'fe-leaf"),
        ("  frontend: {homing: routed}\n", "contradiction", "dc.yml:4:22", "a NIC has 1"),
        ("  a: {homing: routed, nic: {ports: 2}, guards: on}\n", "not-built", "dc.yml:4", "guards"),
        ("  a: {homing: routed, nic: {ports: 2}, overlay: evpn}\n", "not-built", "dc.yml:4", "overlay"),
        ("  a: {homing: routed, nic: {ports: 2}, routing: {protocol: ibgp}}\n", "not-built", "dc.yml:4:60", "eBGP"),
        (
            "  a: {homing: routed, nic: {ports: 2}}\n  b: {homing: routed, nic: {ports: 2}}\n",
            "not-built",
            "dc.yml:5:15",
            "one network alone",
        ),
        (
            "  a: {homing: routed, nic: {ports: 2}}\ntopology: {kinds: {host: {runtime: docker}}}\n",
            "not-built",
            "dc.yml:4:15",
            "p1-s1-h1 is a container",
        ),
        (
            "  a: {homing: routed, nic: {ports: 2}}\ntopology: {kinds: {switch: {runtime: docker}}}\n",
            "not-built",
            "dc.yml:4:15",
            "a-leaf1 is a container",
        ),
        ("  a: {homing: routed, nic: {ports: 2}, qos: {preset: uec}}\n", "not-built", "dc.yml:4", "QoS"),
        ("  frontend: {homing: mlag}\n", "contradiction", "dc.yml:4:22", "a NIC has 1"),
        ("  a: {homing: mlag, nic: {ports: 4}}\n", "not-built", "dc.yml:4:34", "a NIC has two ports"),
        (
            "  a: {homing: mlag, nic: {ports: 2}}\ntopology: {kinds: {switch: {runtime: docker}}}\n",
            "not-built",
            "dc.yml:4:15",
            "a-leaf1 is a container",
        ),
        ("  a: {lag_by: bond}\n", "contradiction", "dc.yml:4:15", "hosts have none here"),
        ("  a: {homing: mlag, nic: {ports: 2}, lag_by: kernel}\n", "unknown-value", "dc.yml:4:46", "auto, bond, ebpf"),
        ("  frontend: {homing: esi}\n", "not-built", "dc.yml:4:22", "no bond"),
        ("  frontend: {homing: single, nic: {ports: 2}}\n", "contradiction", "dc.yml:4:22", "a NIC has 2"),
        ("  frontend: {homing: subnets}\n", "contradiction", "dc.yml:4:22", "a NIC has 1"),
        ("  frontend: {switch_radix: 3}\n", "radix", "dc.yml:4:28", "4 ports in use"),
        ("  a: {short: x}\n  b: {short: x}\n", "name-taken", "dc.yml:5:3", "x-leaf1 is there already"),
        ("  a: {}\n  b: {}\n  c: {}\n  d: {}\n  e: {}\n", "size", "dc.yml:8:3", "at most 4 networks"),
    ],
)
def test_faults_have_a_place_and_touch_nothing(networks: str, code: str, place: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(networks)
    problem = caught.value.problems[0]
    assert words in problem.message
    assert problem.code == code
    assert str(problem).startswith(place)


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
