"""A lab is changed while a lossless flow runs through it at line rate: no packet is lost, and no session goes down.

Two hosts send to one over the spines, whose switch pauses the fabric back to both of them all the time. Each kind of
change is made in its turn and taken back, by the command line.
"""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest
from lab_snapshot import differences, snapshot
from lab_texts import FRONTEND, text_of
from lossless_flows import established, lossless_flows
from perftest_sides import TOOL, finish
from sandbox import Sandbox
from waiting import until

from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.observe.port_table import tabulate_ports
from testbed.lab.observe.reconcile import Balance, reconcile
from testbed.run.machine.cpu import read_softnet

pytestmark = [pytest.mark.netns, pytest.mark.frr, pytest.mark.timeout(600)]

ROOM = "10MB"
"""Of what arrives until the agent of a switch has sent a pause: two seconds at the rate of a NIC. On a machine that has
thirty processes for two CPUs, 500 kB (a tenth of a second) were not enough: 1,277 of 345,488 packets were lost, as the
account of the queue said (headroom)."""
LOSSLESS = {
    "dscp": [26],
    "lossless": True,
    "weight": 60,
    "ecn": False,
    "pfc": {"xoff": "30kB", "xon": "15kB", "headroom": ROOM},
}
DSCP, PRIORITY = 26, 3
BASE: dict[str, Any] = {
    "scale.time": 10000,
    "fabric.hosts": 3,
    "fabric.gpus": 1,
    "fabric.segments": 2,
    "fabric.spines": 2,
    "fabric.mtu": 1500,
    "fabric.nic.rate": "400G",
    "fabric.uplink.rate": "400G",
    "fabric.uplink.count": 1,
    "qos.classes.rdma": LOSSLESS,
    "qos.classes.control": {"dscp": [48], "strict": True},
    "qos.classes.bulk": {"default": True, "weight": 40},
    "qos.buffer.shared": "1GB",
    "qos.load_balancing.mode": "flow",
    "qos.watchdog": False,
}
SOURCES, DESTINATION = ("p1-s1-h1", "p1-s1-h2"), "p1-s2-h1"

CHANGES: dict[str, dict[str, Any]] = {
    "hosts": {"fabric.hosts": 4},
    "segments": {"fabric.segments": 3},
    "spines": {"fabric.spines": 3},
    "rails": {"fabric.gpus": 2},
    "parallel links": {"fabric.uplink.count": 2},
    "rails and parallel links": {"fabric.gpus": 3, "fabric.uplink.count": 3, "fabric.segments": 3},
    "rate of NICs": {"fabric.nic.rate": "800G"},
    "rate of uplinks": {"fabric.uplink.rate": "800G"},
    "scale": {"scale.time": 9000},
    "MTU": {"fabric.mtu": 4500},
    "delay": {"fabric.uplink.delay": "1us"},
    "PFC thresholds": {"qos.classes.rdma": LOSSLESS | {"pfc": {"xoff": "60kB", "xon": "40kB", "headroom": ROOM}}},
    "weights": {"qos.classes.rdma": LOSSLESS | {"weight": 80}, "qos.classes.bulk": {"default": True, "weight": 20}},
    "a class": {"qos.classes.extra": {"dscp": [10], "strict": True}},
    "a lossless class": {"qos.classes.extra": {"dscp": [10], "strict": True, "lossless": True, "ecn": False}},
    "the buffer": {"qos.buffer.shared": "1200MB", "qos.buffer.alpha": 0.25},
    "load balancing": {"qos.load_balancing.mode": "flowlet"},
    "the watchdog": {"qos.watchdog": {"detect": "60s", "restore": "60s"}},
    "ECMP": {"fabric.routing.ecmp": 1},
    "BFD": {"fabric.routing.bfd": {"interval": "1s", "multiplier": 3}},
    "guards": {"fabric.guards": "on"},
    "a network": {"networks.frontend": FRONTEND},
    "management": {"networks.management": {"design": "out-of-band"}},
    "scale-up": {"fabric.scale_up": {"preset": "h100"}},
    "queues": {
        "qos.classes.rdma": LOSSLESS | {"pfc": {"xoff": "60kB", "xon": "40kB", "headroom": ROOM}},
        "qos.classes.extra": {"dscp": [10], "strict": True, "lossless": True, "ecn": False},
        "qos.buffer.shared": "1200MB",
        "qos.buffer.alpha": 0.25,
        "qos.load_balancing.mode": "flowlet",
    },
    "much at once": {"fabric.hosts": 4, "fabric.spines": 3, "qos.buffer.shared": "1200MB", "fabric.nic.rate": "800G"},
}
THOROUGH = (
    *("segments", "rails", "parallel links", "rate of uplinks", "scale", "delay", "weights", "a class"),
    *("the watchdog", "ECMP", "guards", "management", "scale-up", "spines", "BFD", "rate of NICs", "MTU"),
    *("hosts", "PFC thresholds", "a lossless class", "the buffer", "load balancing"),
)
"""Those that are much like others, touch no queue that is under way, or are made together with others ("queues", "much
at once")."""


