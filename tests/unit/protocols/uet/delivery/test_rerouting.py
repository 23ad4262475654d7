"""When a single path may change (section 3.5.7, 3.6.16): idle, or t_reroute (10 RTT) after it was chosen."""

import pytest
from wire_pair import JOB, MS, WirePair, header

from testbed.protocols.datagram import Outgoing, Priority
from testbed.protocols.uet.memory import Access, RemoteBuffer
from testbed.protocols.uet.packets.codes import Mode
from testbed.protocols.uet.packets.pds import Request

KEY = 5
RTO_NS = 3 * MS


class OrderedPair(WirePair):
    """ROD over one path, with an RTO that is shorter than t_reroute; the requests that `a` sends are kept."""

    def __init__(self) -> None:
        super().__init__(base_rtt_ns=MS, rto_min_ns=RTO_NS)
        self.b.register(bytearray(100), Access.REMOTE_WRITE, JOB, KEY)
        self.sent: list[Outgoing] = []

    def write(self) -> None:
        self.ea.write(self.to_b, b"x", RemoteBuffer(KEY), self.now, mode=Mode.ROD)

    def arrives(self, datagram: Outgoing) -> bool:
        if isinstance(header(datagram), Request):
            self.sent.append(datagram)
        return True

    def is_lost(self, datagram: Outgoing) -> bool:
        self.arrives(datagram)
        return False


def established() -> OrderedPair:
    pair = OrderedPair()
    pair.write()
    pair.settle(pair.arrives)
    return pair


def test_a_path_that_timed_out_is_left_when_idle() -> None:
    pair = established()
    pair.write()
    pair.settle(pair.is_lost)
    pair.pass_time(RTO_NS, pair.arrives)
    pair.pass_time(1)  # what leaves at the same instant leaves as one burst, on one path
    pair.write()
    pair.settle(pair.arrives)
    first, lost, again, after = pair.sent
    assert again.priority is Priority.RETRANSMISSION
    # In order, hence on the same path while it is under way; acknowledged, the next message may take another one.
    assert first.entropy == lost.entropy == again.entropy != after.entropy


def test_a_path_that_timed_out_stays_while_anything_is_unacknowledged() -> None:
    pair = established()
    pair.write()
    pair.settle(pair.is_lost)
    pair.pass_time(RTO_NS, pair.is_lost)
    pair.pass_time(1)
    pair.write()
    pair.settle(pair.is_lost)
    assert len(pair.sent) == 4 and len({datagram.entropy for datagram in pair.sent}) == 1


def test_a_path_that_works_stays_when_idle() -> None:
    pair = established()
    for _ in range(20):
        pair.write()
        pair.settle(pair.arrives)
        pair.pass_time(MS)
    assert len(pair.sent) == 21 and len({datagram.entropy for datagram in pair.sent}) == 1


@pytest.mark.parametrize("rtts", [9, 10])
def test_a_path_that_carries_traffic_is_left_at_t_reroute(rtts: int) -> None:
    pair = established()
    pair.write()
    pair.settle(pair.is_lost)
    pair.pass_time(RTO_NS, pair.is_lost)
    pair.pass_time(rtts * MS - pair.now, pair.is_lost)
    pair.write()
    pair.settle(pair.is_lost)
    assert (pair.sent[-1].entropy != pair.sent[0].entropy) == (rtts >= 10)
