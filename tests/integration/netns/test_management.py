"""An out-of-band network: its server reaches every node, and it and the data networks are apart, shown by attacks."""

import struct
from collections import Counter
from contextlib import closing
from ipaddress import IPv4Address
from typing import Any

import pytest
from filters import commit, remove_table

from testbed.base.linux.nftables import NFPROTO_IPV4
from testbed.base.linux.rtnetlink import mac_bytes
from testbed.base.units import Duration
from testbed.lab.checks.isolation.check import check_isolation
from testbed.lab.checks.isolation.frames import BROADCAST, ethernet
from testbed.lab.checks.isolation.management import Shot, Way, management_shots, shoot
from testbed.lab.core.deploy.links.changes import LinkControl
from testbed.lab.core.deploy.watch.check import check_lab
from testbed.lab.core.drivers.nodes.raw_ports import RawPorts
from testbed.lab.core.plan.management_plan import GuardManagement
from testbed.lab.core.plan.operations import GuardSwitch, SetBridgePort
from testbed.lab.features.guards.apply import TABLE as PORT_TABLE
from testbed.lab.features.guards.apply import guard_messages
from testbed.lab.features.management.apply import TABLE, management_messages
from testbed.lab.features.management.watch import probe_management
from testbed.lab.observe.lab_reader import LabReader
from testbed.lab.observe.openmetrics import render_metrics
from testbed.run.faults.lab_fault import FaultSite
from testbed.run.faults.registry import fault_findings, lab_fault
from testbed.run.schema.model import Fault

pytestmark = [pytest.mark.netns, pytest.mark.frr]

TEXT = """name: {name}
scale: {{time: 1000}}
fabric: {{design: rail-optimized, hosts: 2, gpus: 1, segments: 1, spines: 1}}
networks:
  frontend: {{leaves: 2, spines: 1, nic: {{ports: 2}}}}
  management: {{design: out-of-band}}
"""


def run(lab: Any, node: str, *argv: str) -> None:
    result = lab.run(node, argv)
    assert result.returncode == 0, result.stderr


def arrived(lab: Any, shots: list[Shot]) -> dict[Way, int]:
    found = shoot(lab.name, shots)
    return Counter(shots[index].way for index in found)


def test_check_finds_it_whole_and_apart(lab: Any) -> None:
    report = check_lab(lab)
    assert report.exit_code == 0, report
    results = {result.name: result for result in report.results}
    assert results["management"].count == 2 * 7
    assert "subnets, management" not in results
    found = check_isolation(lab, "management")
    assert found.exit_code == 0 and [result.name for result in found.results] == list(Way)
    (reading,) = LabReader(lab.state, only=lab.name).read()
    text = render_metrics(lambda: (reading,)).decode()
    for interface, node in (("mgmt0", "mgmt1"), ("uplink1", "mgmt-sw1")):
        labels = f'interface="{interface}",lab="{lab.name}",network="management",node="{node}"'
        assert f"testbed_kernel_rx_bytes_total{{{labels}}}" in text
    assert sum(packets for packets, _ in reading.dropped.values()) > 0


