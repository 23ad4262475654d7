"""CLEAR, step by step: what is asked for, what is told again, and what an ACK of it says."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from wire_pair import JOB, MS, WirePair, header

from testbed.protocols.datagram import Outgoing
from testbed.protocols.uet.memory import Access, RemoteBuffer
from testbed.protocols.uet.packets.codes import AckFlag, ControlFlag, ControlType, ReturnCode
from testbed.protocols.uet.packets.pds import Ack, ControlPacket
from testbed.protocols.uet.packets.psn import psn_add, psn_distance

KEY, NO_KEY = 1, 2


class ClearPair(WirePair):
    """An established PDC from a to b, with memory to write."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(payload_bytes=1024, base_rtt_ns=MS, cc="none", **settings)
        self.b.register(bytearray(4096), Access.REMOTE_WRITE, JOB, KEY)
        self.write()
        self.settle()
        (self.pdc,), (self.target,) = self.a.pdcs, self.b.pdcs
        self.clearing = self.pdc.sender.clearing
        self.tracker = self.target.receiver.tracker
        self.base = self.tracker.cack_psn

    def write(self, key: int = KEY) -> Any:
        return self.ea.write(self.to_b, b"x", RemoteBuffer(key), self.now)

    def refused(self) -> Any:
        """An operation whose error must arrive."""
        return self.write(NO_KEY)

    def number(self, psn: int) -> int:
        return psn_distance(psn, self.base)

    def named(self, datagram: Outgoing) -> tuple[int, int]:
        """PSN and CACK of an ACK, counted from the state at the beginning."""
        ack = header(datagram)
        assert isinstance(ack, Ack)
        return self.number(psn_add(ack.cack_psn, ack.ack_psn_offset)), self.number(ack.cack_psn)

    def commands(self, kind: ControlType, seen: list[Outgoing]) -> list[ControlPacket]:
        found = [header(item) for item in seen]
        return [item for item in found if isinstance(item, ControlPacket) and item.control_type is kind]

    def watch(self, nanoseconds: int, arrives: Callable[[Outgoing], bool] = lambda _: True) -> list[Outgoing]:
        """What is sent in that time; `arrives` says what of it does."""
        seen: list[Outgoing] = []

        def deliver(datagram: Outgoing) -> bool:
            seen.append(datagram)
            return arrives(datagram)

        self.pass_time(nanoseconds, deliver)
        return seen


def is_clear(datagram: Outgoing) -> bool:
    found = header(datagram)
    return isinstance(found, ControlPacket) and found.control_type is ControlType.CLEAR_CMD


def test_all_that_comes_above_a_kept_response_is_acknowledged_by_itself() -> None:
    pair = ClearPair()
    pair.refused()
    operations = [pair.write() for _ in range(3)]
    first, *others = pair.take(pair.a)
    for datagram in (first, *others):
        pair.give(datagram)
    acks = pair.take(pair.b)
    assert [pair.named(item) for item in acks] == [(1, 0), (2, 0), (3, 0), (4, 0)]
    for item in acks:
        pair.give(item)
    assert all(operation.ok for operation in operations)


def test_a_packet_that_came_before_the_response_was_kept_is_asked_for() -> None:
    """2 arrives before 1: nobody asked for its ACK, and CACK cannot reach it before 1 is cleared."""
    pair = ClearPair()
    refused, operation = pair.refused(), pair.write()
    pair.ea.write(
        pair.to_b, bytes(1024), RemoteBuffer(KEY), pair.now
    )  # the last asks for an ACK: it is not to come first
    one, two, three = pair.take(pair.a)
    pair.give(two)
    assert pair.take(pair.b) == []
    pair.give(one)
    (ack,) = pair.take(pair.b)
    assert pair.named(ack) == (1, 0)
    pair.give(ack)
    assert refused.status is ReturnCode.BAD_MKEY and not operation.done
    (asked,) = pair.commands(ControlType.ACK_REQ, questions := pair.take(pair.a))
    assert pair.number(asked.psn) == 2
    pair.give(questions[0])
    pair.give(pair.take(pair.b)[0])
    assert operation.ok
    assert pair.pdc.sender.window.get(asked.psn) is None
    pair.give(three)


