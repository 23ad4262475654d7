"""Switches that adapt to their queues, pin destinations or hash chosen fields, on real ports of a real kernel.

Each of the leaves d, e, s and q has four uplinks; of d and e the first has ten times the rate of the others. Leaf d
adapts for each packet and e for each flowlet, s pins destinations, and q hashes addresses and queue pairs alone. Their
hosts send to the four hosts of leaf z.
"""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from switch_ports import FRAME, PAYLOAD, PORT, RDMA, PortLab, port_lab, ports_topology
from waiting import WAIT_S, until

from testbed.base.datapath import build, load, pins
from testbed.base.datapath.abi import HashField
from testbed.base.datapath.flow_hash import ROCE_PORT
from testbed.base.datapath.load import PATHS
from testbed.lab.core.deploy.changing.apply import ApplyOptions, apply_lab
from testbed.lab.core.deploy.changing.differences import changes_of
from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl
from testbed.lab.core.deploy.watch.check import check_lab
from testbed.lab.core.plan.changes import Allow
from testbed.lab.core.schema.load import load_topology_text
from testbed.protocols.roce.packets.headers import encode_bth

pytestmark = [pytest.mark.netns, pytest.mark.frr]

LEAVES = "desq"
SPINES = (1, 2, 3, 4)
HOSTS = (1, 2, 3, 4)
FAST, SLOW = 50, 5
FIRST_PORT = 20_000


def topology() -> str:
    nodes = [f"    spine{spine}: {{kind: switch, role: spine}}" for spine in SPINES]
    links = []
    for leaf in (*LEAVES, "z"):
        nodes.append(f"    {leaf}-leaf: {{kind: switch, role: rail}}")
        for spine in SPINES:
            rate = FAST if spine == 1 or leaf in "zsq" else SLOW
            links.append(f'    - {{endpoints: ["{leaf}-leaf:eth{spine}", "spine{spine}:{leaf}"], rate: {rate}M}}')
        for host in HOSTS if leaf == "z" else (1,):
            nodes.append(f"    {leaf}{host}: {{kind: host}}")
            links.append(f'    - {{endpoints: ["{leaf}{host}:eth1", "{leaf}-leaf:eth{10 + host}"], rate: {FAST}M}}')
    balancing = (
        "d-leaf: {load_balancing: {mode: adaptive}}",
        "e-leaf: {load_balancing: {mode: adaptive, per: flowlet, gap: 100ms}}",
        "s-leaf: {load_balancing: {mode: static}}",
        "q-leaf: {load_balancing: {hash: {fields: [source, destination, roce_qp]}}}",
    )
    return ports_topology(nodes, links, balancing)


@pytest.fixture(scope="module")
def lab(shared_sandbox: Any) -> Iterator[PortLab]:
    with port_lab(shared_sandbox, topology()) as lab:
        yield lab
        lab.reconciles()


class Uplinks:
    """What a leaf has sent by each of its uplinks since it was made."""

    def __init__(self, lab: PortLab, leaf: str) -> None:
        self._queues = [lab.queue(f"{leaf}-leaf", f"eth{spine}", RDMA) for spine in SPINES]
        self._before = self._sent()

    def _sent(self) -> list[int]:
        return [int(queue["enqueued_packets"]) for queue in self._queues]

    def packets(self, count: int) -> list[int]:
        """By uplink, once so many have been sent in all."""
        until(lambda: sum(self._sent()) - sum(self._before) >= count, f"{count} packets at the uplinks")
        return [now - then for now, then in zip(self._sent(), self._before, strict=True)]


def send(lab: PortLab, leaf: str, destination: str, packets: int, *, flows: int = 1) -> list[int]:
    """Packets of some flows one after another, back to back; by uplink how many went there."""
    with ExitStack() as stack:
        stack.enter_context(lab.sink(destination))
        sockets = [
            stack.enter_context(lab.sender(f"{leaf}1", destination, RDMA, source_port=FIRST_PORT + flow))
            for flow in range(flows)
        ]
        uplinks = Uplinks(lab, leaf)
        for number in range(packets):
            sockets[number % flows].send(bytes(PAYLOAD))
        return uplinks.packets(packets)


def test_packets_of_one_flow_go_by_the_uplink_with_the_least_bytes_queued(lab: PortLab) -> None:
    """The host sends 50 Mbit/s, and the uplinks carry 50 and three times 5: the fast one has most of it."""
    sent = send(lab, "d", "z1", 600)
    assert sent[0] > 3 * max(sent[1:]), "spraying would give it a quarter"
    deepest = [int(lab.queue("d-leaf", f"eth{spine}", RDMA)["max_bytes"]) for spine in SPINES]
    assert max(deepest) - min(deepest) <= 6 * FRAME, "all queues are about as deep"


def test_where_nothing_waits_packets_are_divided_evenly(lab: PortLab) -> None:
    with ExitStack() as stack:
        stack.enter_context(lab.sink("z2"))
        item = stack.enter_context(lab.sender("d1", "z2", RDMA, source_port=FIRST_PORT))
        uplinks = Uplinks(lab, "d")
        for number in range(1, 81):
            item.send(b"a packet of some bytes")
            sent = uplinks.packets(number)
            until(lambda: not any(_waiting(lab, "d")), "empty queues")
    assert min(sent) >= 12


def _waiting(lab: PortLab, leaf: str) -> list[int]:
    return [int(lab.queue(f"{leaf}-leaf", f"eth{spine}", RDMA)["bytes"]) for spine in SPINES]


