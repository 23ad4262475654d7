"""LACP between two systems over wires of a test, in a time of its own."""

import pytest

from testbed.protocols.lacp.lacp import (
    MOST_PDUS,
    PDU_BYTES,
    SHORT_TIMEOUT_S,
    Aggregator,
    Lacpdu,
    PortInformation,
    Receive,
    State,
    decode_lacpdu,
    encode_lacpdu,
)

HOST, LEAVES = "02:00:00:00:00:01", "02:00:00:00:00:aa"


class Wires:
    """A host with two members, each to a leaf; both leaves are one system, and each has its own part of the group."""

    def __init__(self) -> None:
        self.now = 100.0
        self.host = Aggregator(system=HOST, key=1, members={"fe1": 1, "fe2": 2})
        self.leaves = [
            Aggregator(system=LEAVES, key=7, members={"down1": 0x101}),
            Aggregator(system=LEAVES, key=7, members={"down1": 0x201}),
        ]
        self.cut: set[int] = set()
        for number in (0, 1):
            self.carrier(number, True)

    def carrier(self, number: int, up: bool) -> None:
        self.host.carrier(f"fe{number + 1}", up, self.now)
        self.leaves[number].carrier("down1", up, self.now)

    def exchange(self) -> int:
        """Carry PDUs until nobody has one; how many there were."""
        carried = 0
        while True:
            frames = [
                (self.leaves[int(name[-1]) - 1], "down1", int(name[-1]) - 1, data)
                for name, data in self.host.pdus(self.now)
            ]
            frames += [
                (self.host, f"fe{number + 1}", number, data)
                for number, leaf in enumerate(self.leaves)
                for _, data in leaf.pdus(self.now)
            ]
            if not frames:
                return carried
            carried += len(frames)
            for receiver, port, number, data in frames:
                pdu = decode_lacpdu(data)
                assert pdu is not None
                if number not in self.cut:
                    receiver.received(port, pdu, self.now)

    def wait(self, seconds: float) -> None:
        """Let time pass, with all that becomes due in it."""
        end = self.now + seconds
        while self.now < end:
            systems = (self.host, *self.leaves)
            self.now = min(end, max(self.now + 0.001, min(item.next_due() for item in systems)))
            for item in systems:
                item.time_out(self.now)
            self.exchange()


def test_two_leaves_are_one_partner_at_once() -> None:
    wires = Wires()
    wires.exchange()
    assert wires.host.active == ("fe1", "fe2")
    assert [leaf.active for leaf in wires.leaves] == [("down1",), ("down1",)]
    assert {status.partner for status in wires.host.status()} == {LEAVES}


def test_a_link_without_carrier_leaves_the_group_and_comes_back() -> None:
    wires = Wires()
    wires.exchange()
    wires.carrier(0, False)
    assert wires.host.active == ("fe2",)
    wires.carrier(0, True)
    wires.exchange()
    assert wires.host.active == ("fe1", "fe2")


def test_a_silent_partner_is_given_up_after_three_seconds() -> None:
    wires = Wires()
    wires.exchange()
    wires.cut = {0}
    wires.wait(SHORT_TIMEOUT_S - 0.1)
    assert wires.host.active == ("fe1", "fe2")
    wires.wait(0.2)
    assert wires.host.active == ("fe2",)
    assert wires.host.status()[0].receive is Receive.EXPIRED
    wires.wait(SHORT_TIMEOUT_S)
    assert wires.host.status()[0].receive is Receive.DEFAULTED
    wires.cut = set()
    wires.wait(1.1)
    assert wires.host.active == ("fe1", "fe2")


def test_a_leaf_that_holds_its_member_back_takes_it_from_the_host_at_once() -> None:
    wires = Wires()
    wires.exchange()
    wires.wait(2.0)
    wires.leaves[0].hold(["down1"])
    wires.exchange()
    assert wires.host.active == ("fe2",)
    assert wires.host.status()[0].receive is Receive.CURRENT
    wires.leaves[0].hold([])
    wires.wait(1.0)  # the limit of PDUs a second may have been reached
    assert wires.host.active == ("fe1", "fe2")


