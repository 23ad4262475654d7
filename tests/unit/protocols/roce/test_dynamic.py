"""Dynamic connections: what attaching costs, who waits for whom, and how every loss and restart ends."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from rnic_pair import FIRST, SECOND, RnicPair, opcode_of, sealed

from testbed.protocols.datagram import Incoming, Outgoing
from testbed.protocols.errors import UsageError
from testbed.protocols.roce.config import RoceConfig
from testbed.protocols.roce.dynamic import DynamicConnections
from testbed.protocols.roce.dynamic_initiator import CONNECT_BODY, SESSION_BODY, Destination
from testbed.protocols.roce.memory import ALL_ACCESS
from testbed.protocols.roce.packets.headers import Bth, Deth, decode_bth
from testbed.protocols.roce.packets.opcodes import Opcode
from testbed.protocols.roce.rnic import Rnic
from testbed.protocols.roce.state_size import qp_state_bytes
from testbed.protocols.roce.work import RemoteBuffer, WorkStatus

QUICK = RoceConfig(timeout=4, retry_count=2, base_rtt_ns=20_000)
KEY = 0x5EC0DE
TARGET = 0x777
THIRD = "10.0.0.3"


class Served:
    """A target with registered memory at an RNIC."""

    def __init__(self, rnic: Rnic, receives: int = 0) -> None:
        self.connections = DynamicConnections(rnic, initiators=1)
        self.target = self.connections.create_target(KEY, number=TARGET)
        self.memory = bytearray(1 << 16)
        self.region = rnic.register(self.memory, ALL_ACCESS)
        for _ in range(receives):
            self.target.receive(bytearray(64))

    def at(self, offset: int = 0) -> RemoteBuffer:
        return RemoteBuffer(self.region.base + offset, self.region.rkey)


def lossy(*lost: tuple[Opcode, int]) -> Callable[[str, Outgoing], bool]:
    """Drops the first so many datagrams of each opcode."""
    left = Counter(dict(lost))

    def drop(source: str, datagram: Outgoing) -> bool:
        opcode = opcode_of(datagram)
        left[opcode] -= 1
        return left[opcode] >= 0

    return drop


def dynamic_pair(
    config: RoceConfig = QUICK, *, initiators: int = 2, receives: int = 0
) -> tuple[RnicPair, DynamicConnections, Served, Destination]:
    pair = RnicPair(config)
    here = DynamicConnections(pair.first, initiators=initiators)
    there = Served(pair.second, receives)
    return pair, here, there, here.destination(SECOND, TARGET, KEY)


def test_attaching_costs_a_packet_and_no_round_trip() -> None:
    pair, _, there, destination = dynamic_pair()
    request = destination.write(b"x" * 100, there.at(), pair.now)
    connect = pair.first.transmit(0)
    after = pair.first.next_timer()
    assert after is not None and after < 2_000  # ns: what the connect takes at the rate of the NIC, 1 Gbit/s
    pair.first.handle_timer(after)
    datagrams = connect + pair.first.transmit(after)
    assert [opcode_of(one) for one in datagrams] == [Opcode.DC_CONNECT, Opcode.RC_WRITE_ONLY]
    pair, _, there, destination = dynamic_pair()
    request = destination.write(b"x" * 100, there.at(), pair.now)
    pair.finish(request)
    assert request.ok and there.memory[:100] == b"x" * 100
    assert pair.opcodes(SECOND) == [Opcode.RC_ACKNOWLEDGE]
    again = destination.write(b"y" * 100, there.at(), pair.now)  # still attached
    pair.finish(again)
    assert pair.first.counters["connects"] == destination.counts["connects"] == 1
    assert destination.acked_bytes == 200 and destination.sent == 2


def test_an_initiator_without_work_detaches_and_both_ends_forget() -> None:
    pair, here, there, destination = dynamic_pair()
    request = destination.write(b"x", there.at(), 0)
    pair.finish(request)
    ended_at = pair.now
    assert len(there.connections.responders) == 1
    pair.run(lambda: not there.connections.responders)
    assert here.detach_ns <= pair.now - ended_at <= here.detach_ns + 20_000
    assert destination.initiator is None and pair.first.idle and pair.second.idle
    assert destination.acked_bytes == 1 and destination.least_rtt_ns == 10_000
    later = destination.write(b"z", there.at(), pair.now)
    pair.finish(later)
    assert later.ok and pair.first.counters["connects"] == 2 and pair.first.counters["disconnects"] == 1


def test_every_operation_goes_over_a_dynamic_connection() -> None:
    pair, _, there, destination = dynamic_pair(receives=1)
    there.memory[0:8] = (40).to_bytes(8, "little")
    into, found, swapped = bytearray(10_000), bytearray(8), bytearray(8)
    requests = [
        destination.send(b"hello", 0, immediate=7),
        destination.fetch_add(found, there.at(), 2, 0),
        destination.compare_swap(swapped, there.at(), (42, 99), 0, fence=True),
        destination.read(into, there.at(), 0, fence=True),
    ]
    pair.finish(*requests)
    assert all(request.ok for request in requests)
    assert int.from_bytes(found, "little") == 40 and int.from_bytes(swapped, "little") == 42
    assert into == there.memory[:10_000] and int.from_bytes(into[:8], "little") == 99
    received = there.target.completions.popleft()
    assert received.ok and received.immediate == 7 and received.source_ip == FIRST


def test_a_pool_serves_more_peers_than_it_has_initiators_in_turn() -> None:
    pair = RnicPair(QUICK)
    here = DynamicConnections(pair.first, initiators=1)
    served = {address: Served(pair.add(address)) for address in (SECOND, THIRD, "10.0.0.4")}
    destinations = {address: here.destination(address, TARGET, KEY) for address in served}
    requests = [
        destinations[address].write(bytes([turn]) * 5000, served[address].at(5000 * turn), 0)
        for turn in range(3)
        for address in served
    ]
    pair.finish(*requests)
    assert all(request.ok for request in requests)
    for one in served.values():
        assert one.memory[:15_000] == b"".join(bytes([turn]) * 5000 for turn in range(3))
    # The first peer had one request when the others came; its later ones waited behind them.
    assert pair.first.counters["connects"] == 4
    assert sum(request.finished_ns for request in requests[:3]) < sum(request.finished_ns for request in requests[3:6])
    assert qp_state_bytes(pair.first) < 2 * qp_state_bytes(served[SECOND].connections._rnic)


def test_in_line_a_peer_keeps_the_order_of_its_requests() -> None:
    pair, here, there, destination = dynamic_pair(initiators=1, receives=6)
    other = Served(pair.add(THIRD), receives=6)
    elsewhere = here.destination(THIRD, TARGET, KEY)
    requests = []
    for number in range(6):
        requests.append(destination.send(bytes(64), 0, immediate=number))
        requests.append(elsewhere.send(bytes(64), 0, immediate=number))
    pair.finish(*requests)
    for one in (there, other):
        assert [receive.immediate for receive in one.target.completions] == list(range(6))


@pytest.mark.parametrize("unattached_lost", [0, 99])
def test_a_lost_connect_comes_again(unattached_lost: int) -> None:
    pair, _, there, destination = dynamic_pair(receives=3)
    pair.drop = lossy((Opcode.DC_CONNECT, 1), (Opcode.DC_UNATTACHED, unattached_lost))
    requests = [destination.send(bytes(9), 0, immediate=one) for one in range(3)]
    pair.finish(*requests)
    assert all(request.ok for request in requests)
    assert [receive.immediate for receive in there.target.completions] == [0, 1, 2]
    assert pair.first.counters["connects"] == 2
    assert pair.first.counters["timeout"] == (1 if unattached_lost else 0)


def test_a_lost_answer_has_the_connect_repeated_and_nothing_executed_twice() -> None:
    pair, _, there, destination = dynamic_pair(receives=2)
    pair.drop = lossy((Opcode.RC_ACKNOWLEDGE, 1))
    request = destination.send(b"once", 0)
    pair.finish(request)
    assert request.ok and len(there.target.completions) == 1 and len(there.target.receives) == 1
    assert pair.second.counters["duplicate-connect"] == 1 and pair.second.counters["attached"] == 1


def test_a_lost_disconnect_leaves_a_responder_that_is_forgotten_or_replaced() -> None:
    pair, _, there, destination = dynamic_pair()
    pair.drop = lossy((Opcode.DC_DISCONNECT, 2))
    for byte in (b"a", b"b"):
        request = destination.write(byte, there.at(), pair.now)
        pair.finish(request)
        pair.run(lambda: destination.initiator is None)
        assert request.ok and len(there.connections.responders) == 1
    assert pair.second.counters["attached"] == 2
    heard_at = pair.now
    pair.run(lambda: not there.connections.responders)
    assert pair.second.counters["forgotten"] == 1
    assert pair.now - heard_at <= there.connections.forget_ns + 20_000


def test_work_that_comes_while_the_disconnect_is_under_way_attaches_again() -> None:
    pair, _, there, destination = dynamic_pair()
    first = destination.write(b"x", there.at(), 0)
    pair.finish(first)
    pair.run(lambda: destination.initiator is None)  # the disconnect is sent, and not there yet
    second = destination.write(b"y", there.at(1), pair.now)
    pair.finish(second)
    assert second.ok and there.memory[:2] == b"xy" and len(there.connections.responders) == 1
    assert pair.first.counters["retransmitted"] == 0


def test_a_late_disconnect_and_a_late_connect_change_nothing() -> None:
    pair, _, there, destination = dynamic_pair()
    first = destination.write(b"x", there.at(), 0)
    pair.finish(first)
    pair.run(lambda: not there.connections.responders)
    old = [datagram for _, datagram in pair.sent if decode_bth(datagram.header).opcode >= Opcode.DC_CONNECT]
    assert len(old) == 2
    second = destination.write(b"y", there.at(), pair.now)
    pair.finish(second)
    attached = there.connections.responders
    pair.second.receive([Incoming(FIRST, one.entropy, one.to_bytes()) for one in old], pair.now)
    assert there.connections.responders == attached
    assert pair.second.counters["late-connect"] == 1 and pair.second.counters["late-disconnect"] == 1


def test_a_target_that_restarts_with_work_under_way_fails_it() -> None:
    pair, _, there, destination = dynamic_pair()
    first = destination.write(b"x", there.at(), 0)
    pair.finish(first)
    restarted = Served(pair.add(SECOND))
    lost = [destination.write(b"y", restarted.at(), pair.now) for _ in range(2)]
    pair.finish(*lost)
    assert [one.status for one in lost] == [WorkStatus.RETRY_EXCEEDED, WorkStatus.FLUSHED]
    assert "forgotten" in lost[0].error and restarted.memory[0] == 0
    assert destination.write(b"y", restarted.at(), pair.now).status is WorkStatus.FLUSHED


def test_a_target_that_restarts_between_two_connections_is_not_missed() -> None:
    pair, _, there, destination = dynamic_pair()
    first = destination.write(b"x", there.at(), 0)
    pair.finish(first)
    pair.run(lambda: destination.initiator is None)
    restarted = Served(pair.add(SECOND))
    second = destination.write(b"y", restarted.at(), pair.now)
    pair.finish(second)
    assert second.ok and restarted.memory[0] == ord("y")


def test_a_peer_that_is_gone_fails_its_requests_and_no_one_elses() -> None:
    pair, here, there, destination = dynamic_pair(initiators=1)
    nowhere = here.destination("10.0.0.99", TARGET, KEY)
    pair.drop = lambda source, datagram: datagram.remote == "10.0.0.99"
    lost = [nowhere.write(b"x", there.at(), 0) for _ in range(2)]
    good = destination.write(b"y", there.at(), 0)
    pair.finish(good, *lost)
    assert good.ok
    assert [one.status for one in lost] == [WorkStatus.RETRY_EXCEEDED, WorkStatus.FLUSHED]
    assert pair.first.counters["connects"] == 4  # once, with each of two retries, and to the peer that is there


@pytest.mark.parametrize(
    ("key", "mtu", "status"),
    [(KEY ^ 1, 4096, WorkStatus.REMOTE_ACCESS_ERROR), (KEY, 1024, WorkStatus.REMOTE_INVALID_REQUEST)],
)
def test_a_target_refuses_a_wrong_key_and_a_path_mtu_that_it_does_not_have(
    key: int, mtu: int, status: WorkStatus
) -> None:
    pair = RnicPair(QUICK)
    here = DynamicConnections(pair.first, initiators=1)
    there = Served(pair.add(SECOND, replace(QUICK, mtu=mtu)))
    request = here.destination(SECOND, TARGET, key).write(b"x", there.at(), 0)
    pair.finish(request)
    assert request.status is status and there.memory[0] == 0 and not there.connections.responders


def test_a_refused_request_ends_its_connection_and_leaves_the_receives_of_others() -> None:
    pair, _, there, destination = dynamic_pair(receives=2)
    request = destination.write(b"x", RemoteBuffer(0, 1), 0)
    pair.finish(request)
    assert request.status is WorkStatus.REMOTE_ACCESS_ERROR and len(there.target.receives) == 2
    pair.run(lambda: not there.connections.responders)


def test_responders_are_bounded_whatever_comes() -> None:
    pair = RnicPair(QUICK)
    there = DynamicConnections(pair.second, initiators=1, most_responders=3)
    there.create_target(KEY, number=TARGET)
    for host in range(9):
        address = f"10.0.1.{host}"
        header = Bth(Opcode.DC_CONNECT, TARGET, 5).encode() + Deth(KEY, 0x99).encode() + CONNECT_BODY.pack(1, 4096)
        pair.second.receive([sealed(header, source=address)], 0)
    assert len(there.responders) == there.most_at_once == 3 and pair.second.counters["responders-full"] == 6
    pair.second.handle_timer(there.forget_ns + 1)
    assert not there.responders


def test_what_is_no_connect_is_counted_and_dropped() -> None:
    pair, _, there, _ = dynamic_pair()
    for opcode, number, body in (
        (Opcode.DC_CONNECT, TARGET, b"1234"),
        (Opcode.DC_DISCONNECT, TARGET, CONNECT_BODY.pack(1, 4096)),
        (Opcode.DC_CONNECT, TARGET + 1, CONNECT_BODY.pack(1, 4096)),
        (Opcode.DC_DISCONNECT, TARGET, SESSION_BODY.pack(1)),
        (Opcode.DC_UNATTACHED, TARGET, b""),
    ):
        header = Bth(opcode, number, 5).encode() + Deth(KEY, 0x99).encode() + body
        pair.second.receive([sealed(header)], 0)
    assert not there.connections.responders
    counters = pair.second.counters
    assert [counters[name] for name in ("malformed", "unknown-qp", "late-disconnect", "stray")] == [2, 1, 1, 1]


def test_a_queue_is_bounded_and_a_target_is_there_once() -> None:
    pair, _, there, destination = dynamic_pair(RoceConfig(most_posted=4))
    for _ in range(4):
        destination.write(b"x", there.at(), 0)
    with pytest.raises(UsageError, match="holds 4 requests"):
        destination.write(b"x", there.at(), 0)
    with pytest.raises(UsageError, match="is taken"):
        there.connections.create_target(KEY, number=TARGET)
    with pytest.raises(UsageError, match="need an initiator"):
        DynamicConnections(pair.first, initiators=0)


def test_the_state_of_a_pool_does_not_grow_with_the_peers() -> None:
    pair = RnicPair(QUICK)
    here = DynamicConnections(pair.first, initiators=4)
    before = qp_state_bytes(pair.first)
    for host in range(64):
        here.destination(f"10.0.2.{host}", TARGET, KEY)
    assert qp_state_bytes(pair.first) == before
    connected = RnicPair(QUICK)
    for _ in range(64):
        connected.connect()
    assert qp_state_bytes(connected.first) > 8 * before