def test_a_flowlet_stays_whole_and_the_next_flow_goes_beside_it(lab: PortLab) -> None:
    first = send(lab, "e", "z1", 60)
    assert sorted(first)[:3] == [0, 0, 0], "back to back it has no gap"
    many = send(lab, "e", "z3", 64, flows=64)
    assert sum(count > 0 for count in many) >= 3, "flows that begin find others' packets queued"


def test_each_destination_is_pinned_whatever_the_ports(lab: PortLab) -> None:
    taken = []
    for host in HOSTS:
        sent = send(lab, "s", f"z{host}", 32, flows=16)
        assert sorted(sent) == [0, 0, 0, 32]
        taken.append(sent.index(32))
    assert sorted(taken) == [0, 1, 2, 3], "hosts of one leaf are divided over all paths to it"


LOOKS_ROUTES_UP = """
import socket
item = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print(flush=True)
while True:
    item.connect(("127.0.0.1", 9))
"""


def test_a_destination_stays_pinned_while_the_machine_looks_routes_up(lab: PortLab) -> None:
    """Of lookups on a busy machine some do not reach the program that knows the paths."""
    send(lab, "s", "z1", 32, flows=16)
    with ExitStack() as stack:
        for _ in range(os.cpu_count() or 1):
            argv = [sys.executable, "-I", "-c", LOOKS_ROUTES_UP]
            busy = stack.enter_context(subprocess.Popen(argv, stdout=subprocess.PIPE))
            stack.callback(busy.kill)
            assert busy.stdout is not None and busy.stdout.readline()
        sent = send(lab, "s", "z1", 4000, flows=64)
    assert sorted(sent) == [0, 0, 0, 4000]


def test_switches_know_their_paths_while_no_lookup_tells_them(lab: PortLab) -> None:
    """On some machines none of a CPU reaches the program for 40 ms."""
    pinned = send(lab, "s", "z2", 32, flows=16)
    send(lab, "d", "z2", 32)
    directory = pins.lab_directory(lab.running.processes_directory)
    load.detach_paths(directory)
    try:
        sent = send(lab, "d", "z2", 600)
        assert sent[0] > 3 * max(sent[1:]) and min(sent) > 0, "the uplinks carry 50 Mbit/s and three times 5"
        assert send(lab, "s", "z2", 32, flows=16) == pinned
    finally:
        load.attach_paths(build.program_object(), directory)


def test_a_path_that_is_gone_is_none_and_destinations_share_those_that_are_left(lab: PortLab) -> None:
    with LinkControl(lab.running) as control:
        control.set("s-leaf:eth2", LinkChange(up=False))
        try:
            taken = set()
            for host in HOSTS:
                sent = send(lab, "s", f"z{host}", 8, flows=8)
                assert sorted(sent) == [0, 0, 0, 8] and sent[1] == 0
                taken.add(sent.index(8))
            assert len(taken) == 3
        finally:
            control.reset("s-leaf:eth2")


def test_queue_pairs_of_one_source_port_take_several_paths(lab: PortLab) -> None:
    """E-ECMP: and what is no RoCE keeps to one, since ports are not heeded."""

    def pairs(port: int) -> list[int]:
        def make() -> socket.socket:
            item = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            item.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 26 << 2)
            item.bind(("", FIRST_PORT))
            item.connect((lab.address("z1"), port))
            item.settimeout(WAIT_S)
            return item

        def listen() -> socket.socket:
            item = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            item.bind(("", port))
            return item

        with lab.inside("z1", listen), lab.inside("q1", make) as sender:
            uplinks = Uplinks(lab, "q")
            for pair in range(64):
                sender.send(encode_bth(0x0A, 0x100 + pair, 0))
            return uplinks.packets(64)

    assert sorted(pairs(PORT)) == [0, 0, 0, 64]
    assert min(pairs(ROCE_PORT)) > 0
    assert int(lab.maps.ports[lab.number("q-leaf", "eth11")]["hash_fields"]) == sum(
        1 << place for place, field in enumerate(HashField) if field in ("source", "destination", "roce_qp")
    )


def test_switches_of_a_lab_that_is_up_pin_from_a_change_on_and_no_longer(sandbox: Any) -> None:
    """No switch needed the program that knows all paths at the deploy; it comes with the first that does, and goes."""
    text = re.sub(r" {4}[deqs]-leaf: \{load_balancing.*\n", "", topology())
    hashed = text.replace("  nodes:\n", "  nodes: {s-leaf: {load_balancing: {mode: flow}}}\n", 1)
    pinned = hashed.replace("mode: flow", "mode: static")
    with port_lab(sandbox, hashed) as lab:
        program = pins.lab_directory(lab.running.processes_directory) / PATHS
        assert sum(count > 0 for count in send(lab, "s", "z1", 32, flows=32)) > 1 and not program.exists()
        for said, ways in ((pinned, 1), (hashed, 4), (pinned, 1)):
            model = load_topology_text(said.replace("{name}", sandbox.name()), file="pinned.yml")
            apply_lab(model, sandbox.state, ApplyOptions(allow=frozenset({Allow.RESTART})))  # FRR 10: zebra's groups
            assert not changes_of(sandbox.running(), model).rows
            assert program.exists() is (ways == 1)
            report = check_lab(sandbox.running())
            assert report.exit_code == 0, report
            taken = [send(lab, "s", f"z{host}", 32, flows=32) for host in HOSTS]
            assert all(sum(count > 0 for count in sent) <= ways for sent in taken), taken
            if ways == 1:
                assert sorted(sent.index(32) for sent in taken) == [0, 1, 2, 3]
            else:
                assert any(sum(count > 0 for count in sent) > 1 for sent in taken), taken
