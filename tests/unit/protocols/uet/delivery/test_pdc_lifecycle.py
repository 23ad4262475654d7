"""From the first SYN to the end of a PDC: closing from both sides, late and forged SYNs, full tables, restarts."""

from random import Random

import pytest
from encoded import encoded
from wire_pair import JOB, MS, WirePair, header, run_together

from testbed.protocols.datagram import Incoming, Outgoing
from testbed.protocols.uet.delivery.admission import MOST_UNCONFIRMED
from testbed.protocols.uet.delivery.states import PdcState
from testbed.protocols.uet.fep import Fep
from testbed.protocols.uet.memory import Access, RemoteBuffer
from testbed.protocols.uet.packets.codes import (
    ControlType,
    Mode,
    NackCode,
    NextHeader,
    PdsType,
    RequestFlag,
    ReturnCode,
)
from testbed.protocols.uet.packets.pds import Ack, ControlPacket, Nack, Request
from testbed.protocols.uet.packets.psn import psn_add

KEY = 5
ALL = Access.REMOTE_READ | Access.REMOTE_WRITE


class Lives(WirePair):
    """A pair whose memory may be used, and from which strangers' packets can be sent."""

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self.memory = bytearray(4096)
        self.b.register(self.memory, ALL, JOB, KEY)

    def write(self, text: bytes = b"hello", mode: Mode = Mode.RUD) -> None:
        operation = self.ea.write(self.to_b, text, RemoteBuffer(KEY), self.now, mode=mode)
        self.run(operation)
        assert operation.ok, operation

    def syn(self, source: str, spdcid: int, psn: int = 77, offset: int = 0) -> list[Outgoing]:
        """One packet with SYN, and what it brings about."""
        body = WirePair()
        body.ea.write(body.to_b, b"syn", RemoteBuffer(KEY, 100), 0)
        (packet,) = body.take(body.a)
        head = Request(
            type=PdsType.RUD_REQ,
            next_header=header(packet).next_header,
            flags=RequestFlag.SYN | RequestFlag.AR,
            clear_psn_offset=-1,
            psn=psn,
            spdcid=spdcid,
            psn_offset=offset,
        )
        self.b.receive([Incoming(source, 50000, encoded(head) + packet.to_bytes()[12:])], self.now)
        return [item for item in self.take(self.b) if item.remote == source]


def controls(datagrams: list[Outgoing]) -> list[ControlType]:
    return [item.control_type for item in map(header, datagrams) if isinstance(item, ControlPacket)]


@pytest.mark.parametrize("mode", [Mode.RUD, Mode.ROD])
def test_closed_by_its_initiator(mode: Mode) -> None:
    pair = Lives()
    pair.write(mode=mode)
    (pdc,) = pair.a.pdcs
    pair.a.close(pair.now)
    assert pdc.state is PdcState.ACK_WAIT
    (command,) = pair.take(pair.a)
    assert controls([command]) == [ControlType.CLOSE_CMD]
    pair.give(command)
    assert pair.b.pdcs == []
    pair.settle()
    assert pair.a.pdcs == [] and pdc.state is PdcState.CLOSED
    assert pair.a.idle and pair.b.idle


def test_closing_waits_for_what_is_under_way() -> None:
    pair = Lives(payload_bytes=256, cc="none")
    pair.write()
    (pdc,) = pair.a.pdcs
    buffer = bytearray(2000)
    read = pair.ea.read(pair.to_b, buffer, RemoteBuffer(KEY), pair.now)
    write = pair.ea.write(pair.to_b, bytes(1000), RemoteBuffer(KEY, 2000), pair.now)
    pair.a.close(pair.now)
    assert pdc.state is PdcState.QUIESCE
    other = pair.ea.write(pair.to_b, b"new", RemoteBuffer(KEY, 3500), pair.now)
    assert len(pair.a.pdcs) == 2
    pair.run(read, write, other)
    assert read.ok and write.ok and other.ok
    pair.pass_time(100 * MS)
    assert pdc.state is PdcState.CLOSED
    assert len(pair.a.pdcs) == 1


