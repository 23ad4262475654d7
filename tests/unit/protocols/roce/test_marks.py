"""A requester hears of marked packets by what acknowledges them."""

import pytest
from rnic_pair import FIRST, SECOND, RnicPair, Wire

from testbed.protocols.congestion.control import CongestionControl
from testbed.protocols.datagram import Outgoing
from testbed.protocols.roce.config import RoceConfig
from testbed.protocols.roce.packets.opcodes import Service
from testbed.protocols.roce.qp import QueuePair

MTU = 256


class Listener(CongestionControl):
    """Keeps what acknowledgements say: bytes, and whether some were marked."""

    def __init__(self, *, precise: bool) -> None:
        super().__init__(1e9)
        self.precise_marks = precise
        self.heard: list[tuple[int, bool]] = []

    def on_ack(self, now: int, acked_bytes: int, marked: bool, rtt_ns: int) -> None:
        if acked_bytes:
            self.heard.append((acked_bytes, marked))


def connected(
    wire: Wire, *, precise: bool, recovery: str = "go-back-n"
) -> tuple[RnicPair, QueuePair, QueuePair, Listener]:
    pair = RnicPair(RoceConfig(mtu=MTU, cc="none", recovery=recovery), wire)
    here, there = pair.connect()
    listener = here.control = Listener(precise=precise)
    there.control = Listener(precise=precise)
    return pair, here, there, listener


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("precise", [False, True])
def test_where_all_packets_are_marked_or_none_each_acknowledgement_says_so(marked: bool, precise: bool) -> None:
    pair, here, _, listener = connected(Wire(mark=float(marked)), precise=precise)
    pair.finish(here.write(bytes(64 * MTU), pair.register(64 * MTU), 0))
    assert sum(size for size, _ in listener.heard) == 64 * MTU
    assert {said for _, said in listener.heard} == {marked}


@pytest.mark.parametrize("recovery", ["go-back-n", "selective"])
def test_precise_marks_tell_how_many_bytes_were_marked(recovery: str) -> None:
    pair, here, there, listener = connected(Wire(mark=0.3), precise=True, recovery=recovery)
    pair.finish(here.write(bytes(200 * MTU), pair.register(200 * MTU), 0))
    assert sum(size for size, said in listener.heard if said) == pytest.approx(there.marked * MTU, abs=MTU)
    assert 0.15 < there.marked / 200 < 0.45


def test_without_them_an_acknowledgement_of_several_says_that_some_was_marked() -> None:
    pair, here, _, listener = connected(Wire(), precise=False)
    pair.wire = Wire(mark=0.05)
    pair.finish(here.write(bytes(200 * MTU), pair.register(200 * MTU), 0))
    said = sum(size for size, marked in listener.heard if marked)
    assert said > 2 * 0.05 * 200 * MTU, "each mark counts for all that is acknowledged with it"


def test_a_window_by_marks_gives_way() -> None:
    """A DCTCP flow all of whose packets are marked ends at its least window, and one without marks at its largest."""
    alphas = []
    for mark in (0.0, 1.0):
        pair = RnicPair(RoceConfig(mtu=MTU, cc="dctcp", base_rtt_ns=10_000), Wire(mark=mark))
        here, _ = pair.connect()
        pair.finish(here.write(bytes(2000 * MTU), pair.register(2000 * MTU), 0))
        alphas.append(here.control.state()["marked_share"])
    assert alphas[0] < 0.2 and alphas[1] == pytest.approx(1.0)


def test_the_mark_of_an_acknowledgement_is_the_becn_bit_and_cnps_are_not_touched() -> None:
    pair, here, _, _ = connected(Wire(mark=1.0), precise=False)
    seen: list[Outgoing] = []
    pair.drop = lambda source, datagram: source != FIRST and bool(seen.append(datagram))
    pair.finish(here.write(bytes(MTU), pair.register(MTU), 0))
    assert seen and all(item.header[4] & 0x40 for item in seen)


def test_an_unreliable_connection_acknowledges_nothing_whatever_is_marked() -> None:
    pair = RnicPair(RoceConfig(mtu=MTU, cc="none"), Wire(mark=0.5))
    here, there = pair.connect(Service.UC)
    there.control = Listener(precise=True)
    received = there.receive(bytearray(32 * MTU), 0)
    here.send(bytes(32 * MTU), 0)
    pair.run(lambda: received.status is not None)
    assert received.ok and pair.opcodes(SECOND) == []
