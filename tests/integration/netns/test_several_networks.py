"""A lab of several networks: each carries its own packets, none joins another, and links fail by themselves."""

import contextlib
import json
import time
from typing import Any

import pytest
from forwarding import forwarded

from testbed.cli.labs.inspect_views import show_networks
from testbed.cli.options import Format
from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl, LinkRefused
from testbed.lab.core.deploy.watch.check import CheckStatus, check_lab
from testbed.lab.observe.port_table import tabulate_ports
from testbed.lab.observe.telemetry import take_snapshot

pytestmark = [pytest.mark.netns, pytest.mark.frr]

TEXT = """name: {name}
scale: {{time: 1000}}
fabric: {{design: rail-optimized, hosts: 3, gpus: 1, segments: 1, spines: 1}}
networks:
  frontend: {{nic: {{ports: 2, rate: 100G}}, qos: {{preset: dcqcn}}}}
  storage: {{design: single-switch, nic: {{rate: 200G}}, mtu: 9000}}
"""


def outcomes(lab: Any) -> dict[str, CheckStatus]:
    return {result.name: result.status for result in check_lab(lab).results}


def test_every_network_carries_its_own_packets_and_none_reaches_another(lab: Any) -> None:
    found = outcomes(lab)
    assert set(found.values()) == {CheckStatus.PASS}
    assert {"rails", "subnets, frontend", "black holes, frontend", "subnets, storage", "networks apart"} <= set(found)


def test_a_link_of_one_network_is_of_no_matter_to_the_others(lab: Any) -> None:
    with LinkControl(lab) as control:
        control.set("p1-s1-h1:fe1", LinkChange(up=False), both=True)
        broken = outcomes(lab)
        control.reset("p1-s1-h1:fe1")
    assert broken["subnets, frontend"] is CheckStatus.FAIL
    assert broken["rails"] is broken["subnets, storage"] is CheckStatus.PASS
    assert set(outcomes(lab).values()) == {CheckStatus.PASS}


def test_a_network_has_classes_by_itself(lab: Any) -> None:
    """A datagram with the DSCP of the class rdma is counted in it, at ports of its network; no other has queues."""
    table = tabulate_ports(lab.of_network("frontend").plan)
    priority = table.class_names[1].index("rdma")
    with contextlib.closing(lab.maps()) as maps:
        before = take_snapshot(maps).queues["out_packets"].copy()
        ping = ["ping", "-c", "5", "-i", "0.01", "-W", "1", "-Q", str(26 << 2), "-I", "fe1"]
        addresses = {(port.node, port.name): port.address.ip for port in lab.plan.ports if port.address}
        assert not lab.run("p1-s1-h1", [*ping, str(addresses["p1-s1-h2", "fe1"])]).returncode
        grown = take_snapshot(maps).queues["out_packets"] - before
    numbers = lab.plan.port_numbers
    assert set(numbers) == {f"{port.node}:{port.name}" for port in lab.plan.ports if port.network == "frontend"}
    assert grown[numbers["p1-s1-h1:fe1"], priority] == 5
    assert grown[numbers["p1-s1-h3:fe1"], priority] == 0
    with pytest.raises(LinkRefused, match="network storage"), LinkControl(lab) as control:
        control.set("p1-s1-h1:st1", LinkChange(loss=0.1))


