"""SYNs of initiators nobody has heard of: forged ones leave nothing behind, honest ones get through a flood of them."""

from collections.abc import Callable
from random import Random

import pytest
from encoded import encoded
from wire_pair import JOB, MS, WirePair, header

from testbed.protocols.datagram import Incoming, Outgoing
from testbed.protocols.uet.delivery.admission import MOST_UNCONFIRMED
from testbed.protocols.uet.memory import Access, RemoteBuffer
from testbed.protocols.uet.packets.acks import Nack
from testbed.protocols.uet.packets.codes import ControlType, Mode, NackCode, NextHeader, PdsType, RequestFlag
from testbed.protocols.uet.packets.pds import ControlPacket, Request
from testbed.protocols.uet.packets.psn import psn_add, psn_distance

KEY = 5
SIZE = 20_000
PATIENT = 12
"""Time-outs of a packet, where much is lost."""


class Flooded(WirePair):
    """`b` has memory for `a` to write, and hears SYNs of strangers who never answer."""

    def __init__(self, **settings: object) -> None:
        super().__init__(payload_bytes=1024, **settings)  # type: ignore[arg-type]
        self.memory = bytearray(SIZE)
        self.b.register(self.memory, Access.REMOTE_WRITE, JOB, KEY)
        self.strangers = 0

    def syn(self, source: str, *, psn: int = 9, offset: int = 0, trimmed: bool = False) -> None:
        data = encoded(Request(PdsType.RUD_REQ, NextHeader.NONE, RequestFlag.SYN, -1, psn, 1, psn_offset=offset))
        self.b.receive([Incoming(source, 50000, data, length=len(data) + trimmed)], self.now)

    def flood(self, count: int) -> None:
        for _ in range(count):
            self.strangers += 1
            number = self.strangers
            self.syn(f"10.{number >> 16 | 64}.{number >> 8 & 255}.{number & 255}")

    def take(self, fep: object, limit: int = 10_000) -> list[Outgoing]:
        """Answers to strangers reach nobody."""
        honest = (self.a.address, self.b.address)
        return [item for item in super().take(fep, limit) if item.remote in honest]  # type: ignore[arg-type]

    def answer_to(self, source: str) -> Nack | None:
        """The NACK among what a SYN has brought about."""
        nacks = [header(item) for item in super().take(self.b) if item.remote == source]
        return next((nack for nack in nacks if isinstance(nack, Nack)), None)


def is_probe(datagram: Outgoing) -> bool:
    head = header(datagram)
    return isinstance(head, ControlPacket) and head.control_type is ControlType.PROBE


def lossy(seed: int, loss: float) -> Callable[[Outgoing], bool]:
    random = Random(seed)
    return lambda _: random.random() >= loss


def test_who_never_answers_is_forgotten_after_new_pdc_time() -> None:
    pair = Flooded()
    pair.flood(50)
    assert len(pair.b.pdcs) == 50
    pair.pass_time(pair.b.config.new_pdc_wait_ns - 1)
    assert len(pair.b.pdcs) == 50
    pair.pass_time(1)
    assert pair.b.pdcs == [] and pair.b.counters["unconfirmed-pdc"] == 50
    assert pair.b.next_timer() is None


@pytest.mark.parametrize("lost", [1, 3])
def test_an_initiator_whose_probes_are_lost_is_not_ended(lost: int) -> None:
    pair = Flooded()
    probes = 0

    def wire(item: Outgoing) -> bool:
        nonlocal probes
        probes += is_probe(item)
        return not is_probe(item) or probes > lost

    operation = pair.ea.write(pair.to_b, b"x", RemoteBuffer(KEY), pair.now)
    pair.pass_time(2 * pair.b.config.new_pdc_wait_ns, wire)
    assert operation.ok and probes == lost + 1
    (target,) = pair.b.pdcs
    assert target.unconfirmed_since < 0
    pair.run(pair.ea.write(pair.to_b, b"y", RemoteBuffer(KEY), pair.now))
    assert pair.b.pdcs == [target] and pair.memory[:1] == b"y"


def test_an_initiator_whose_first_acks_are_lost_is_not_ended() -> None:
    pair = Flooded()
    acks = 0

    def wire(item: Outgoing) -> bool:
        nonlocal acks
        acks += item.remote == pair.a.address
        return item.remote != pair.a.address or acks > pair.a.config.max_rto_retx

    operation = pair.ea.write(pair.to_b, b"x", RemoteBuffer(KEY), pair.now)
    pair.pass_time(2 * pair.b.config.new_pdc_wait_ns, wire)
    assert operation.ok and acks > pair.a.config.max_rto_retx
    assert len(pair.b.pdcs) == 1 and pair.b.counters["pdc-failed"] == 0


def test_probes_to_a_dead_target_end() -> None:
    pair = Flooded()
    operation = pair.ea.write(pair.to_b, b"x", RemoteBuffer(KEY), pair.now)
    pair.pass_time(60_000 * MS, lambda item: not is_probe(item))
    assert operation.ok and pair.a.next_timer() is None


@pytest.mark.parametrize("mode", [Mode.RUD, Mode.ROD])
@pytest.mark.parametrize("loss", [0.0, 0.2])
@pytest.mark.parametrize("cc", ["nscc", "rccc", "none"])
def test_honest_initiators_get_through_a_flood(mode: Mode, loss: float, cc: str) -> None:
    pair = Flooded(max_rto_retx=PATIENT, cc=cc)
    wire = lossy(1, loss)
    pair.flood(MOST_UNCONFIRMED)
    for number in range(5):
        operation = pair.ea.write(pair.to_b, bytes([number + 1]) * SIZE, RemoteBuffer(KEY), pair.now, mode=mode)
        while not operation.done:
            pair.flood(300)
            pair.pass_time(20 * MS, wire)
            assert len(pair.b.pdcs) <= MOST_UNCONFIRMED + 2
        assert operation.ok and pair.memory == bytes([number + 1]) * SIZE
        pair.a.close(pair.now)
        pair.pass_time(500 * MS, wire)
    assert pair.b.counters["new-start-psn"] > 1000


