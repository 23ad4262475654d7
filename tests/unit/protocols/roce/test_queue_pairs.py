"""Queue pairs as users see them: states, services, and how every error ends."""

from collections.abc import Callable

import pytest
from rnic_pair import FIRST, SECOND, RnicPair

from testbed.protocols.datagram import Outgoing, Priority
from testbed.protocols.errors import UsageError
from testbed.protocols.roce.config import RoceConfig
from testbed.protocols.roce.memory import ALL_ACCESS, Access
from testbed.protocols.roce.packets.headers import decode_bth
from testbed.protocols.roce.packets.opcodes import Opcode, Service
from testbed.protocols.roce.packets.syndrome import RNR_TIMERS_NS
from testbed.protocols.roce.qp import QueuePair
from testbed.protocols.roce.states import QpState
from testbed.protocols.roce.work import RemoteBuffer, WorkRequest, WorkStatus

QUICK = RoceConfig(timeout=4, retry_count=2)
QKEY = 0x11111111


def test_a_queue_pair_goes_through_its_states_in_order() -> None:
    qp = RnicPair().first.create_qp()
    for state in (QpState.RTR, QpState.RTS, QpState.SQD, QpState.SQE):
        with pytest.raises(UsageError, match=f"is RESET, from where no step leads to {state}"):
            qp.modify(state)
    qp.modify(QpState.INIT)
    qp.receive(bytearray(8), 0)
    with pytest.raises(UsageError, match="INIT: it cannot send"):
        qp.send(b"x", 0)
    qp.modify(QpState.RTR, remote_ip=SECOND, remote_qpn=17, mtu=1024)
    qp.modify(QpState.RTS, send_psn=5)
    qp.modify(QpState.SQD)
    qp.modify(QpState.RTS)
    qp.modify(QpState.RESET)
    assert qp.state is QpState.RESET


def test_a_path_mtu_that_the_link_does_not_carry_is_refused_with_both_figures() -> None:
    qp = RnicPair(RoceConfig(mtu=1024)).first.create_qp()
    qp.modify(QpState.INIT)
    with pytest.raises(UsageError, match="a path MTU of 4096 bytes, where that of the link allows 1024"):
        qp.modify(QpState.RTR, remote_ip=SECOND, remote_qpn=17, mtu=4096)
    assert qp.state is QpState.INIT


def test_in_sqd_what_has_begun_ends_and_nothing_else_begins() -> None:
    pair = RnicPair(RoceConfig(mtu=256))
    here, there = pair.connect()
    for _ in range(2):
        there.receive(bytearray(4096), 0)
    first = here.send(bytes(4096), 0)
    pair.first.transmit(0, 4)
    here.modify(QpState.SQD)
    second = here.send(bytes(4096), 0)
    pair.run(lambda: here.requester.unacknowledged == 0 or first.status is not None, longest_ns=10**9)
    assert first.status is None or first.ok
    assert second.status is None
    here.modify(QpState.RTS)
    pair.finish(first, second)
    assert first.ok and second.ok


def test_in_sqd_datagrams_wait() -> None:
    pair = RnicPair()
    here = pair.first.create_qp(Service.UD)
    here.open_datagrams(QKEY)
    here.modify(QpState.SQD)
    here.send_to((SECOND, 17, QKEY), b"later", 0)
    assert pair.first.transmit(0) == []
    here.modify(QpState.RTS)
    assert len(pair.first.transmit(0)) == 1


@pytest.mark.parametrize("service", [Service.UC, Service.UD])
def test_in_sqe_requests_are_flushed_and_receives_stay(service: Service) -> None:
    pair = RnicPair()
    here = pair.first.create_qp(service)

    def post() -> WorkRequest:
        if service is Service.UD:
            return here.send_to((SECOND, 17, QKEY), b"x", 0)
        return here.send(b"x", 0)

    if service is Service.UD:
        here.open_datagrams(QKEY)
    else:
        here.connect(SECOND, 17)
    receive = here.receive(bytearray(8), 0)
    before = post()
    here.modify(QpState.SQE)
    after = post()
    assert (before.status, after.status, receive.status) == (WorkStatus.FLUSHED, WorkStatus.FLUSHED, None)
    assert pair.first.transmit(0) == []
    here.modify(QpState.RTS)
    again = post()
    assert len(pair.first.transmit(0)) == 1
    assert again.ok