def test_a_lost_close_command_is_sent_again() -> None:
    pair = Lives()
    pair.write()
    pair.a.close(pair.now)
    pair.take(pair.a)
    pair.pass_time(200 * MS)
    assert pair.a.pdcs == [] and pair.b.pdcs == []


def test_a_lost_answer_to_a_close_command() -> None:
    pair = Lives()
    pair.write()
    pair.a.close(pair.now)
    for item in pair.take(pair.a):
        pair.give(item)
    pair.take(pair.b)  # the ACK is lost, and b has forgotten the PDC: it can only say so
    pair.pass_time(1000 * MS)
    assert pair.a.pdcs == []
    assert pair.a.counters["pdc-failed"] == 0


@pytest.mark.parametrize("lost", [None, ControlType.CLOSE_REQ])
def test_closed_because_the_target_asks(lost: ControlType | None) -> None:
    pair = Lives()
    pair.write()
    (target,) = pair.b.pdcs
    target.ask_to_close(pair.now)
    assert target.state is PdcState.CLOSE_WAIT
    asked = pair.take(pair.b)
    assert controls(asked) == [ControlType.CLOSE_REQ]
    if lost is None:
        for item in asked:
            pair.give(item)
        answers = pair.take(pair.a)
        assert controls(answers) == [ControlType.CLOSE_CMD]
        for item in answers:
            pair.give(item)
    else:
        # REQ_CLOSE in the ACK of whatever comes next says the same.
        operation = pair.ea.write(pair.to_b, b"more", RemoteBuffer(KEY), pair.now)
        for item in pair.take(pair.a):
            pair.give(item)
        (ack,) = (item for item in pair.take(pair.b) if isinstance(header(item), Ack))
        assert header(ack).flags & 6 == 4
        pair.give(ack)
        assert operation.ok
    pair.pass_time(500 * MS)
    assert pair.a.pdcs == [] and pair.b.pdcs == []


def test_an_initiator_that_does_not_close() -> None:
    pair = Lives()
    pair.write()
    (target,) = pair.b.pdcs
    target.ask_to_close(pair.now)
    pair.pass_time(pair.b.config.close_wait_ns + 10_000 * MS, lambda _: False)
    assert target.state is PdcState.ERROR and pair.b.pdcs == []


def test_a_late_syn_opens_nothing_and_does_nothing() -> None:
    pair = Lives()
    operation = pair.ea.write(pair.to_b, b"once", RemoteBuffer(KEY), pair.now)
    (first,) = pair.take(pair.a)
    pair.give(first)
    pair.run(operation)
    pair.a.close(pair.now)
    pair.pass_time(100 * MS)
    pair.memory[:4] = b"...."
    pair.give(first)
    assert pair.b.pdcs == [] and pair.memory[:4] == b"...."
    assert pair.b.counters["late-syn"] == 1
    assert pair.take(pair.b) == []


def test_the_identity_of_a_closed_pdc_is_forgotten_in_time() -> None:
    pair = Lives()
    pair.syn("10.0.0.9", 1)
    (pdc,) = pair.b.pdcs
    pdc.fail("for the test", pair.now)
    pair.syn("10.0.0.9", 1)
    assert pair.b.pdcs == []
    pair.now += pair.b.config.syn_memory_ns
    pair.syn("10.0.0.9", 1)
    assert len(pair.b.pdcs) == 1


def test_a_syn_with_a_malformed_request_opens_nothing_and_bars_nobody() -> None:
    pair = Lives()
    operation = pair.ea.write(pair.to_b, b"whole", RemoteBuffer(KEY), pair.now)
    (first,) = pair.take(pair.a)
    pair.b.receive([Incoming(pair.a.address, 50000, first.to_bytes()[:30])], pair.now)
    assert pair.b.pdcs == [] and pair.b.counters["malformed"] == 1
    pair.give(first)
    pair.run(operation)
    assert operation.ok