def test_who_has_heard_a_demand_is_no_stranger() -> None:
    pair = Flooded()
    pair.flood(MOST_UNCONFIRMED)
    operation = pair.ea.write(pair.to_b, b"x", RemoteBuffer(KEY), pair.now)
    for fep in (pair.a, pair.b, pair.a):
        (packet,) = pair.take(fep)
        pair.give(packet)
    (target,) = (pdc for pdc in pair.b.pdcs if pdc.remote == pair.a.address)
    assert target.unconfirmed_since < 0 and not operation.done and pair.memory[:1] == b"x"


def test_a_syn_that_was_refused_once_is_not_accepted_later() -> None:
    """Its initiator sends what it carried with other PSNs: it must not be executed with both."""
    pair = Flooded()
    pair.flood(MOST_UNCONFIRMED)
    pair.syn("10.9.0.1", psn=7, offset=1)
    nack = pair.answer_to("10.9.0.1")
    assert nack is not None and nack.nack_code is NackCode.NEW_START_PSN
    for pdc in pair.b.pdcs:
        pdc.fail("for the test", pair.now)
    pair.now += pair.b.config.syn_memory_ns - 1
    pair.syn("10.9.0.1", psn=6)
    assert pair.b.pdcs == [] and pair.answer_to("10.9.0.1") is not None
    pair.now += pair.b.config.syn_memory_ns  # the flood is over, and so is the last refusal
    pair.syn("10.9.0.1", psn=6)
    assert len(pair.b.pdcs) == 1 and pair.answer_to("10.9.0.1") is None


def test_nobody_opens_a_pdc_by_a_start_psn_demanded_of_another() -> None:
    pair = Flooded()
    pair.flood(MOST_UNCONFIRMED)
    pair.syn("10.9.0.1")
    told = pair.answer_to("10.9.0.1")
    pair.syn("10.9.0.2", psn=told.payload)
    other = pair.answer_to("10.9.0.2")
    assert other is not None and other.payload != told.payload
    pair.syn("10.9.0.1", psn=told.payload)
    assert pair.answer_to("10.9.0.1") is None
    assert {pdc.remote for pdc in pair.b.pdcs} & {"10.9.0.1", "10.9.0.2"} == {"10.9.0.1"}


def test_a_doubted_initiator_is_not_ended_for_being_slow() -> None:
    pair = Flooded()
    pair.run(pair.ea.write(pair.to_b, b"x", RemoteBuffer(KEY), pair.now))
    (target,) = pair.b.pdcs
    (pdc,) = pair.a.pdcs
    forged = Request(
        type=PdsType.RUD_REQ,
        next_header=NextHeader.NONE,
        flags=RequestFlag.SYN,
        clear_psn_offset=-1,
        psn=psn_add(pdc.start_psn, 1 << 20),
        spdcid=pdc.local_pdcid,
    )
    pair.b.receive([Incoming(pair.a.address, 50000, encoded(forged))], pair.now)
    pair.pass_time(10 * pair.b.config.new_pdc_wait_ns, lambda item: False)
    assert pair.b.pdcs == [target]


@pytest.mark.parametrize("last_hop", [False, True])
def test_a_trimmed_packet_before_there_is_a_pdc_counts_once(last_hop: bool) -> None:
    pair = Flooded()
    write = pair.ea.write(pair.to_b, b"x" * 500, RemoteBuffer(KEY), pair.now)
    (syn,) = pair.take(pair.a)
    data = syn.to_bytes()
    pair.b.receive([Incoming(pair.a.address, 50000, data[:64], length=len(data), last_hop=last_hop)], pair.now)
    assert pair.b.counters == {"trimmed": 1}
    assert pair.b.peers.of(pair.a.address, initiator=False)["trimmed"] == 1
    pair.run(write)
    assert write.ok


@pytest.mark.parametrize("seed", range(20))
def test_start_psn_is_far_from_the_last_one_of_the_same_pdcid(seed: int) -> None:
    """Section 3.5.8.2. One PDCID for all, and random numbers that are close to each other."""
    pair = Flooded(seed=seed)
    random = Random(seed)
    pair.a.table._random = Close(random)
    last = None
    for _ in range(20):
        pair.run(pair.ea.write(pair.to_b, b"x" * 5000, RemoteBuffer(KEY), pair.now))
        (pdc,) = pair.a.pdcs
        assert pdc.local_pdcid == 7
        assert last is None or abs(psn_distance(pdc.start_psn, last)) >= 1 << 16
        last = psn_add(pdc.sender.window.next_psn, 0)  # CLOSE_CMD has it
        pair.a.close(pair.now)
        pair.pass_time(100 * MS)
        assert pair.a.pdcs == []


class Close(Random):
    """Random numbers of which all of 32 bits are within 2**18 of each other, and all PDCIDs the same."""

    def __init__(self, random: Random) -> None:
        super().__init__(random.random())

    def getrandbits(self, bits: int) -> int:
        return (
            (super().getrandbits(bits) & 0x3_FFFF) - 0x2_0000 & 0xFFFF_FFFF if bits == 32 else super().getrandbits(bits)
        )

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return 7 if stop == 0x10000 else super().randrange(start, stop, step)
