"""When a queue pair acts: its timer, its rate, the order of answers, and windows that shrink."""

from collections.abc import Callable

import pytest
from rnic_pair import FIRST, SECOND, RnicPair, Wire, opcode_of

from testbed.protocols.datagram import Incoming, Outgoing, Priority
from testbed.protocols.roce.config import HEADER_BYTES, RoceConfig
from testbed.protocols.roce.packets.headers import BTH_BYTES, decode_aeth, decode_bth
from testbed.protocols.roce.packets.opcodes import Opcode
from testbed.protocols.roce.packets.syndrome import RNR_NAK, kind_of
from testbed.protocols.roce.qp import QueuePair
from testbed.protocols.roce.rate_limiter import BURST_PACKETS, MOST_LATE_PACKETS
from testbed.protocols.roce.rnic import Rnic
from testbed.protocols.roce.states import QpState
from testbed.protocols.roce.work import RemoteBuffer, WorkStatus

SECOND_NS = 10**9

READ_RESPONSES = {
    Opcode.RC_READ_RESPONSE_FIRST,
    Opcode.RC_READ_RESPONSE_MIDDLE,
    Opcode.RC_READ_RESPONSE_LAST,
    Opcode.RC_READ_RESPONSE_ONLY,
}


def from_second(*opcodes: Opcode) -> Callable[[str, Outgoing], bool]:
    """What drops such packets of the responder's."""
    return lambda source, datagram: source == SECOND and opcode_of(datagram) in opcodes


@pytest.mark.parametrize("wire", [Wire(), Wire(loss=0.01)])
def test_traffic_leaves_no_timers_behind(wire: Wire) -> None:
    pair = RnicPair(RoceConfig(mtu=256, ack_packets=1, timeout=20), wire)
    here, _ = pair.connect()
    remote = pair.register(1 << 16)
    requests = [here.write(bytes(1 << 16), remote, 0), here.read(bytearray(1 << 16), remote, 0)]
    pair.finish(*requests)
    assert all(request.ok for request in requests)
    fired = 0
    while (due := pair.first.next_timer()) is not None:
        pair.first.handle_timer(due)
        fired += 1
    assert fired <= 2


def test_a_timer_that_was_put_off_is_handled_when_its_time_has_come() -> None:
    pair = RnicPair(RoceConfig(mtu=256, ack_packets=1, timeout=8, retry_count=1))
    here, _ = pair.connect()
    remote = pair.register(4096)
    request = here.write(bytes(4096), remote, 0)
    pair.drop = lambda source, datagram: source == FIRST and decode_bth(datagram.header).psn >= 8
    pair.finish(request)
    assert request.status is WorkStatus.RETRY_EXCEEDED
    assert pair.first.counters["timeout"] == 1
    latest_ack = 10_000 + 8 * 3_000
    assert 2 * pair.config.timeout_ns <= request.finished_ns <= 2 * pair.config.timeout_ns + latest_ack


def test_retries_are_given_back_for_progress_alone() -> None:
    pair = RnicPair(RoceConfig(timeout=8, retry_count=2))
    here, _ = pair.connect()
    remote = pair.register(64)
    pair.drop = from_second(*READ_RESPONSES)
    read = here.read(bytearray(8), remote, 0)
    here.write(b"behind", remote, 0)  # is acknowledged each time
    pair.finish(read, longest_ns=20 * pair.config.timeout_ns)
    assert read.status is WorkStatus.RETRY_EXCEEDED


def sent_by(rnic: Rnic, begin: int, end: int, tick_ns: int, limit: int = 64) -> list[tuple[int, int]]:
    """Times and sizes (as a port counts them) of the data that leave where the worker looks once a tick."""
    found = []
    for now in range(begin, end, tick_ns):
        due = rnic.next_timer()
        if due is not None and due <= now:
            rnic.handle_timer(now)
        while True:
            datagrams = rnic.transmit(now, limit)
            found += [
                (now, HEADER_BYTES - BTH_BYTES - 4 + len(item.header) + len(item.payload))
                for item in datagrams
                if item.priority is Priority.DATA
            ]
            if len(datagrams) < limit:
                break
    return found


