"""What a sender does about each NACK code, and about NACKs that are not for it."""

from typing import Any

import pytest
from encoded import encoded
from wire_pair import JOB, MS, WirePair, header

from testbed.protocols.datagram import Incoming, Outgoing
from testbed.protocols.uet.config import UetConfig
from testbed.protocols.uet.delivery.nacks import NACK_ACTIONS, NackAction
from testbed.protocols.uet.delivery.refusals import Refusals
from testbed.protocols.uet.delivery.window import TxPacket
from testbed.protocols.uet.memory import Access, RemoteBuffer
from testbed.protocols.uet.packets.codes import (
    ControlType,
    Mode,
    NackCode,
    NackFlag,
    NextHeader,
    PdsType,
    RequestFlag,
    ReturnCode,
)
from testbed.protocols.uet.packets.pds import ControlPacket, Nack, Request
from testbed.protocols.uet.packets.psn import psn_add

KEY = 5


class Nacked(WirePair):
    """Three packets are under way on an open PDC, and none has arrived."""

    def __init__(self, mode: Mode = Mode.RUD, **settings: Any) -> None:
        super().__init__(payload_bytes=1024, cc="none", **settings)
        self.b.register(bytearray(4096), Access.REMOTE_WRITE, JOB, KEY)
        self.run(self.ea.write(self.to_b, b"first", RemoteBuffer(KEY), self.now, mode=mode))
        self.operations = [
            self.ea.write(self.to_b, bytes(1024), RemoteBuffer(KEY), self.now, mode=mode) for _ in range(3)
        ]
        self.sent = self.take(self.a)
        (self.pdc,) = self.a.pdcs
        self.psns = [header(item).psn for item in self.sent]

    def nack(self, code: NackCode, psn: int, *, flags: int = 0, remote: str = "10.0.0.2", dpdcid: int = 0) -> None:
        packet = Nack(
            type=PdsType.NACK,
            flags=flags,
            nack_code=code,
            vendor_code=0,
            nack_psn=psn,
            spdcid=self.pdc.remote_pdcid,
            dpdcid=dpdcid or self.pdc.local_pdcid,
            payload=0,
        )
        self.a.receive([Incoming(remote, 50000, encoded(packet))], self.now)

    def requests(self) -> list[int]:
        """PSNs of the requests that go out now."""
        return [item.psn for item in map(header, self.take(self.a)) if isinstance(item, Request)]

    def wait(self, nanoseconds: int) -> None:
        self.now += nanoseconds
        self.a.handle_timer(self.now)


def codes(*actions: NackAction) -> list[NackCode]:
    return [code for code, action in NACK_ACTIONS.items() if action in actions]


def test_every_code_has_an_action() -> None:
    assert set(NACK_ACTIONS) == set(NackCode)
    assert set(NACK_ACTIONS.values()) == set(NackAction)


@pytest.mark.parametrize("code", codes(NackAction.RETRANSMIT, NackAction.ASK))
def test_retransmit_at_once(code: NackCode) -> None:
    pair = Nacked()
    pair.nack(code, pair.psns[1])
    (again,) = pair.take(pair.a)
    assert header(again).psn == pair.psns[1]
    assert header(again).flags & RequestFlag.RETX
    pair.give(again)
    pair.settle()
    assert pair.operations[1].ok