def test_each_way_is_open_where_its_defence_is_away(lab: Any) -> None:
    """What is let through is what it was that stopped it; afterwards all is as it was."""
    shots = management_shots(lab.plan)
    every = Counter(shot.way for shot in shots)
    assert set(every) == set(Way)
    guards = [item for item in lab.plan.operations if isinstance(item, GuardManagement)]
    switch = next(item for item in lab.plan.operations if isinstance(item, GuardSwitch))
    isolated = [item.name for item in lab.plan.operations if isinstance(item, SetBridgePort) and item.isolated]
    forwarding = [(node, "net.ipv4.conf.mgmt0.forwarding") for node in lab.plan.management.nodes]
    forwarding.append((lab.plan.management.server, "net.ipv4.ip_forward"))
    remove_table(lab, switch.node, PORT_TABLE)
    assert arrived(lab, shots) == {way: every[way] for way in (Way.MANAGED, Way.POSING)}
    for guard in guards:
        remove_table(lab, guard.node, TABLE, NFPROTO_IPV4)
    try:
        found = arrived(lab, shots)
        assert found[Way.TO_SERVER] == every[Way.TO_SERVER]
        assert found[Way.IN_ITS_NAME] == every[Way.IN_ITS_NAME]
        assert 0 < found[Way.TO_NODES] < every[Way.TO_NODES], "a switch sends by its own port, to a node that is apart"
        assert 0 < found[Way.TO_DATA] < every[Way.TO_DATA], "nodes take it, and pass nothing on"
        assert found[Way.BETWEEN] == 0, "ports are still isolated"
        for node, key in forwarding:
            run(lab, node, "sysctl", "-qw", f"{key}=1")
        found = arrived(lab, shots)
        assert found[Way.TO_DATA] == every[Way.TO_DATA]
        assert found[Way.BETWEEN] == every[Way.BETWEEN] // 3, "by the server"
        for port in isolated:
            run(lab, lab.plan.management.switch, "bridge", "link", "set", "dev", port, "isolated", "off")
        for node in lab.plan.management.nodes:  # neighbours that did not answer before
            run(lab, node, "ip", "neigh", "flush", "dev", lab.plan.management.port)
        assert arrived(lab, shots) == every
    finally:
        for port in isolated:
            run(lab, lab.plan.management.switch, "bridge", "link", "set", "dev", port, "isolated", "on")
        for node, key in forwarding:
            run(lab, node, "sysctl", "-qw", f"{key}=0")
        for guard in guards:
            commit(lab, guard.node, management_messages(guard))
        commit(lab, switch.node, guard_messages(switch))
    assert arrived(lab, shots) == {Way.MANAGED: every[Way.MANAGED]}


def test_no_data_port_answers_for_an_address_of_management(lab: Any) -> None:
    """Neither a switch nor a host; each does where it may answer for any of its addresses, as Linux does by itself."""
    nics = {host.node: host.nics[0] for host in lab.plan.hosts}
    asker, other = nics.values()
    switch = asker.peer.partition(":")[0]
    places = [(asker.node, asker.name)]

    def answers(node: str) -> bool:
        address: IPv4Address = lab.plan.management.addresses[node].ip
        with closing(RawPorts(lab.name, places)) as raw:
            source, own = mac_bytes(asker.mac), asker.address.ip
            question = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + source + own.packed + bytes(6) + address.packed
            raw.send(places[0], [ethernet(BROADCAST, source, 0x0806, question)])
            return any(frame[12:14] == b"\x08\x06" and frame[28:32] == address.packed for frame in late(raw))

    def late(raw: RawPorts) -> list[bytes]:
        found: list[bytes] = []
        while more := [frame for _, frame in raw.arrivals(0.3)]:
            found += more
        return found

    for node in (switch, other.node):
        assert not answers(node)
        run(lab, node, "sysctl", "-qw", "net.ipv4.conf.all.arp_ignore=0")
        try:
            assert answers(node)
        finally:
            run(lab, node, "sysctl", "-qw", "net.ipv4.conf.all.arp_ignore=1")


def test_data_goes_on_when_the_management_switch_is_dead(lab: Any) -> None:
    fault = Fault(at=Duration(0), kind="node-kill", target=lab.plan.management.switch)
    assert not list(fault_findings(fault, lab.model))
    failed: list[Any] = []
    with LinkControl(lab) as links:
        site = FaultSite(lab=lab, links=links, kill_worker=failed.append)
        kill = lab_fault(fault)
        kill.prepare(site)
        kill.do(site)
        try:
            assert not arrived(lab, management_shots(lab.plan))
            for network in lab.model.data_networks:
                assert check_lab(lab.of_network(network)).exit_code == 0, "sessions, routes and packets are whole"
        finally:
            kill.undo(site)
    assert probe_management(lab.plan) == (2 * 7, [])
