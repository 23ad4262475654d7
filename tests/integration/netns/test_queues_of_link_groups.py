"""Queues of link groups: each member has its classes, marks and pauses, beside the programs of its link group.

The leaves of this lab speak iBGP; those of other labs with link groups speak eBGP.
"""

import json
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
from outages import udp_socket
from sandbox import Sandbox
from switch_ports import PortLab
from waiting import until

from testbed.base.linux.processes import kill_processes
from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl
from testbed.lab.core.deploy.routing import running_daemons
from testbed.lab.features.mlag.apply import missing_members, start_link_groups
from testbed.lab.features.overlay.watch_tenants import probe_tenants

pytestmark = [pytest.mark.netns, pytest.mark.frr, pytest.mark.timed]

TOPOLOGY = """
name: {name}
fabric: {{design: single-switch, hosts: 4, gpus: 1, nic: {{rate: 1M}}}}
networks:
  frontend:
    homing: mlag
    leaves: 2
    spines: 1
    nic: {{per: host, ports: 2, rate: 20M}}
    uplink: {{rate: 40M}}
    routing: {{protocol: ibgp, bfd: off}}
    overlay: evpn
    guards: on
    qos:
      classes:
        control: {{dscp: [48], strict: true}}
        rdma: {{dscp: [26], lossless: true, weight: 20, ecn: false, pfc: {{xoff: 30kB, xon: 15kB, headroom: 500kB}}}}
        gold: {{dscp: [10], weight: 60, ecn: {{kmin: 15kB, kmax: 30kB, pmax: 1.0}}}}
        bulk: {{default: true, weight: 20}}
tenants:
  red: {{cap: 5M, subnets: {{web: {{prefix: 10.1.0.0/24, nics: ["p1-s1-h4:fe0"]}}}}}}
"""
SOURCES = ("p1-s1-h1", "p1-s1-h2")
SINK = "p1-s1-h3"
MEMBERS = ("fe1", "fe2")
NARROW = (("fe-leaf1", "down3"), ("fe-leaf2", "down3"))
"""Where what both sources send to the sink meets, on either leaf."""
TOS = {"rdma": 26 << 2, "gold": 10 << 2 | 2, "bulk": 0}
FLOWS = 16
"""Of a host and class: by either member."""
SIZE = 1400
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33


@pytest.fixture(scope="module")
def lab(shared_sandbox: Sandbox) -> Iterator[PortLab]:
    lab = PortLab(shared_sandbox.lab(TOPOLOGY, k=1.0))
    yield lab
    lab.close()


@pytest.fixture(scope="module")
def priority(lab: PortLab) -> dict[str, int]:
    """The priority of each class by its name."""
    profile = lab.running.plan.qos_beside["frontend"].profiles[0]
    return {item.name: item.priority for item in profile.classes}


def _address(lab: PortLab, host: str) -> str:
    nic = next(nic for item in lab.running.plan.hosts for nic in item.nics if (nic.node, nic.name) == (host, "fe0"))
    return str(nic.address.ip)


def _whole(lab: PortLab) -> bool:
    return not missing_members(lab.running.plan, lab.running.run_directory(SINK).parent)


class _Flood:
    """UDP from both sources to the sink, as fast as each member takes it. It counts what was sent and has arrived."""

    def __init__(self, senders: list[socket.socket], sink: socket.socket) -> None:
        self.sent = self.arrived = 0
        self._senders, self._sink = senders, sink
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            for item in select.select([], self._senders, [], 0.1)[1]:
                with suppress(BlockingIOError):
                    item.sendto(bytes(SIZE), self._sink.getsockname())
                    self.sent += 1
            self.receive()

    def receive(self) -> int:
        with suppress(BlockingIOError):
            while self._sink.recv(SIZE):
                self.arrived += 1
        return self.arrived

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


@contextmanager
def _flood(lab: PortLab, *classes: str) -> Iterator[_Flood]:
    with ExitStack() as opened:
        sink = opened.enter_context(udp_socket(lab, SINK, _address(lab, SINK)))
        sink.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 8 << 20)
        senders = []
        for name, host, _ in ((name, host, flow) for name in classes for host in SOURCES for flow in range(FLOWS)):
            item = opened.enter_context(udp_socket(lab, host, _address(lab, host)))
            item.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 50_000)
            item.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, TOS[name])
            senders.append(item)
        flood = _Flood(senders, sink)
        opened.callback(flood.end)
        yield flood


def _grown(read: Callable[[], list[int]], least: int) -> list[int]:
    """By how much counters have grown when each has by `least`."""
    before = read()
    until(lambda: all(now - then >= least for now, then in zip(read(), before, strict=True)), "traffic goes on")
    return [now - then for now, then in zip(read(), before, strict=True)]


