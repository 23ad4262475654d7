"""The emulated wire between switch ports on a real lab: loss, corruption, silence, and counters that add up."""

import itertools
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from switch_ports import BULK, RDMA, PortLab, port_lab, received, send, send_until
from waiting import WAIT_S

from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl

pytestmark = [pytest.mark.netns, pytest.mark.frr, pytest.mark.timed]

TOPOLOGY = """
name: {name}
scale: {time: 1}
fabric: {mtu: 1500, routing: {bfd: off}}
qos:
  classes:
    rdma: {dscp: [26], weight: 60, ecn: false}
    control: {dscp: [48], strict: true}
    bulk: {default: true, weight: 40}
  watchdog: false
topology:
  nodes:
    s1: {kind: switch, role: rail}
    s2: {kind: switch, role: spine}
    h0: {kind: host}
    h1: {kind: host}
    h2: {kind: host}
  links:
    - {endpoints: ["h0:eth1", "s1:eth100"], rate: 50M}
    - {endpoints: ["s1:eth1", "h1:eth1"], rate: 50M}
    - {endpoints: ["s1:eth2", "s2:eth1"], rate: 50M}
    - {endpoints: ["s2:eth2", "h2:eth1"], rate: 50M}
"""
TO_H1, TO_S2 = "s1:eth1", "s1:eth2"


@pytest.fixture(scope="module")
def lab(shared_sandbox: Any) -> Iterator[PortLab]:
    with port_lab(shared_sandbox, TOPOLOGY) as lab:
        yield lab
        lab.reconciles()


@pytest.fixture
def links(lab: PortLab) -> Iterator[LinkControl]:
    with LinkControl(lab.running) as control:
        yield control
        control.reset_all()


def test_loss_as_a_fraction(lab: PortLab, links: LinkControl) -> None:
    account, share, packets = lab.account("h1", "eth1", RDMA), 0.3, 1000
    links.set(TO_H1, LinkChange(loss=share))
    before = account.copy()
    with lab.sink("h1") as sink, lab.sender("h0", "h1", RDMA) as item:
        sent = send(item, packets)
        lab.still()
        came = received(sink)
    lost = int(account["lost_packets"] - before["lost_packets"])
    assert len(came) + lost == sent
    assert int(account["in_packets"] - before["in_packets"]) == len(came)
    assert account["lost_bytes"] - before["lost_bytes"] == lost * 1514
    deviation = (packets * share * (1 - share)) ** 0.5
    assert abs(lost - packets * share) < 6 * deviation
    gaps = {after - before for before, after in itertools.pairwise(came)}
    assert len(gaps) > 3, "losses are independent: not every third"
    assert came == sorted(came)


def test_one_in_so_many(lab: PortLab, links: LinkControl) -> None:
    accounts, every = lab.ingress[lab.number("h1", "eth1")], 10
    links.set(TO_H1, LinkChange(loss_every=every))
    lost, other = int(accounts["lost_packets"].sum()), int(accounts["in_packets"].sum() - accounts[RDMA]["in_packets"])
    with lab.sink("h1") as sink, lab.sender("h0", "h1", RDMA) as item:
        sent = send(item, 500)
        lab.still()
        came = received(sink)
    other = int(accounts["in_packets"].sum() - accounts[RDMA]["in_packets"]) - other
    if other:  # a neighbour asked for our address: one of those may have been among the lost
        assert abs(len(came) - (sent - sent // every)) <= 1 + other // every
    else:
        missing = sorted(set(range(sent)) - set(came))
        assert len(missing) == sent // every == int(accounts["lost_packets"].sum()) - lost
        assert {after - before for before, after in itertools.pairwise(missing)} == {every}


def test_corrupted_datagrams_fail_the_receivers_checksum(lab: PortLab, links: LinkControl) -> None:
    account = lab.account("h1", "eth1", RDMA)
    links.set(TO_H1, LinkChange(corruption=0.2))
    before, errors = int(account["corrupted_packets"]), lab.snmp("h1", "Udp", "InCsumErrors")
    with lab.sink("h1") as sink, lab.sender("h0", "h1", RDMA) as item:
        sent = send(item, 500)
        lab.still()
        came = received(sink)
    corrupted = int(account["corrupted_packets"]) - before
    assert 40 < corrupted < 160  # 100, and 6 standard deviations are 54
    assert lab.snmp("h1", "Udp", "InCsumErrors") - errors == corrupted
    assert len(came) == sent - corrupted


def test_tcp_gets_through_a_corrupting_wire_by_sending_again(lab: PortLab, links: LinkControl) -> None:
    links.set(TO_H1, LinkChange(corruption=0.05))
    errors, size = lab.snmp("h1", "Tcp", "InCsumErrors"), 400_000
    with ExitStack() as stack:
        server = stack.enter_context(lab.inside("h1", lambda: socket.create_server(("", 9001))))
        client = stack.enter_context(lab.inside("h0", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM)))
        client.settimeout(WAIT_S)
        client.connect((lab.address("h1"), 9001))
        sender = threading.Thread(target=lambda: (client.sendall(b"x" * size), client.shutdown(socket.SHUT_WR)))
        sender.start()
        connection = stack.enter_context(server.accept()[0])
        connection.settimeout(WAIT_S)
        data = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        sender.join()
    assert data == b"x" * size
    assert lab.snmp("h1", "Tcp", "InCsumErrors") > errors


def test_a_silent_link_keeps_its_carrier_and_passes_nothing(lab: PortLab, shared_sandbox: Any) -> None:
    box = shared_sandbox
    done = box.cli("link", "set", TO_S2, "--silent", "-n", lab.name)
    assert done.returncode == 0, done
    accounts = lab.ingress[lab.number("s2", "eth1")]
    lost, came = int(accounts[BULK]["lost_packets"]), int(accounts[BULK]["in_packets"])
    with lab.sink("h2") as sink, lab.sender("h0", "h2", BULK) as item:
        sent = send(item, 100)
        lab.still()
        assert received(sink) == []
        assert accounts[BULK]["lost_packets"] - lost == sent
        assert accounts[BULK]["in_packets"] == came
        states = lab.running.link_states()
        assert states["s1", "eth2"]
        assert states["s2", "eth1"]
        done = box.cli("link", "reset", TO_S2, "-n", lab.name)
        assert done.returncode == 0, done
        send_until(item, lambda: accounts[BULK]["in_packets"] > came and received(sink), "packets pass again")


def test_counters_add_up_while_packets_are_lost_and_corrupted(lab: PortLab, links: LinkControl) -> None:
    links.set(TO_S2, LinkChange(loss=0.1, corruption=0.1))
    with lab.sink("h1"), lab.sink("h2"), lab.sender("h0", "h1", RDMA) as one, lab.sender("h0", "h2", BULK) as two:
        for _ in range(10):
            send(one, 20)
            send(two, 20)
        lab.reconciles()