def test_a_reliable_connection_has_no_sqe() -> None:
    here, _ = RnicPair().connect()
    with pytest.raises(UsageError, match="is RC: its errors take it to ERR"):
        here.modify(QpState.SQE)
    assert here.state is QpState.RTS


def test_an_error_flushes_everything_posted_before_and_after() -> None:
    pair = RnicPair()
    here, _ = pair.connect()
    receive = here.receive(bytearray(8), 0)
    sent = here.send(b"x", 0)
    here.modify(QpState.ERR)
    later = here.send(b"y", 0)
    assert [receive.status, sent.status, later.status] == [WorkStatus.FLUSHED] * 3
    assert list(here.completions) == [sent, receive, later]


def test_a_message_of_several_packets_arrives_with_its_immediate_data() -> None:
    pair = RnicPair(RoceConfig(mtu=256))
    here, there = pair.connect()
    data = bytes(range(256)) * 2 + b"end"
    buffer = bytearray(1024)
    received = there.receive(buffer, 0, context="room")
    request = here.send(data, 0, immediate=7)
    pair.finish(request)
    assert (received.ok, received.length, received.immediate, received.context) == (True, len(data), 7, "room")
    assert buffer[: len(data)] == data
    assert pair.opcodes(FIRST) == [Opcode.RC_SEND_FIRST, Opcode.RC_SEND_MIDDLE, Opcode.RC_SEND_LAST_IMMEDIATE]


def test_a_send_with_invalidate_takes_the_rkey_away() -> None:
    pair = RnicPair()
    here, there = pair.connect()
    remote = pair.register(64)
    received = there.receive(bytearray(8), 0)
    request = here.send(b"x", 0, invalidate=remote.rkey)
    pair.finish(request)
    assert received.invalidated_rkey == remote.rkey
    late = here.write(b"y", remote, 0)
    pair.finish(late)
    assert late.status is WorkStatus.REMOTE_ACCESS_ERROR


@pytest.mark.parametrize("size", [8, 600])
def test_a_send_that_would_invalidate_what_is_not_its_peers_is_refused(size: int) -> None:
    pair = RnicPair(RoceConfig(mtu=256))
    here, there = pair.connect()
    foreign = pair.second.register(bytearray(64), ALL_ACCESS, domain=9)
    received = there.receive(bytearray(size), 0)
    request = here.send(b"x" * size, 0, invalidate=foreign.rkey)
    pair.finish(request)
    assert request.status is WorkStatus.REMOTE_ACCESS_ERROR
    assert received.status is WorkStatus.FLUSHED and received.length == 0
    assert pair.second.regions.resolve(foreign.rkey, 9, foreign.base, 64, Access.REMOTE_WRITE) is not None


def test_an_unreliable_connection_loses_the_message_that_a_packet_was_lost_of_and_no_other() -> None:
    pair = RnicPair(RoceConfig(mtu=256))
    here, there = pair.connect(Service.UC)
    buffers = [bytearray(1024) for _ in range(3)]
    receives = [there.receive(buffer, 0) for buffer in buffers]
    lost: list[Outgoing] = []

    def drop_the_fifth(source: str, datagram: Outgoing) -> bool:
        if source == FIRST and len(pair.sent) == 5:
            lost.append(datagram)
            return True
        return False

    pair.drop = drop_the_fifth
    requests = [here.send(bytes([number]) * 700, 0) for number in (1, 2, 3)]
    pair.run(lambda: receives[1].status is not None)
    assert lost and None not in [request.status for request in requests]
    assert [receive.ok for receive in receives[:2]] == [True, True]
    assert bytes(buffers[0][:700]) == b"\1" * 700
    assert bytes(buffers[1][:700]) == b"\3" * 700
    assert receives[2].status is None


def test_datagrams_go_to_anybody_with_the_key() -> None:
    pair = RnicPair()
    here, there = pair.first.create_qp(Service.UD), pair.second.create_qp(Service.UD)
    here.open_datagrams(QKEY)
    there.open_datagrams(QKEY)
    received = there.receive(bytearray(16), 0)
    here.send_to((SECOND, there.number, QKEY + 1), b"wrong key", 0)
    here.send_to((SECOND, there.number, QKEY), b"hello", 0, immediate=3)
    here.send_to((SECOND, there.number, QKEY), b"no room", 0)
    pair.run(lambda: pair.second.counters["no-receive"] == 1)
    assert bytes(received.buffer[:5]) == b"hello"
    assert (received.source_ip, received.source_qpn, received.immediate) == (FIRST, here.number, 3)
    assert pair.second.counters["wrong-qkey"] == 1
    with pytest.raises(UsageError, match="at most 4096 bytes, not 4097"):
        here.send_to((SECOND, there.number, QKEY), bytes(4097), 0)