@pytest.mark.parametrize("offset", [1025, 4095])
def test_a_syn_too_far_from_its_start(offset: int) -> None:
    pair = Lives()
    (nack,) = pair.syn("10.0.0.9", 1, offset=offset)
    assert header(nack).nack_code is NackCode.INVALID_SYN and header(nack).dpdcid == 1
    assert pair.b.pdcs == []


def test_the_wrong_mode() -> None:
    pair = Lives()
    pair.write()
    operation = pair.ea.write(pair.to_b, b"x", RemoteBuffer(KEY), pair.now)
    (packet,) = pair.take(pair.a)
    head = bytearray(packet.header)
    head[0] = PdsType.ROD_REQ << 3 | head[0] & 7
    pair.give(packet._replace(header=bytes(head)))
    (nack,) = pair.take(pair.b)
    assert header(nack).nack_code is NackCode.PDC_MODE_MISMATCH
    pair.give(nack)
    assert operation.status is ReturnCode.UNDELIVERABLE and "PDC_MODE_MISMATCH" in operation.error


@pytest.mark.parametrize("field", ["remote", "spdcid"])
def test_a_request_on_somebody_elses_pdc(field: str) -> None:
    pair = Lives()
    pair.write()
    (target,) = pair.b.pdcs
    received = target.receiver.tracker.highest
    pair.ea.write(pair.to_b, b"forged", RemoteBuffer(KEY), pair.now)
    (packet,) = pair.take(pair.a)
    data = bytearray(packet.to_bytes())
    source = pair.a.address
    if field == "remote":
        source = "10.0.0.9"
    else:
        data[8] ^= 1
    pair.b.receive([Incoming(source, 50000, bytes(data))], pair.now)
    (nack,) = pair.take(pair.b)
    assert nack.remote == source and header(nack).nack_code is NackCode.PDC_HDR_MISMATCH
    assert target.receiver.tracker.highest == received and pair.memory[:5] == b"hello"


def test_a_full_table_asks_the_idlest_initiator_to_close() -> None:
    pair = Lives(max_pdcs=1)
    pair.write()
    pair.pass_time(100 * MS)
    second = Fep("10.0.0.3", pair.a.config, Random(3), pair.now)
    end = second.endpoint(job_id=JOB)
    operation = end.write(pair.to_b, b"room", RemoteBuffer(KEY), pair.now)
    run_together((pair.a, pair.b, second), operation, pair.now)
    assert operation.ok and pair.memory[:4] == b"room"
    assert pair.b.counters["no-pdc-avail"] > 0
    assert pair.a.pdcs == [] and [pdc.remote for pdc in pair.b.pdcs] == ["10.0.0.3"]


def test_a_table_full_of_our_own_pdcs_makes_room_too() -> None:
    """Neither the share of the peers is used up, nor is one of them to be asked: the idlest of ours is closed."""
    pair = Lives(max_pdcs=2)
    writes = [pair.eb.write(pair.to_a, b"x", RemoteBuffer(KEY), pair.now, mode=mode) for mode in (Mode.RUD, Mode.ROD)]
    pair.run(*writes)
    assert all(pdc.initiator for pdc in pair.b.pdcs) and len(pair.b.pdcs) == 2
    third = Fep("10.0.0.3", pair.a.config, Random(3), pair.now)
    operation = third.endpoint(job_id=JOB).write(pair.to_b, b"room", RemoteBuffer(KEY), pair.now)
    run_together((pair.a, pair.b, third), operation, pair.now)
    assert operation.ok and pair.memory[:4] == b"room"
    assert pair.b.counters["no-pdc-avail"] > 0 and pair.b.counters["pdc-failed"] == 0
    assert sorted((pdc.initiator, pdc.remote) for pdc in pair.b.pdcs) == [(False, "10.0.0.3"), (True, "10.0.0.1")]