def test_classes_have_their_shares_and_marks_at_each_member_port(lab: PortLab, priority: dict[str, int]) -> None:
    queues = [lab.queue(*port, priority[name]) for port in NARROW for name in ("gold", "bulk")]

    def out() -> list[int]:
        return [int(queue["out_bytes"]) for queue in queues]

    with _flood(lab, "gold", "bulk"):
        _grown(out, 30_000)
        gold_1, bulk_1, gold_2, bulk_2 = _grown(out, 150_000)
        assert _whole(lab), "LACP has a class of its own"
    for gold, bulk in ((gold_1, bulk_1), (gold_2, bulk_2)):
        assert gold / (gold + bulk) == pytest.approx(60 / 80, abs=0.05)
    for leaf, port in NARROW:
        assert lab.queue(leaf, port, priority["gold"])["ce_packets"]
        assert not lab.queue(leaf, port, priority["bulk"])["ce_packets"]
    for member in MEMBERS:
        assert lab.account(SINK, member, priority["gold"])["ce_packets"]
        for source in SOURCES:
            assert lab.queue(source, member, priority["gold"])["out_packets"]
    lab.reconciles()


def test_a_lossless_class_pauses_members_and_loses_nothing(lab: PortLab, priority: dict[str, int]) -> None:
    rdma = priority["rdma"]
    paused = [lab.account(source, member, rdma) for source in SOURCES for member in MEMBERS]
    with _flood(lab, "rdma") as flood:
        until(lambda: all(account["pause_frames"] >= 2 for account in paused), "leaves pause every member")
        assert _whole(lab)
        flood.end()
        until(lambda: flood.receive() == flood.sent, "all that was sent arrives")
    lab.calm()
    lab.reconciles()
    for cause in ("tail", "buffer", "wred", "headroom"):
        assert not lab.queues[:, rdma][f"{cause}_packets"].any(), cause


def test_a_member_that_goes_takes_its_queue_along(lab: PortLab, priority: dict[str, int]) -> None:
    other = lab.queue("fe-leaf2", "down3", priority["bulk"])
    with _flood(lab, "bulk"), LinkControl(lab.running) as control:
        control.set("fe-leaf1:down3", LinkChange(up=False))
        _grown(lambda: [int(other["out_bytes"])], 100_000)
        over = lab.queue("fe-leaf1", "peer2", priority["bulk"])
        _grown(lambda: [int(over["out_bytes"])], 100_000)
        control.reset("fe-leaf1:down3")
        until(lambda: _whole(lab), "the member is back")
    lab.reconciles()


def test_a_leaf_without_uplinks_leaves_its_groups_and_comes_back_with_the_routes_of_ibgp(lab: PortLab) -> None:
    groups = lab.running.plan.link_groups
    assert groups is not None

    def ways() -> int:
        """The next hops of the spine to the pair as one VTEP."""
        return str(lab.running.run("fe-spine1", ["ip", "route", "show", str(groups.leaves[0].vtep)]).stdout).count(
            "via"
        )

    assert ways() == 2
    with LinkControl(lab.running) as control:
        control.set("fe-leaf1:uplink1", LinkChange(up=False))
        until(lambda: not _whole(lab) and ways() == 1, "the leaf holds its members back")
        control.reset("fe-leaf1:uplink1")
    until(lambda: _whole(lab) and ways() == 2, "its hosts and the spine take it back")


def test_programs_of_a_link_group_come_and_go_beside_those_of_queues(lab: PortLab, priority: dict[str, int]) -> None:
    running, (source, _) = lab.running, SOURCES
    kill_processes(running_daemons(running, source))
    start_link_groups(running.plan, running.run_directory(source).parent, only=(source,))
    until(lambda: _whole(lab), "the host is in its group again")
    shown = json.loads(running.run(source, ["tc", "-j", "filter", "show", "dev", "fe1", "ingress"]).stdout)
    names = [item["options"]["bpf_name"] for item in shown if "bpf_name" in item.get("options", {})]
    assert names == ["port_ingress", "from_member"], shown
    came = [lab.account(SINK, member, priority["bulk"]) for member in MEMBERS]
    with _flood(lab, "bulk"):
        _grown(lambda: [int(account["in_bytes"]) for account in came], 50_000)
    lab.reconciles()


def test_a_cap_holds_at_each_member(lab: PortLab) -> None:
    assert probe_tenants(lab.running.plan) == (0, [])
    for member, leaf in zip(MEMBERS, ("fe-leaf1", "fe-leaf2"), strict=True):
        assert lab.maps.ports[lab.number("p1-s1-h4", member)]["cap_bps"] == 0
        assert lab.maps.ports[lab.number(leaf, "down4")]["cap_bps"] == pytest.approx(5e6, rel=0.02)
        shown = lab.running.run("p1-s1-h4", ["tc", "class", "show", "dev", member]).stdout
        assert "rate 5Mbit ceil 5Mbit" in shown