class ChangingLab:
    """A lab that is deployed once, and changed by the command line."""

    def __init__(self, sandbox: Any, values: Mapping[str, Any] = BASE) -> None:
        self._sandbox = sandbox
        self._file = sandbox.work / "lab.yml"
        self._run("deploy", values)

    @property
    def running(self) -> RunningLab:
        return self._sandbox.running()

    def apply(self, values: Mapping[str, Any]) -> None:
        self._run("apply", values)

    def _run(self, verb: str, values: Mapping[str, Any]) -> None:
        self._file.write_text(text_of(values, self._sandbox.name()))
        done = self._sandbox.cli(verb, "-q", "-t", str(self._file))
        assert done.returncode == 0, done.stderr
        self._sandbox.note_daemons()


@pytest.fixture(scope="module")
def lab(shared_sandbox: Sandbox) -> Iterator[ChangingLab]:
    yield ChangingLab(shared_sandbox)
    shared_sandbox.destroy()


@pytest.fixture
def base(lab: ChangingLab) -> ChangingLab:
    """The lab as it was at first, whatever a test before has left."""
    lab.apply(BASE)
    return lab


def pausing(lab: RunningLab) -> int:
    """How often hosts were asked to pause."""
    maps = lab.maps()
    try:
        numbers = lab.plan.port_numbers
        pauses = maps.by_port("pauses")
        return sum(int(pauses[numbers[f"{source}:rail1"], PRIORITY]["xoff_received"]) for source in SOURCES)
    finally:
        maps.close()


def still_and_reconciled(lab: RunningLab) -> None:
    """The queues run empty, and the accounts of all ports add up: no packet of the lossless class was dropped."""
    maps = lab.maps()
    try:
        queues = maps.by_port("queues")
        until(lambda: not queues["bytes"].any(), "the queues run empty")
        verdict = reconcile(maps, tabulate_ports(lab.plan))
        assert verdict.balance is not Balance.BROKEN, str(verdict)
        names = {number: name for name, number in lab.plan.port_numbers.items()}
        for cause in ("tail", "buffer", "wred", "headroom", "purged"):
            counts = enumerate(queues[:, PRIORITY][f"{cause}_packets"].tolist())
            lost = {names.get(port, port): count for port, count in counts if count}
            assert not lost, f"the lossless class lost packets: {cause}, with {read_softnet()} on this machine"
    finally:
        maps.close()


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=pytest.mark.thorough) if what in THOROUGH else what for what in CHANGES]
)
def test_a_change_costs_no_packet_and_no_session(base: ChangingLab, what: str) -> None:
    lab = base
    before, sessions = snapshot(lab.running), established(lab.running)
    with lossless_flows(lab.running, SOURCES, DESTINATION, dscp=DSCP) as flows:
        paused = pausing(lab.running)
        until(lambda: pausing(lab.running) > paused + 3, "hosts are paused")
        for values in (BASE | CHANGES[what], BASE):
            sent, paused = flows.sent, pausing(lab.running)
            lab.apply(values)
            sessions = {session: counts for session, counts in sessions.items() if session in planned(lab.running)}
            now = established(lab.running)
            assert {session: now.get(session) for session in sessions} == sessions
            until(lambda: flows.sent > sent + 1000, "the flows go on")  # noqa: B023
            until(lambda: pausing(lab.running) > paused, "hosts are still paused")  # noqa: B023
        account = flows.stop()
    still_and_reconciled(lab.running)  # first: it says where packets were lost
    assert (account.missing, account.repeated) == (0, 0), account
    assert not differences(snapshot(lab.running), before), "there and back"