def sender(rate_bps: int, mtu: int = 4096) -> tuple[Rnic, QueuePair]:
    pair = RnicPair(RoceConfig(link_rate_bps=rate_bps, mtu=mtu, window_packets=1 << 20, timeout=0))
    here, _ = pair.connect()
    here.write(bytes(1 << 28), RemoteBuffer(0, 1), 0)
    return pair.first, here


@pytest.mark.parametrize(
    ("rate_bps", "mtu", "tick_ns"),
    [
        (10**9, 4096, 1_000),
        (10**9, 4096, 50_000),
        (10**9, 4096, 1_000_000),
        (123_456_789, 4096, 10_000_000),
        (10**7, 1024, 333_333),
        (10**9, 256, 100_000),
    ],
)
def test_a_rate_is_kept_whatever_the_tick(rate_bps: int, mtu: int, tick_ns: int) -> None:
    rnic, _ = sender(rate_bps, mtu)
    sent = sent_by(rnic, 0, SECOND_NS, tick_ns)
    assert sum(size for _, size in sent) * 8 == pytest.approx(rate_bps, rel=0.01)


def test_several_queue_pairs_behind_a_limit_of_the_nic_do_not_save_up_their_rates() -> None:
    """A NIC that takes one packet in 40 us gives each of two a quarter of its rate; cut, one keeps to the new rate."""
    rnic, first = sender(10**9)
    second = rnic.create_qp()
    second.connect(SECOND, 99)
    second.write(bytes(1 << 28), RemoteBuffer(0, 1), 0)
    for now in range(0, SECOND_NS // 10, 80_000):
        due = rnic.next_timer()
        if due is not None and due <= now:
            rnic.handle_timer(now)
        rnic.transmit(now, 1)
    first.control.rate_bps = second.control.rate_bps = 1e7
    begin = SECOND_NS // 10
    sent = sent_by(rnic, begin, begin + SECOND_NS, 80_000)
    packets = 2 * (1e7 / 8 / (4096 + HEADER_BYTES))
    assert len(sent) <= packets * 1.01 + 2 * (BURST_PACKETS + 2)


def test_who_was_not_asked_for_long_makes_up_for_so_much_and_no_more() -> None:
    rnic, _ = sender(10**9)
    sent_by(rnic, 0, SECOND_NS // 100, 10_000)
    burst = sent_by(rnic, SECOND_NS, SECOND_NS + 1, 1)
    assert MOST_LATE_PACKETS <= len(burst) <= MOST_LATE_PACKETS + BURST_PACKETS


def test_behind_a_line_that_keeps_the_rate_only_lower_rates_are_limited() -> None:
    rnic, here = sender(10**9)
    rnic.unlimited_bps = 10**9
    assert [len(rnic.transmit(SECOND_NS, limit)) for limit in (64, 40)] == [64, 40]  # what its NIC asks for
    here.control.rate_bps = 1e8
    sent = sent_by(rnic, 2 * SECOND_NS, 3 * SECOND_NS, 1_000_000)
    assert sum(size for _, size in sent) * 8 == pytest.approx(1e8, rel=0.01)


def test_who_had_nothing_to_send_saves_up_a_small_burst() -> None:
    pair = RnicPair(RoceConfig(link_rate_bps=10**9))
    here, _ = pair.connect()
    here.write(bytes(1 << 20), RemoteBuffer(0, 1), SECOND_NS)
    assert len(sent_by(pair.first, SECOND_NS, SECOND_NS + 1, 1)) == BURST_PACKETS + 1


def test_at_a_rate_of_a_packet_in_many_timeouts_nothing_fails() -> None:
    pair = RnicPair(RoceConfig(mtu=4096, timeout=4, retry_count=2))
    here, _ = pair.connect()
    remote = pair.register(1 << 16)
    here.control.rate_bps = 1e6
    request = here.write(bytes(1 << 15), remote, 0)
    pair.finish(request)
    assert request.ok


def test_a_slow_sender_asks_before_the_peer_has_been_silent_for_too_long() -> None:
    pair = RnicPair(RoceConfig(mtu=4096, timeout=14))
    here, _ = pair.connect()
    remote = pair.register(1 << 17)
    here.control.rate_bps = 5e6  # ten packets in a timeout
    request = here.write(bytes(1 << 17), remote, 0)
    pair.finish(request)
    assert request.ok
    assert pair.first.counters["timeout"] == pair.first.counters["retransmitted"] == 0


def test_the_acknowledgement_behind_a_response_leaves_with_its_end() -> None:
    pair = RnicPair(RoceConfig(mtu=256))
    here, _ = pair.connect()
    remote = pair.register(1 << 14)
    requests = [here.read(bytearray(1 << 14), remote, 0), here.write(b"behind it", remote, 0)]
    pair.finish(*requests)
    assert all(request.ok for request in requests)
    assert not pair.first.counters["timeout"]


def test_an_atomic_operation_is_answered_after_the_read_before_it() -> None:
    pair = RnicPair(RoceConfig(mtu=256))
    here, _ = pair.connect()
    memory = bytearray(1 << 14)
    remote = pair.register(memory)
    read, add = here.read(bytearray(1 << 14), remote, 0), here.fetch_add(bytearray(8), remote, 1, 0)
    pair.finish(read, add)
    assert read.ok and add.ok
    assert not pair.first.counters["response-gap"]
    assert pair.first.counters["retransmitted"] == 0
    assert memory[:8] == (1).to_bytes(8, "little")


def sent_within(rnic: Rnic, begin: int, end: int) -> list[Outgoing]:
    """What leaves between these times (ns), as its rate allows."""
    sent, now = rnic.transmit(begin), begin
    while (due := rnic.next_timer()) is not None and due < end:
        now = max(now, due)
        rnic.handle_timer(now)
        sent += rnic.transmit(now)
    return sent


@pytest.mark.parametrize(
    ("asked", "acknowledged"),
    [
        ("write read", 0),
        ("write fetch-add", 0),
        ("write read fetch-add read", 0),
        ("read write", 3),
        ("write read write fetch-add", 4),
        ("write read fetch-add write", 5),
    ],
)
@pytest.mark.parametrize("first_psn", [0, 0xFF_FFFF])
def test_no_acknowledgement_has_the_psn_of_what_its_response_acknowledges(
    asked: str, acknowledged: int, first_psn: int
) -> None:
    """Where requests arrive together. Soft RDMA would end a READ whose response was lost as if its data were there."""
    pair = RnicPair(RoceConfig(mtu=256))
    here, _ = pair.connect(first_psn=first_psn)
    remote = pair.register(1 << 10)
    for operation in asked.split():
        if operation == "write":
            here.write(b"data", remote, 0)
        elif operation == "read":
            here.read(bytearray(3 * 256), remote, 0)
        else:
            here.fetch_add(bytearray(8), remote, 1, 0)
    arrived = [Incoming(FIRST, item.entropy, item.to_bytes()) for item in sent_within(pair.first, 0, 100_000)]
    assert len(arrived) == len(asked.split())
    for begin in (100_000, 200_000):
        pair.second.receive(arrived, begin)
        heads = [decode_bth(item.header) for item in sent_within(pair.second, begin, begin + 100_000)]
        acknowledgements = [head.psn for head in heads if head.opcode == Opcode.RC_ACKNOWLEDGE]
        assert acknowledgements == [(first_psn + acknowledged) & 0xFF_FFFF]
        assert any(head.opcode in READ_RESPONSES for head in heads) == ("read" in asked)


def test_a_refusal_waits_for_the_response_before_it() -> None:
    pair = RnicPair(RoceConfig(mtu=256, timeout=8, retry_count=2))
    here, there = pair.connect()
    memory = bytearray(1 << 14)
    remote = pair.register(memory)
    read = here.read(bytearray(1 << 14), remote, 0)
    write = here.write(b"x", RemoteBuffer(remote.virtual_address, remote.rkey ^ 1), 0)
    behind = here.write(b"not executed", remote, 0)
    pair.finish(read, write, behind)
    assert read.ok
    assert (write.status, behind.status) == (WorkStatus.REMOTE_ACCESS_ERROR, WorkStatus.FLUSHED)
    assert there.state is QpState.ERR
    assert not any(memory)


def test_packets_behind_one_that_met_no_receive_are_no_sequence_error() -> None:
    pair = RnicPair(RoceConfig(mtu=256, min_rnr_timer=14))
    here, there = pair.connect()
    now = pair.now = SECOND_NS
    request = here.send(bytes(1024), now)
    arrived = [Incoming(FIRST, item.entropy, item.to_bytes()) for item in pair.first.transmit(now)]
    assert len(arrived) > 1
    pair.second.receive(arrived, now)
    [answer] = pair.second.transmit(now)
    assert kind_of(decode_aeth(answer.header, BTH_BYTES).syndrome) == RNR_NAK
    pair.second.receive(arrived[1:], now)
    assert pair.second.transmit(now) == []
    pair.first.receive([Incoming(SECOND, answer.entropy, answer.to_bytes())], now)
    there.receive(bytearray(1024), 0)
    pair.finish(request)
    assert request.ok


def test_one_short_message_goes_before_the_answers() -> None:
    pair = RnicPair()
    here, there = pair.connect()
    now = SECOND_NS
    remote = pair.register(64)
    here.write(b"ping", remote, now)
    [ping] = pair.first.transmit(now)
    pair.second.receive([Incoming(FIRST, ping.entropy, ping.to_bytes())], now)
    for _ in range(2):
        there.write(b"pong", RemoteBuffer(0, 1), now)
    sent = [opcode_of(datagram) for datagram in pair.second.transmit(now)]
    assert sent == [Opcode.RC_WRITE_ONLY, Opcode.RC_ACKNOWLEDGE, Opcode.RC_WRITE_ONLY]


@pytest.mark.parametrize("recovery", ["go-back-n", "selective"])
def test_a_window_that_shrinks_below_what_is_under_way_stops_nothing(recovery: str) -> None:
    pair = RnicPair(RoceConfig(mtu=256, recovery=recovery, timeout=14, retry_count=1))
    here, _ = pair.connect()
    remote = pair.register(1 << 16)
    request = here.write(bytes(1 << 16), remote, 0)
    lost: list[int] = []

    def drop_the_tenth(source: str, datagram: Outgoing) -> bool:
        if source == FIRST and decode_bth(datagram.header).psn == 10 and not lost:
            lost.append(1)
            here.control.window_bytes = 300.0
            return True
        return False

    pair.drop = drop_the_tenth
    pair.finish(request)
    assert request.ok and lost
    assert pair.first.counters["timeout"] == 0


def test_a_window_of_fewer_packets_than_an_acknowledgement_is_for_does_not_wait_for_the_timer() -> None:
    pair = RnicPair(RoceConfig(mtu=256))
    here, _ = pair.connect()
    here.control.window_bytes = 5 * 256.0
    remote = pair.register(1 << 14)
    request = here.write(bytes(1 << 14), remote, 0)
    pair.finish(request)
    assert request.ok
    assert pair.first.counters["timeout"] == 0


def test_nothing_of_its_former_life_counts_against_the_window_of_a_queue_pair() -> None:
    pair = RnicPair()
    here, there = pair.connect()
    here.write(bytes(4096), RemoteBuffer(0, 1), 0)
    pair.first.transmit(0)
    assert here.unacked_bytes == 4096
    for qp, peer, address in ((here, there, SECOND), (there, here, FIRST)):
        qp.modify(QpState.RESET)
        qp.connect(address, peer.number)
    assert here.unacked_bytes == 0
