"""A NIC with several ports behind one address: flows are spread over them, and leave the one that is lost."""

from collections.abc import Sequence

from testbed.base.datapath.traffic_class import ClassPlan
from testbed.protocols.datagram import Incoming, Outgoing, Priority
from testbed.protocols.simulation import FabricNetwork, FabricPortSettings, LinkSettings, SwitchSettings

A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"
LINK = LinkSettings(rate_bps=10**9, delay_ns=1000)
PORT = FabricPortSettings(classes=(ClassPlan(priority=3),), priority_of=(3, 3, 3, 3, 3))


class Talker:
    def __init__(self, address: str, remote: str = "", count: int = 0, flows: int = 64) -> None:
        self.address = address
        self.remote = remote
        self.left = count
        self.flows = flows
        self.got: list[Incoming] = []

    def receive(self, datagrams: Sequence[Incoming], now: int) -> None:
        self.got += datagrams

    def transmit(self, now: int, limit: int = 64) -> list[Outgoing]:
        if not self.left:
            return []
        self.left -= 1
        return [Outgoing(self.remote, 50_000 + self.left % self.flows, Priority.DATA, b"h", bytes(957))]

    def next_timer(self) -> int | None:
        return None

    def handle_timer(self, now: int) -> None: ...


def dual_homed(count: int, flows: int = 64) -> tuple[FabricNetwork, Talker]:
    """A has two leaves; B hangs off a spine."""
    a, b = Talker(A, B, count, flows), Talker(B)
    network = FabricNetwork([a, b], seed=1)
    for name in ("left", "right", "spine"):
        network.add_fabric_switch(name, SwitchSettings(seed=5))
    pairs = [(A, "left"), (A, "right"), ("left", "spine"), ("right", "spine"), ("spine", B)]
    for one, other in pairs:
        network.connect(f"{one}>{other}", one, other, LINK, out=PORT, into=PORT)
        network.connect(f"{other}>{one}", other, one, LINK, out=PORT, into=PORT)
    for leaf in ("left", "right"):
        network.route(leaf, B, [f"{leaf}>spine"])
        network.route(leaf, A, [f"{leaf}>{A}"])
    network.route("spine", B, [f"spine>{B}"])
    network.route("spine", A, ["spine>left", "spine>right"])
    return network, b


def test_flows_are_spread_and_each_keeps_its_way() -> None:
    network, b = dual_homed(640)
    network.run()
    frames = [network.lines[f"{A}>{leaf}"].frames for leaf in ("left", "right")]
    assert sum(frames) == len(b.got) == 640 and min(frames) > 160 and all(count % 10 == 0 for count in frames)
    network, b = dual_homed(40, flows=1)
    network.run()
    assert sorted(network.lines[f"{A}>{leaf}"].frames for leaf in ("left", "right")) == [0, 40]


def test_a_way_that_is_lost_is_left_and_taken_again() -> None:
    network, b = dual_homed(640)
    nic, left = network.nics[A], network.outputs[f"{A}>left"]
    network.at(100_000, lambda now: nic.use(left, False))
    network.run(until=1_000_000)
    before = network.lines[f"{A}>left"].frames
    network.run(until=2_000_000)
    assert network.lines[f"{A}>left"].frames == before
    nic.use(left, True)
    network.run()
    assert network.lines[f"{A}>left"].frames > before and len(b.got) == 640 == network.accounted()


def two_subnets(own: int, other: int) -> tuple[FabricNetwork, Talker]:
    """A and C are ports of one host with a leaf each, and have so much to send to B behind both leaves."""
    a, b, c = Talker(A, B, own), Talker(B), Talker(C, B, other)
    network = FabricNetwork([a, b, c], seed=1)
    for name in ("left", "right", "spine"):
        network.add_fabric_switch(name, SwitchSettings(seed=5))
    for one, to in [(A, "left"), (C, "right"), ("left", "spine"), ("right", "spine"), ("spine", B), (B, "spine")]:
        network.connect(f"{one}>{to}", one, to, LINK, out=PORT, into=PORT)
    for leaf in ("left", "right"):
        network.route(leaf, B, [f"{leaf}>spine"])
    network.route("spine", B, [f"spine>{B}"])
    return network, b


def test_a_port_without_a_carrier_sends_by_another_one_of_its_host_and_by_its_own_again() -> None:
    """It has a hundred packets; eight microseconds each, 30 are sent by a time, and as many later."""
    network, b = two_subnets(100, 0)
    network.run(until=240_000)
    nic = network.nics[A]
    assert (network.lines[f"{A}>left"].frames, network.lines[f"{C}>right"].frames) == (30, 0)
    network.set_up(f"{A}>left", up=False)
    nic.send_by(network.outputs[f"{C}>right"])
    network.run(until=480_000)
    assert network.lines[f"{C}>right"].frames in (30, 31), "at the rate of the line, and not at its own events alone"
    network.set_up(f"{A}>left", up=True)
    nic.send_by(None)
    network.run()
    assert len(b.got) == 100 == network.accounted()
    assert network.lines[f"{A}>left"].frames + network.lines[f"{C}>right"].frames == 100
    assert not network.nics[C].guests


def test_who_lends_its_port_is_asked_first() -> None:
    network, b = two_subnets(50, 50)
    network.nics[A].send_by(network.outputs[f"{C}>right"])
    network.run()
    assert network.lines[f"{A}>left"].frames == 0 and len(b.got) == 100
    assert [item.remote for item in b.got[10:50]] == [C] * 40 and b.got[-1].remote == A


def test_each_line_counts_what_came_by_it() -> None:
    network, _ = dual_homed(0)
    sender = network.nics[B].endpoint
    assert isinstance(sender, Talker)
    sender.remote, sender.left = A, 200
    network.run()
    counted = [network.arrivals_at(f"{leaf}>{A}") for leaf in ("left", "right")]
    packets = [one.by_priority[3].packets for one in counted if one is not None]
    assert sum(packets) == 200 == network.nics[A].delivered and min(packets) > 40


def test_the_next_event_is_known_without_going_there() -> None:
    network, _ = dual_homed(0)
    events = network.events
    assert events.next_time() > 1 << 60
    for when in (5_000_000, 70_000, 1_000, 30):
        network.at(when, lambda now: None)
        assert events.next_time() == when
    network.run(until=2_000)
    assert events.next_time() == 70_000
    network.run(until=100_000)
    assert events.next_time() == 5_000_000