def test_a_host_that_is_left_alone_on_its_rail_loses_nothing(base: ChangingLab) -> None:
    """A rail with one port is routed directly, where it has never had more: here it keeps its bridge."""
    lab = base
    with lossless_flows(lab.running, SOURCES[:1], DESTINATION, dscp=DSCP) as flows:
        for values in (BASE | {"fabric.hosts": 1}, BASE):
            sent = flows.sent
            lab.apply(values)
            until(lambda: flows.sent > sent + 1000, "the flow goes on")  # noqa: B023
        account = flows.stop()
    still_and_reconciled(lab.running)  # first: it says where packets were lost
    assert (account.missing, account.repeated) == (0, 0), account


BRIDGED = 3
"""Packets that may arrive while the kernel makes a port one of a bridge (br_add_if), which the row says."""


@pytest.mark.thorough
def test_a_host_that_was_alone_on_its_rail_goes_on_with_a_second_one(sandbox: Sandbox) -> None:
    """The rail becomes a bridge, which takes the gateway's address from the port of the first host."""
    alone = ChangingLab(sandbox, BASE | {"fabric.hosts": 1})
    with lossless_flows(alone.running, SOURCES[:1], DESTINATION, dscp=DSCP) as flows:
        sent = flows.sent
        alone.apply(BASE)
        until(lambda: flows.sent > sent + 1000, "the flow goes on")
        account = flows.stop()
    assert account.missing <= BRIDGED and not account.repeated, account


def planned(lab: RunningLab) -> set[tuple[str, str]]:
    """The sessions that a lab has, by node and interface."""
    return {(speaker.node, neighbor.interface) for speaker in lab.plan.speakers for neighbor in speaker.neighbors}


MESSAGES, MESSAGE_BYTES, PAYLOAD_BYTES = 3000, 16384, 1024


def packets_sent(lab: RunningLab, node: str) -> int:
    """Packets of the lossless class that a host's NIC has sent."""
    maps = lab.maps()
    try:
        return int(maps.by_port("queues")["out_packets"][lab.plan.port_numbers[f"{node}:rail1"], PRIORITY])
    finally:
        maps.close()


def test_a_roce_connection_goes_on_while_a_lab_is_changed(base: ChangingLab) -> None:
    """RDMA writes over the fabric, by our own RoCE. What it sends twice may be what was acknowledged late, on a busy
    machine; nothing of it is lost, and its accounts hold."""
    running, near, far = base.running, "p1-s1-h3", "p1-s2-h3"
    address = running.port(far, "rail1").address
    assert address is not None
    words = [*TOOL, "roce_write_bw", "-n", str(MESSAGES), "-s", str(MESSAGE_BYTES), "-m", str(PAYLOAD_BYTES)]
    words += ["-t", "16", "--rate", "40M", "--base-rtt", "10ms", "--time-scale", "10000", "-u", "1"]
    before, sessions = packets_sent(running, near), established(running)
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with ExitStack() as cleanup:
        server = running.spawn(far, [*words, "-i", str(address.ip)], **pipes)
        cleanup.callback(server.communicate)
        cleanup.callback(server.kill)
        client = running.spawn(near, [*words, str(address.ip)], **pipes)
        cleanup.callback(client.communicate)
        cleanup.callback(client.kill)
        until(lambda: packets_sent(running, near) > before + 100, "it sends")
        base.apply(BASE | {"fabric.hosts": 4, "qos.buffer.alpha": 0.25})  # a spine more would move its path
        base.apply(BASE)
        assert client.poll() is None, "it went on until now"
        said = finish(client)
        finish(server)
    assert packets_sent(base.running, near) - before >= MESSAGES * MESSAGE_BYTES // PAYLOAD_BYTES, said
    assert {session: established(base.running).get(session) for session in sessions} == sessions
    still_and_reconciled(base.running)