def test_a_leaf_that_takes_its_member_back_waits_until_the_host_collects() -> None:
    wires = Wires()
    wires.wait(2)
    leaf = wires.leaves[0]
    assert leaf.heard == ("down1",)
    leaf.hold(["down1"])
    wires.exchange()
    leaf.hold([])
    assert leaf.active == ("down1",)  # the host has never ceased to say that it is in sync
    assert leaf.heard == ()
    wires.wait(1)
    assert leaf.heard == ("down1",)


def test_a_second_partner_does_not_take_over_a_group_that_works() -> None:
    wires = Wires()
    wires.leaves[1] = Aggregator(system="02:00:00:00:00:bb", key=7, members={"down1": 0x201})
    wires.leaves[1].carrier("down1", True, wires.now)
    wires.cut = {1}
    wires.exchange()
    wires.cut = set()
    wires.wait(1.1)
    assert wires.host.active == ("fe1",)
    assert wires.leaves[1].active == ()


def test_our_own_pdu_that_is_looped_back_is_no_partner() -> None:
    wires = Wires()
    (_, data), *_ = wires.host.pdus(wires.now)
    pdu = decode_lacpdu(data)
    assert pdu is not None
    wires.host.received("fe1", pdu, wires.now)
    assert wires.host.status()[0].partner == ""


def test_a_partner_that_believes_in_another_port_is_not_in_sync() -> None:
    host = Aggregator(system=HOST, key=1, members={"fe1": 1})
    host.carrier("fe1", True, 0.0)
    actor = PortInformation(system=LEAVES, key=7, port=9, state=State.AGGREGATION | State.SYNCHRONIZATION)
    for port, active in ((2, ()), (1, ("fe1",))):
        host.received("fe1", Lacpdu(actor=actor, partner=PortInformation(system=HOST, key=1, port=port)), 0.0)
        assert host.active == active


def test_what_changes_often_is_told_no_more_than_a_few_times_a_second() -> None:
    wires = Wires()
    wires.exchange()
    wires.wait(5.0)
    sent = 0
    for held in (["down1"], []) * 10:
        wires.leaves[0].hold(held)
        sent += len(wires.leaves[0].pdus(wires.now))
    assert 0 < sent <= MOST_PDUS + 1


def test_an_idle_group_sends_one_pdu_a_second() -> None:
    wires = Wires()
    wires.exchange()
    wires.wait(3.0)
    start = wires.now
    sent = 0
    while wires.now < start + 10:
        wires.now = wires.leaves[0].next_due()
        sent += len(wires.leaves[0].pdus(wires.now))
        wires.leaves[0].received("down1", _answer(wires), wires.now)
    assert 9 <= sent <= 12


def _answer(wires: Wires) -> Lacpdu:
    state = State.ACTIVITY | State.TIMEOUT | State.AGGREGATION | State.SYNCHRONIZATION
    state |= State.COLLECTING | State.DISTRIBUTING
    return Lacpdu(
        actor=PortInformation(system=HOST, key=1, port=1, state=state),
        partner=PortInformation(system=LEAVES, key=7, port=0x101),
    )


def test_a_pdu_is_as_the_standard_lays_it_out() -> None:
    actor = PortInformation(system=LEAVES, key=7, port=0x101, state=State.ACTIVITY | State.AGGREGATION)
    data = encode_lacpdu(Lacpdu(actor=actor, partner=PortInformation()))
    assert len(data) == PDU_BYTES
    assert data[:20].hex() == "01010114" + "8000" + "0200000000aa" + "0007" + "00ff" + "0101" + "05" + "000000"[:2]
    assert data[22:24] == b"\x02\x14"
    assert data[42:44] == b"\x03\x10"
    assert decode_lacpdu(data) == Lacpdu(actor=actor, partner=PortInformation())


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x02\x01" + bytes(108), b"\x01\x01\x01\x15" + bytes(106), bytes(110)])
def test_what_is_no_pdu_is_not_read(data: bytes) -> None:
    assert decode_lacpdu(data) is None