def test_strangers_who_never_answer_make_room() -> None:
    pair = Lives(max_pdcs=8)
    for number in range(3):
        assert isinstance(header(pair.syn(f"10.9.0.{number}", 1)[0]), Ack)
    (nack,) = pair.syn("10.9.0.100", 1)
    assert header(nack).nack_code is NackCode.NEW_START_PSN
    for number in range(3):
        (nack,) = pair.syn(f"10.9.1.{number}", 1)
        (ack,) = pair.syn(f"10.9.1.{number}", 1, psn=header(nack).payload)
        assert isinstance(header(ack), Ack)  # these hear us
    pair.now += pair.b.config.rto_ns
    pair.write()
    assert "10.0.0.1" in {pdc.remote for pdc in pair.b.pdcs}
    # And we can open PDCs of our own, whatever they do.
    operations = [
        pair.eb.write(pair.to_a, b"x", RemoteBuffer(KEY), pair.now, mode=mode) for mode in (Mode.RUD, Mode.ROD)
    ]
    pair.run(*operations)
    assert all(operation.status is ReturnCode.BAD_MKEY for operation in operations)


def test_who_has_answered_is_not_thrown_out_for_strangers() -> None:
    pair = Lives(max_pdcs=8)
    pair.write()
    pair.settle()
    (target,) = pair.b.pdcs
    for number in range(50):
        pair.now += pair.b.config.rto_ns
        pair.b.handle_timer(pair.now)
        pair.syn(f"10.9.0.{number}", 1)
    assert target in pair.b.pdcs and target.state is PdcState.ESTABLISHED


def test_half_open_pdcs_are_bounded() -> None:
    pair = Lives()
    empty = Request(
        type=PdsType.RUD_REQ, next_header=NextHeader.NONE, flags=RequestFlag.SYN, clear_psn_offset=-1, psn=9, spdcid=1
    )
    for number in range(MOST_UNCONFIRMED + 10):
        source = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        pair.b.receive([Incoming(source, 50000, encoded(empty))], pair.now)
    assert len(pair.b.pdcs) == MOST_UNCONFIRMED
    assert pair.b.counters["new-start-psn"] == 10
    assert len(pair.take(pair.b)) == MOST_UNCONFIRMED + 10
    pair.pass_time(pair.b.config.new_pdc_wait_ns)
    assert pair.b.pdcs == [] and pair.b.counters["unconfirmed-pdc"] == MOST_UNCONFIRMED


def test_a_forged_syn_does_not_end_a_pdc_whose_initiator_lives() -> None:
    pair = Lives()
    pair.write()
    (pdc,) = pair.a.pdcs
    (target,) = pair.b.pdcs
    for number in range(10):
        answers = pair.syn(pair.a.address, pdc.local_pdcid, psn=psn_add(target.start_psn, 5000 + number))
        refusals = [item for item in map(header, answers) if isinstance(item, Nack)]
        assert [item.nack_code for item in refusals] == [NackCode.NO_PDC_AVAIL]
        for item in answers:
            pair.give(item)
        pair.pass_time(50 * MS)
    assert pair.b.pdcs == [target] and pair.a.pdcs == [pdc]
    pair.write(b"still")


def test_an_initiator_that_has_begun_anew_with_the_same_pdcid() -> None:
    pair = Lives()
    pair.write(b"before")
    (old,) = pair.a.pdcs
    (target,) = pair.b.pdcs
    pair.a = Fep(pair.a.address, pair.a.config, Random(99), pair.now)
    pair.ea = pair.a.endpoint(job_id=JOB)
    operation = pair.ea.write(pair.to_b, b"after!", RemoteBuffer(KEY), pair.now)
    (new,) = pair.a.pdcs
    pair.a._pdcs[old.local_pdcid] = pair.a._pdcs.pop(new.local_pdcid)
    pair.a.table._keys[old.local_pdcid] = pair.a.table._keys.pop(new.local_pdcid)
    new.local_pdcid = old.local_pdcid
    pair.run(operation)
    assert operation.ok and pair.memory[:6] == b"after!"
    assert target.state is PdcState.ERROR
    assert pair.b.counters["no-pdc-avail"] > 0