@pytest.mark.parametrize("service", [Service.UC, Service.UD])
def test_unreliable_services_have_no_reads_and_atomics(service: Service) -> None:
    qp = RnicPair().first.create_qp(service)
    for post in (
        lambda: qp.read(bytearray(8), RemoteBuffer(0, 0), 0),
        lambda: qp.fetch_add(bytearray(8), RemoteBuffer(0, 0), 1, 0),
        lambda: qp.compare_swap(bytearray(8), RemoteBuffer(0, 0), (1, 2), 0),
    ):
        with pytest.raises(UsageError, match="needs a reliable connection"):
            post()


OPERATIONS: dict[Access, Callable[[QueuePair, RemoteBuffer], WorkRequest]] = {
    Access.REMOTE_WRITE: lambda qp, remote: qp.write(b"12345678", remote, 0),
    Access.REMOTE_READ: lambda qp, remote: qp.read(bytearray(8), remote, 0),
    Access.REMOTE_ATOMIC: lambda qp, remote: qp.fetch_add(bytearray(8), remote, 1, 0),
}
TRESPASSES: dict[str, Callable[[int, int], RemoteBuffer]] = {
    "rkey": lambda base, rkey: RemoteBuffer(base, rkey ^ 1),
    "before": lambda base, rkey: RemoteBuffer(base - 8, rkey),
    "behind": lambda base, rkey: RemoteBuffer(base + 64, rkey),
    "half behind": lambda base, rkey: RemoteBuffer(base + 57, rkey),
    "wrapped": lambda base, rkey: RemoteBuffer((1 << 64) - 4, rkey),
    "domain": RemoteBuffer,
    "access": RemoteBuffer,
}