def test_the_answer_to_a_question_tells_no_round_trip() -> None:
    """It would tell how long the ACK was missing."""
    pair = ClearPair()
    pair.refused()
    pair.write()
    pair.write()
    one, two, _ = pair.take(pair.a)
    pair.give(two)
    pair.give(one)
    pair.now += MS
    pair.give(pair.take(pair.b)[0])
    base_rtt = pair.pdc.sender._round_trips._smoothed
    pair.now += 1000 * MS
    pair.give(pair.take(pair.a)[0])
    pair.give(pair.take(pair.b)[0])
    assert pair.pdc.sender._round_trips._smoothed == base_rtt


@pytest.mark.parametrize("lost", [1, 3])
def test_a_lost_clear_is_told_again(lost: int) -> None:
    pair = ClearPair()
    pair.refused()
    pair.settle()
    assert pair.tracker.holds == 1
    left = lost
    gone: list[int] = []

    def arrives(datagram: Outgoing) -> bool:
        nonlocal left
        if is_clear(datagram) and left:
            left -= 1
            gone.append(pair.now)
            return False
        return True

    seen = pair.watch(pair.a.config.clear_wait_ns + (2 << lost) * pair.a.config.rto_ns, arrives)
    assert len(pair.commands(ControlType.CLEAR_CMD, seen)) == lost + 1
    assert all(later - earlier >= pair.a.config.rto_ns for earlier, later in pairwise(gone))
    assert pair.tracker.holds == 0 and not pair.clearing.pinned
    assert pair.a.next_timer() is None


def test_a_lost_answer_to_a_clear_is_asked_for_again() -> None:
    pair = ClearPair()
    pair.refused()
    pair.settle()
    lost: list[Outgoing] = []

    def arrives(datagram: Outgoing) -> bool:
        if isinstance(header(datagram), Ack) and not lost:
            lost.append(datagram)
            return False
        return True

    pair.watch(pair.a.config.clear_wait_ns + 3 * pair.a.config.rto_ns, arrives)
    assert len(lost) == 1 and pair.named(lost[0]) == (1, 1)
    assert not pair.clearing.pinned


def test_a_peer_that_is_gone_is_not_told_for_ever() -> None:
    """Nothing is under way, so nothing fails; the next request carries CLEAR_PSN."""
    pair = ClearPair()
    pair.refused()
    pair.settle()
    seen = pair.watch(60_000 * MS, lambda _: False)
    assert len(pair.commands(ControlType.CLEAR_CMD, seen)) == pair.a.config.max_rto_retx + 1
    assert pair.a.next_timer() is None
    operation = pair.write()
    pair.settle()
    assert operation.ok and pair.tracker.holds == 0 and not pair.clearing.pinned


def test_a_request_that_carries_clear_needs_no_command() -> None:
    pair = ClearPair()
    pair.refused()
    pair.settle()
    pair.write()
    pair.settle()
    assert pair.tracker.holds == 0
    assert pair.commands(ControlType.CLEAR_CMD, pair.watch(1000 * MS)) == []


def test_a_full_window_is_cleared_without_waiting() -> None:
    pair = ClearPair(mpr=1)
    operations = [pair.refused() for _ in range(1000)]
    pair.settle()
    assert all(operation.status is ReturnCode.BAD_MKEY for operation in operations)
    assert pair.now == 0, "not a time-out, not PDS_Clear_Time"


def test_a_clear_without_a_question_is_answered_where_cack_moves() -> None:
    """Another implementation may not ask for an ACK."""
    pair = ClearPair()
    pair.refused()
    pair.settle()
    pair.pdc.send_control(ControlType.CLEAR_CMD, psn_add(pair.base, 1), pair.now, payload=psn_add(pair.base, 1))
    (command,) = pair.take(pair.a)
    assert not header(command).flags & ControlFlag.AR
    pair.give(command)
    (answer,) = pair.take(pair.b)
    assert pair.named(answer) == (1, 1)
    assert not header(answer).flags & AckFlag.REQ_CLEAR
    pair.give(command)
    assert pair.take(pair.b) == []


@pytest.mark.parametrize("code", [code for code in ReturnCode if 0x30 <= code <= 0x37])
def test_a_vendors_return_code_acknowledges_and_fails_the_operation(code: ReturnCode) -> None:
    pair = ClearPair()
    operation = pair.refused()
    pair.give(pair.take(pair.a)[0])
    (ack,) = pair.take(pair.b)
    head = bytearray(ack.header)
    head[head.rindex(ReturnCode.BAD_MKEY)] = code
    pair.give(ack._replace(header=bytes(head)))
    assert operation.status is code
    assert not len(pair.pdc.sender.window) and pair.a.counters["timeout"] == 0 and pair.a.counters["malformed"] == 0