def test_a_target_that_has_begun_anew() -> None:
    pair = Lives()
    pair.write(b"before")
    pair.b = Fep(pair.b.address, pair.b.config, Random(99), pair.now)
    pair.b.register(pair.memory, ALL, JOB, KEY)
    operations = [pair.ea.write(pair.to_b, b"lost", RemoteBuffer(KEY), pair.now) for _ in range(3)]
    pair.run(*operations)
    assert all(operation.status is ReturnCode.UNDELIVERABLE for operation in operations)
    assert all("INV_DPDCID" in operation.error for operation in operations)
    assert pair.memory[:6] == b"before"
    pair.write(b"after!")
    assert pair.memory[:6] == b"after!"


def test_data_of_a_read_overtakes_the_first_ack() -> None:
    pair = Lives(payload_bytes=256)
    pair.memory[:1000] = Random(1).randbytes(1000)
    buffer = bytearray(1000)
    read = pair.ea.read(pair.to_b, buffer, RemoteBuffer(KEY), pair.now)
    for item in pair.take(pair.a):
        pair.give(item)
    answers = pair.take(pair.b)
    data = [item for item in answers if isinstance(header(item), Request)]
    assert data
    for item in data + [item for item in answers if item not in data]:
        pair.give(item)
    pair.run(read)
    assert read.ok and buffer == pair.memory[:1000]
    assert pair.a.counters["pdc-hdr-mismatch"] == 0


def test_responses_that_are_never_cleared_are_bounded() -> None:
    pair = Lives(mpr=1)
    pair.write()
    (target,) = pair.b.pdcs
    pair.ea.write(pair.to_b, b"x", RemoteBuffer(KEY + 1), pair.now)  # an error each
    (packet,) = pair.take(pair.a)
    template = header(packet)
    refused = 0
    for number in range(500):
        request = template._replace(psn=psn_add(template.psn, number), clear_psn_offset=-min(number + 1, 32768))
        pair.b.receive([Incoming(pair.a.address, 50000, encoded(request) + packet.to_bytes()[12:])], pair.now)
        refused += sum(
            header(item).nack_code is NackCode.NO_GTD_DEL_AVAIL
            for item in pair.take(pair.b)
            if isinstance(header(item), Nack)
        )
    assert target.receiver.tracker.holds == 128
    assert refused == 128  # within the window of PSNs, and
    assert pair.b.counters["out-of-window"] == 500 - 256  # beyond


def test_memory_withdrawn_while_a_message_arrives() -> None:
    pair = Lives(payload_bytes=256, cc="none")
    write = pair.ea.write(pair.to_b, b"w" * 2000, RemoteBuffer(KEY), pair.now)
    packets = pair.take(pair.a)
    for item in packets[:3]:
        pair.give(item)
    pair.b.retire(KEY)
    for item in packets[3:]:
        pair.give(item)
    pair.run(write)
    assert write.status is ReturnCode.BAD_MKEY
    assert pair.memory[: 3 * 256] == b"w" * 768 and pair.memory[768:] == bytes(4096 - 768)


def test_half_a_message_does_not_outlive_its_pdc() -> None:
    pair = Lives(payload_bytes=256, cc="none")
    pair.ea.send(pair.to_b, bytes(2000), pair.now)
    pair.give(pair.take(pair.a)[0])
    assert (pair.eb.untagged.unexpected, pair.eb.untagged.unexpected_bytes) == (1, 2000)
    (target,) = pair.b.pdcs
    target.fail("for the test", pair.now)
    assert (pair.eb.untagged.unexpected, pair.eb.untagged.unexpected_bytes) == (0, 0)