@pytest.mark.parametrize("trespass", TRESPASSES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_memory_that_is_not_the_requesters_is_not_touched(trespass: str, operation: Access) -> None:
    pair = RnicPair()
    here, there = pair.connect()
    memory = bytearray(b"*" * 64)
    access = ALL_ACCESS & ~operation if trespass == "access" else ALL_ACCESS
    region = pair.second.register(memory, access, domain=1 if trespass == "domain" else 0)
    remote = TRESPASSES[trespass](region.base, region.rkey)
    if operation is Access.REMOTE_ATOMIC:
        remote = RemoteBuffer(remote.virtual_address + 7 & (1 << 64) - 8, remote.rkey)
    request = OPERATIONS[operation](here, remote)
    pair.finish(request)
    assert request.status is WorkStatus.REMOTE_ACCESS_ERROR
    assert memory == b"*" * 64
    assert (here.state, there.state) == (QpState.ERR, QpState.ERR)


def test_a_message_longer_than_its_receive_fails_at_both_ends() -> None:
    pair = RnicPair()
    here, there = pair.connect()
    received = there.receive(bytearray(4), 0)
    request = here.send(b"12345", 0)
    pair.finish(request)
    assert request.status is WorkStatus.REMOTE_INVALID_REQUEST
    assert received.status is WorkStatus.LOCAL_LENGTH_ERROR


def test_a_peer_without_a_receive_is_asked_again_after_its_timer() -> None:
    pair = RnicPair(RoceConfig(min_rnr_timer=10, time_scale=3.0))
    here, there = pair.connect()
    request = here.send(b"late", 0)
    pair.run(lambda: here.requester.next_timer() != 0 and pair.first.counters["rnr-nak"] == 1)
    told = pair.now
    received = there.receive(bytearray(8), pair.now)
    pair.finish(request)
    assert request.ok and received.length == 4
    assert pair.now - told >= 3 * RNR_TIMERS_NS[10]


def test_a_peer_that_never_has_a_receive_ends_the_request() -> None:
    pair = RnicPair(RoceConfig(rnr_retry=2, min_rnr_timer=1))
    here, _ = pair.connect()
    request = here.send(b"never", 0)
    pair.finish(request)
    assert request.status is WorkStatus.RNR_RETRY_EXCEEDED
    assert pair.opcodes(FIRST) == [Opcode.RC_SEND_ONLY] * 3


def test_a_peer_that_is_silent_ends_every_request_and_nothing_hangs() -> None:
    pair = RnicPair(QUICK)
    here, _ = pair.connect()
    pair.drop = lambda source, datagram: True
    requests = [here.send(b"x", 0), here.send(b"y", 0)]
    pair.finish(*requests)
    assert [request.status for request in requests] == [WorkStatus.RETRY_EXCEEDED, WorkStatus.FLUSHED]
    assert here.error == "the peer does not answer"
    assert pair.now == (QUICK.retry_count + 1) * QUICK.timeout_ns


def test_the_timeout_is_longer_by_the_time_scale() -> None:
    assert RoceConfig(timeout=14).timeout_ns == 4096 << 14
    assert RoceConfig(timeout=14, time_scale=2000.0).timeout_ns == 2000 * (4096 << 14)
    assert RoceConfig(timeout=0).timeout_ns == 0


def test_a_link_that_is_down_for_less_than_the_retries_loses_nothing() -> None:
    pair = RnicPair(QUICK)
    here, there = pair.connect()
    received = there.receive(bytearray(65536), 0)
    pair.drop = lambda source, datagram: 20_000 < pair.now < 20_000 + QUICK.timeout_ns
    request = here.send(bytes(60_000), 0)
    pair.finish(request)
    assert request.ok and received.length == 60_000
    assert here.requester.retransmitted > 0


@pytest.mark.parametrize("size", [0, 7])
def test_an_atomic_operation_fetches_eight_bytes(size: int) -> None:
    here, _ = RnicPair().connect()
    with pytest.raises(UsageError, match=f"8 bytes, not {size}"):
        here.fetch_add(bytearray(size), RemoteBuffer(0, 0), 1, 0)


def test_queues_are_bounded() -> None:
    pair = RnicPair(RoceConfig(most_posted=2))
    here, there = pair.connect()
    for _ in range(2):
        here.send(b"x", 0)
        there.receive(bytearray(1), 0)
    with pytest.raises(UsageError, match="the send queue holds 2 requests"):
        here.send(b"x", 0)
    with pytest.raises(UsageError, match="the receive queue holds 2 requests"):
        there.receive(bytearray(1), 0)


def test_marks_are_told_once_in_the_interval_and_before_all_else() -> None:
    pair = RnicPair(RoceConfig(mtu=256, cc_parameters={"cnp_us": 50}))
    here, there = pair.connect()
    there.receive(bytearray(1 << 16), 0)
    object.__setattr__(pair.wire, "mark", 1.0)
    request = here.send(bytes(1 << 16), 0)
    pair.finish(request)
    notifications = [datagram for source, datagram in pair.sent if decode_bth(datagram.header).opcode == Opcode.CNP]
    assert 1 <= len(notifications) <= 1 + pair.now // there.control.notification_ns
    assert here.notifications == len(notifications) == pair.second.counters["cnp-sent"]
    assert there.marked == 256
    cnp = notifications[0]
    assert cnp.priority is Priority.NOTIFICATION
    bth = decode_bth(cnp.header)
    assert (bth.dest_qp, bth.psn, bth.becn, cnp.header[12:]) == (here.number, 0, True, bytes(16))


@pytest.mark.parametrize(
    ("marks_us", "told_us"),
    [
        ([5], [5]),
        ([5, 6, 54], [5, 55]),
        ([5, 55], [5, 55]),
        ([5, 56], [5, 56]),
        ([5, 20, 130], [5, 55, 130]),
        ([5, 20, 60, 104, 106], [5, 55, 105, 155]),
    ],
)
def test_the_notification_point_tells_at_once_and_then_at_the_end_of_intervals(
    marks_us: list[int], told_us: list[int]
) -> None:
    """DCQCN paper, section 3.1: of the packets that come within 50 us after a CNP, any that was marked makes one."""
    pair = RnicPair(RoceConfig(parameters="paper"))
    _, there = pair.connect()
    told = []
    for at in sorted({*marks_us, *range(300)}):
        now = 1000 * at
        timer = pair.second.next_timer()
        if timer is not None and timer <= now:
            pair.second.handle_timer(now)
        for _ in range(marks_us.count(at)):
            there.on_marked(FIRST, 0, now)
        told += [at for _ in pair.second.transmit(now)]
    assert told == told_us and there.marked == len(marks_us)
    assert pair.second.next_timer() is None