def test_all_networks_are_shown_at_once(lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """What 64 kB sent in the storage network add is counted there; it has no queues of the data path."""

    def read() -> dict[str, Any]:
        show_networks(lab, Format.JSON)
        shown = json.loads(capsys.readouterr().out)
        return {row["network"]: row for row in [*shown["networks"], shown["total"]]}

    before = read()
    wanted = next(port.address.ip for port in lab.plan.ports if (port.node, port.name) == ("p1-s1-h2", "st1"))
    ping = ["ping", "-c", "8", "-i", "0.01", "-s", "8000", "-I", "st1", str(wanted)]
    assert not lab.run("p1-s1-h1", ping).returncode
    after = read()
    assert list(after) == ["backend", "frontend", "storage", "total"]
    assert (
        [after[name]["sessions_up"] for name in after] == [after[name]["sessions"] for name in after] == [2, 8, 0, 10]
    )
    assert [after[name]["nics"] for name in after] == [3, 6, 3, 12]
    assert after["total"]["hosts"] == 3 and after["storage"]["mtus"] == [9000]
    grown = {name: after[name]["sent_bytes"] - before[name]["sent_bytes"] for name in after}
    assert 4 * 64_000 <= grown["storage"] < 4 * 64_000 + 20_000, "requests and answers, by host and switch"
    assert grown["frontend"] + grown["backend"] < 30_000
    assert grown["total"] == sum(grown[name] for name in after if name != "total")


def test_a_full_queue_of_a_network_without_qos_is_told(lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """More datagrams than the queue of 200 packets holds, at once: the interface's own counters know nothing of it."""
    wanted = next(port.address.ip for port in lab.plan.ports if (port.node, port.name) == ("p1-s1-h2", "st1"))
    burst = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setsockopt(1, 32, 1 << 24);"
        f"[s.sendto(bytes(8000), ('{wanted}', 9)) for _ in range(1000)]"
    )
    assert not lab.run("p1-s1-h1", ["python3", "-c", burst]).returncode
    show_networks(lab, Format.JSON)
    storage = next(row for row in json.loads(capsys.readouterr().out)["networks"] if row["network"] == "storage")
    assert storage["dropped_packets"] > 100
    assert storage["queue_port"] == "p1-s1-h1:st1" and storage["queue_bytes"] > 100_000
    assert lab.counters()["p1-s1-h1", "st1"].tx_dropped == 0


def test_no_host_passes_packets_from_one_network_on_to_another(lab: Any) -> None:
    """Who has a route through a host learns nothing: it is the host that refuses, as forwarding shows."""
    attacker, victim, target = "p1-s1-h1", "p1-s1-h2", "p1-s1-h3"
    addresses = {(port.node, port.name): port.address for port in lab.plan.ports}
    through, wanted = addresses[victim, "fe1"].ip, addresses[target, "rail1"].ip
    lab.run(attacker, ["ip", "route", "add", f"{wanted}/32", "via", str(through), "dev", "fe1"])
    ping = ["ping", "-c", "3", "-i", "0.01", "-W", "1", str(wanted)]
    try:
        before = forwarded(lab, victim)
        lab.run(attacker, ping)
        assert forwarded(lab, victim) == before
        lab.run(victim, ["sysctl", "-q", "-w", "net.ipv4.ip_forward=1"])
        lab.run(attacker, ping)
        assert forwarded(lab, victim) > before
    finally:
        lab.run(victim, ["sysctl", "-q", "-w", "net.ipv4.ip_forward=0"])
        lab.run(attacker, ["ip", "route", "del", f"{wanted}/32"])


def test_a_host_goes_on_by_its_other_port_when_a_link_of_a_leaf_fails(lab: Any) -> None:
    """Only the far end goes down: what the host sees is its carrier."""
    source, target = "p1-s1-h1", "p1-s1-h3"
    wanted = str(next(port.address.ip for port in lab.plan.ports if (port.node, port.name) == (target, "fe2")))

    def way() -> str:
        return lab.run(source, ["ip", "-o", "route", "get", wanted]).stdout.split(" dev ")[1].split()[0]

    def answered() -> bool:
        return lab.run(source, ["ping", "-q", "-c", "1", "-W", "2", wanted]).returncode == 0

    def seconds_until(wanted: str) -> float:
        """How long routes take to be those of a link's new state."""
        begun = time.monotonic()
        while way() != wanted and time.monotonic() < begun + 10:
            pass
        assert way() == wanted
        return time.monotonic() - begun

    assert way() == "fe2" and answered()
    with LinkControl(lab) as control:
        control.set("fe-leaf2:down1", LinkChange(up=False))
        try:
            gone = seconds_until("fe1")
            assert answered()
        finally:
            control.reset("fe-leaf2:down1")
    back = seconds_until("fe2")
    print(f"by the other port after {gone:.3f} s, back after {back:.3f} s")
    assert answered()