@pytest.mark.parametrize("code", codes(NackAction.RETRANSMIT_LATER))
def test_retransmit_later_and_later_still(code: NackCode) -> None:
    pair = Nacked()
    wait = pair.a.config.nack_wait_ns
    pair.nack(code, pair.psns[1])
    assert pair.requests() == []
    pair.wait(wait - 1)
    assert pair.requests() == []
    pair.wait(1)
    assert pair.requests() == [pair.psns[1]]
    pair.nack(code, pair.psns[1], flags=NackFlag.RETX)
    longer = int(wait * pair.a.config.nack_wait_growth)
    pair.wait(longer // 2 - 1)
    assert pair.psns[1] not in pair.requests()
    pair.wait(longer + 1)
    assert pair.psns[1] in pair.requests()


def test_who_refuses_has_as_much_time_as_who_is_silent() -> None:
    config = UetConfig()
    assert config.max_nack_retx == 5
    waits = [config.nack_wait_ns * config.nack_wait_growth**earlier for earlier in range(config.max_nack_retx)]
    assert waits[0] == 2 * config.base_rtt_ns
    assert waits[-1] == pytest.approx(config.rto_ns << config.max_rto_retx)


@pytest.mark.parametrize(("settings", "growth"), [({"max_nack_retx": 1}, 320), ({"nack_retx_ns": 10**9}, 2)])
def test_the_growth_of_unusual_settings(settings: dict[str, int], growth: int) -> None:
    assert UetConfig(**settings).nack_wait_growth == growth


def test_those_who_were_refused_together_do_not_come_again_together() -> None:
    config = UetConfig()
    due = set()
    for number in range(100):
        refusals = Refusals(config, pdcid=number + 1)
        for psn in range(7, 17):
            packet = TxPacket(None, NextHeader.NONE, b"")
            packet.psn = psn
            packet.nacks = 2
            due.add(refusals.add(packet, 0) * 20 // int(config.nack_wait_ns * config.nack_wait_growth))
    assert due == set(range(10, 30))  # from half the wait to half as much again, without gaps


def test_a_receive_that_is_posted_within_a_second_is_early_enough() -> None:
    pair = WirePair(max_unexpected=1)
    operations = [pair.ea.send(pair.to_b, b"x", pair.now) for _ in range(20)]
    for _ in operations:
        pair.pass_time(20 * MS)
        pair.eb.recv(bytearray(1), pair.now)
    pair.run(*operations)
    assert all(operation.ok for operation in operations)


def test_refused_too_often() -> None:
    pair = Nacked(max_rto_retx=100)
    for _ in range(pair.a.config.max_nack_retx + 1):
        assert not pair.operations[1].done
        pair.nack(NackCode.NO_RESOURCE, pair.psns[1], flags=NackFlag.RETX)
        packet = pair.pdc.sender.window.get(pair.psns[1])
        if packet is not None:
            pair.pdc.handle_timer(pair.now + 10_000 * MS)  # its waiting is over, and nobody else's
            pair.take(pair.a)
    assert all(item.status is ReturnCode.UNDELIVERABLE for item in pair.operations)
    assert "NO_RESOURCE" in pair.operations[1].error


@pytest.mark.parametrize("code", codes(NackAction.GO_BACK_N))
def test_go_back_n(code: NackCode) -> None:
    pair = Nacked(Mode.ROD)
    pair.now += 1
    pair.nack(code, pair.psns[1])
    assert pair.requests() == pair.psns
    pair.nack(code, pair.psns[2])  # of the first round: nothing more to go back for
    assert pair.requests() == []


@pytest.mark.parametrize("code", codes(NackAction.FATAL))
def test_the_pdc_ends_and_the_next_operation_has_another(code: NackCode) -> None:
    pair = Nacked()
    pair.nack(code, pair.psns[1])
    assert all(item.status is ReturnCode.UNDELIVERABLE for item in pair.operations)
    assert all(code.name in item.error for item in pair.operations)
    assert pair.a.pdcs == []
    operation = pair.ea.write(pair.to_b, b"again", RemoteBuffer(KEY), pair.now)
    pair.run(operation)
    assert operation.ok


@pytest.mark.parametrize("code", codes(NackAction.IGNORE, NackAction.WAIT))
def test_no_action(code: NackCode) -> None:
    pair = Nacked()
    pair.nack(code, pair.psns[1])
    assert pair.requests() == []
    assert not any(item.done for item in pair.operations)


@pytest.mark.parametrize("code", list(NackCode))
@pytest.mark.parametrize(
    "change",
    [
        {"psn": 3},
        {"psn": -1},
        {"psn": -2},
        {"psn": 1 << 31},
        {"remote": "10.0.0.3"},
        {"dpdcid": 1},
        {"flags": int(NackFlag.RUDI)},
    ],
)
def test_a_nack_that_is_not_for_us_changes_nothing(code: NackCode, change: dict[str, object]) -> None:
    pair = Nacked()
    if "psn" in change:
        pair.nack(code, psn_add(pair.psns[0], int(str(change["psn"]))))
    else:
        pair.nack(code, pair.psns[1], **change)  # type: ignore[arg-type]
    assert pair.requests() == []
    assert not any(item.done for item in pair.operations)
    assert pair.a.pdcs == [pair.pdc]


def test_a_nack_of_an_earlier_transmission_changes_nothing() -> None:
    pair = Nacked()
    pair.nack(NackCode.TRIMMED, pair.psns[1])
    assert pair.requests() == [pair.psns[1]]
    pair.nack(NackCode.TRIMMED, pair.psns[1])
    assert pair.requests() == []


def test_ack_requests_are_answered() -> None:
    pair = Nacked()
    (target,) = pair.b.pdcs
    pair.give(pair.sent[1])
    pair.take(pair.b)
    for psn, kind in ((pair.psns[0], Nack), (pair.psns[1], type(None))):
        question = ControlPacket(
            control_type=ControlType.ACK_REQ, flags=8, probe_opaque=0, psn=psn, spdcid=pair.pdc.local_pdcid,
            dpdcid=target.local_pdcid,
        )  # fmt: skip
        pair.give(Outgoing(pair.b.address, 50000, pair.sent[0].priority, encoded(question), b""))
        (answer,) = (header(item) for item in pair.take(pair.b))
        if kind is Nack:
            assert (answer.nack_code, answer.nack_psn) == (NackCode.PKT_NOT_RCVD, psn)
        else:
            assert answer.ack_psn == psn
