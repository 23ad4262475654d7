"""An endpoint under TSS: whole transfers, what it refuses and counts, trimming, epochs, and how it gets its key."""

from collections.abc import Callable
from random import Random

import pytest
from wire_pair import JOB, MS, WirePair

from testbed.protocols.datagram import Incoming, Outgoing, Priority
from testbed.protocols.uet.config import PSNS_OF_SECURE_PDC
from testbed.protocols.uet.fep import Fep
from testbed.protocols.uet.memory import Access, RemoteBuffer
from testbed.protocols.uet.packets.codes import Mode, ReturnCode
from testbed.protocols.uet.packets.psn import psn_add
from testbed.protocols.uet.security.key_derivation import DomainKey
from testbed.protocols.uet.security.tss import SecureDomain, SecurityMode
from testbed.protocols.uet.security.tss_header import MAX_COUNTER, Tsc
from testbed.protocols.uet.semantics.operations import Operation

KEY = 5
SIZE = 40_000
SECRET = DomainKey(bytes(range(32)))
OTHER = DomainKey(bytes(range(1, 33)))
SDI = 77
ALL = Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC


def domain(key: DomainKey = SECRET, *, ssi: int | None = None, first: int = 1, **settings: object) -> SecureDomain:
    return SecureDomain(SDI, key, first_tsc=Tsc(counter=first), ssi=ssi, **settings)  # type: ignore[arg-type]


class Secure(WirePair):
    def __init__(self, a: SecureDomain | None = None, b: SecureDomain | None = None, **settings: object) -> None:
        self.da, self.db = a or domain(), b or domain()
        super().__init__(security=(self.da, self.db), payload_bytes=1024, **settings)  # type: ignore[arg-type]
        self.memory = bytearray(SIZE)
        self.b.register(self.memory, ALL, JOB, KEY)

    def first(self, text: bytes = b"hello") -> Outgoing:
        """The packet of a new write, not delivered."""
        self.ea.write(self.to_b, text, RemoteBuffer(KEY), self.now)
        (packet,) = self.take(self.a)
        return packet


def lossy(seed: int) -> Callable[[Outgoing], bool]:
    random = Random(seed)
    return lambda _: random.random() >= 0.15


@pytest.mark.parametrize("mode", [Mode.RUD, Mode.ROD, Mode.RUDI])
@pytest.mark.parametrize("security", [SecurityMode.DIRECT, SecurityMode.CLUSTER])
@pytest.mark.parametrize("ssi", [False, True])
def test_a_whole_transfer_with_loss(mode: Mode, security: SecurityMode, ssi: bool) -> None:
    pair = Secure(
        domain(mode=security, ssi=1 if ssi else None), domain(mode=security, ssi=2 if ssi else None), max_rto_retx=12
    )
    data, back = Random(1).randbytes(SIZE), bytearray(SIZE)
    wire = lossy(2)
    write = pair.ea.write(pair.to_b, data, RemoteBuffer(KEY), pair.now, mode=mode)
    while not write.done:
        pair.pass_time(20 * MS, wire)
    read = pair.ea.read(pair.to_b, back, RemoteBuffer(KEY), pair.now, mode=mode)
    while not read.done:
        pair.pass_time(20 * MS, wire)
    assert write.ok and read.ok, (write, read)
    assert pair.memory == data == back
    assert pair.da.sealed >= pair.db.opened > SIZE // 1024
    assert not [name for fep in (pair.a, pair.b) for name in fep.counters if name.startswith("security")]


def test_reordering_within_the_replay_window() -> None:
    pair = Secure(cc="none")
    pair.run(pair.ea.write(pair.to_b, b"open", RemoteBuffer(KEY), pair.now))
    pair.b.counters.clear()
    write = pair.ea.write(pair.to_b, bytes([7]) * SIZE, RemoteBuffer(KEY), pair.now)
    packets = pair.take(pair.a)
    assert len(packets) > SIZE // 1024
    Random(3).shuffle(packets)
    for packet in packets:
        pair.give(packet)
    pair.run(write)
    assert write.ok and pair.memory == bytes([7]) * SIZE
    assert pair.b.counters == {}


@pytest.mark.parametrize("ssi", [None, 9])
def test_packets_are_no_longer_than_without(ssi: int | None) -> None:
    plain = WirePair(payload_bytes=1024, cc="none")
    secure = Secure(domain(ssi=ssi), domain(ssi=ssi), cc="none")
    longest = {}
    for name, pair in (("plain", plain), ("secure", secure)):
        pair.ea.write(pair.to_b, bytes(SIZE), RemoteBuffer(KEY), pair.now)
        longest[name] = max(len(item.to_bytes()) for item in pair.take(pair.a))
    assert longest["plain"] == longest["secure"]
    assert secure.a.overhead_bytes == (28 if ssi is None else 32)
    assert secure.a.payload_bytes == 1024 - secure.a.overhead_bytes


def test_congestion_control_counts_the_same_bytes_at_both_ends() -> None:
    pair = Secure()
    for _ in range(10):
        pair.run(pair.ea.write(pair.to_b, bytes(SIZE), RemoteBuffer(KEY), pair.now))
    assert -256 * 400 // 4 < pair.a.pdcs[0].sender.congestion.inflight_bytes <= 256
    assert abs(pair.a.pdcs[0].sender.congestion.inflight_bytes) <= 256


@pytest.mark.parametrize(
    ("stranger", "reason"),
    [
        (domain(OTHER), "security-bad-icv"),
        (domain(ssi=3), "security-ssi-unexpected"),
        (domain(an=1), "security-wrong-an"),
        (SecureDomain(SDI + 1, SECRET, first_tsc=Tsc(counter=1)), "security-unknown-sdi"),
        (None, "security-not-protected"),
    ],
)
def test_strangers_are_refused_and_counted(stranger: SecureDomain | None, reason: str) -> None:
    pair = Secure()
    outsider = WirePair(security=None if stranger is None else (stranger, domain()))
    operation = outsider.ea.write(outsider.to_b, b"forged", RemoteBuffer(KEY), 0)
    for packet in outsider.take(outsider.a):
        pair.give(packet)
    assert pair.b.counters == {reason: 1}
    assert pair.b.pdcs == [] and pair.memory == bytes(SIZE) and pair.take(pair.b) == []
    assert not operation.done


def test_a_replayed_packet() -> None:
    pair = Secure()
    pair.run(pair.ea.write(pair.to_b, b"open", RemoteBuffer(KEY), pair.now))
    pair.b.counters.clear()
    packet = pair.first()
    pair.give(packet)
    pair.settle()
    assert pair.memory[:5] == b"hello"
    pair.memory[:5] = b"later"
    pair.give(packet)
    assert pair.b.counters == {"security-replay": 1}
    assert pair.memory[:5] == b"later" and pair.take(pair.b) == []


@pytest.mark.parametrize("change", ["source", "entropy", "bit", "cut"])
def test_a_packet_that_was_changed_on_its_way(change: str) -> None:
    pair = Secure()
    packet = pair.first()
    data = bytearray(packet.to_bytes())
    source, entropy = pair.a.address, packet.entropy
    if change == "source":
        source = "10.0.0.3"
    elif change == "entropy":
        entropy ^= 1
    elif change == "bit":
        data[40] ^= 1
    else:
        del data[-1:]
    pair.b.receive([Incoming(source, entropy, bytes(data))], pair.now)
    assert pair.b.counters == {"security-bad-icv": 1}
    assert pair.b.pdcs == [] and pair.memory == bytes(SIZE)


@pytest.mark.parametrize(
    ("job", "offset", "status"), [(JOB + 1, 0, ReturnCode.BAD_JOB_ID), (JOB, SIZE, ReturnCode.AT_OUT_OF_RANGE)]
)
def test_members_are_held_to_their_memory(job: int, offset: int, status: ReturnCode) -> None:
    pair = Secure()
    member = pair.a.endpoint(job_id=job, pid_on_fep=1)
    operation = member.write(pair.to_b, b"x", RemoteBuffer(KEY, offset), pair.now)
    pair.run(operation)
    assert operation.status is status
    assert pair.b.counters == {"new-start-psn": 1, f"refused-{status.name.lower().replace('_', '-')}": 1}
    assert pair.memory == bytes(SIZE)


def test_a_trimmed_packet_is_asked_for_again_at_once() -> None:
    pair = Secure(trimming=True, cc="none")
    pair.run(pair.ea.write(pair.to_b, b"open", RemoteBuffer(KEY), pair.now))
    write = pair.ea.write(pair.to_b, bytes([9]) * 3000, RemoteBuffer(KEY), pair.now)
    packets = pair.take(pair.a)
    pair.give(packets[0])
    pair.give(packets[1], trim=64)
    for packet in packets[2:]:
        pair.give(packet)
    pair.settle()  # and no time passes
    assert write.ok and pair.memory[:3000] == bytes([9]) * 3000
    assert pair.b.counters == {"new-start-psn": 1, "trimmed": 1}


def test_a_trimmed_syn_opens_nothing_and_is_sent_again() -> None:
    pair = Secure(trimming=True)
    write = pair.ea.write(pair.to_b, b"again", RemoteBuffer(KEY), pair.now)
    (packet,) = pair.take(pair.a)
    pair.give(packet, trim=64)
    assert pair.b.pdcs == [] and pair.b.counters == {"trimmed": 1}
    pair.settle()
    assert write.ok and pair.memory[:5] == b"again"


def test_a_forged_trimmed_packet_does_nothing_but_a_nack() -> None:
    pair = Secure(trimming=True)
    pair.run(pair.ea.write(pair.to_b, b"open", RemoteBuffer(KEY), pair.now))
    (target,) = pair.b.pdcs
    state = (target.receiver.tracker.contiguous, target.receiver.rcvd_bytes, target.last_used)
    random = Random(1)
    packet = pair.first().to_bytes()
    pair.now += 1
    for _ in range(2000):
        # Bits flipped behind the TSS header are bits flipped in the PDS header.
        data = bytearray(packet[:64])
        data[random.randrange(12, 64)] ^= random.randrange(1, 256)
        pair.b.receive([Incoming(pair.a.address, 50000, bytes(data), length=len(packet))], pair.now)
        assert len(pair.take(pair.b)) <= 1
    assert pair.b.pdcs == [target]
    assert state == (target.receiver.tracker.contiguous, target.receiver.rcvd_bytes, target.last_used)
    assert pair.memory[:4] == b"open"


def test_two_endpoints_with_one_ssi_fail_with_a_reason() -> None:
    pair = Secure(domain(ssi=1), domain(ssi=1))
    write = pair.ea.write(pair.to_b, b"x", RemoteBuffer(KEY), pair.now)
    back = pair.eb.write(pair.to_a, b"x", RemoteBuffer(KEY), pair.now)
    pair.pass_time(10_000 * MS)
    assert write.status is back.status is ReturnCode.UNDELIVERABLE
    for fep, own in ((pair.a, pair.da), (pair.b, pair.db)):
        assert own.shared and own.sealed == 1
        assert fep.counters["security-iv-shared"] > 1 and fep.pdcs == []


def test_no_counter_is_left() -> None:
    pair = Secure(domain(first=MAX_COUNTER - 1))
    write = pair.ea.write(pair.to_b, bytes(SIZE), RemoteBuffer(KEY), pair.now)
    pair.pass_time(10_000 * MS)
    assert write.status is ReturnCode.UNDELIVERABLE
    assert pair.da.sealed <= 2
    assert pair.a.counters["security-counter-exhausted"] > 0


def test_an_initiator_that_begins_anew_replaces_its_pdc_within_a_round_trip() -> None:
    pair = Secure()
    pair.run(pair.ea.write(pair.to_b, b"before", RemoteBuffer(KEY), pair.now))
    (target,) = pair.b.pdcs
    (old,) = pair.a.pdcs
    again = Secure(domain(first=1 << 20), seed=2)
    pair.a, pair.ea = again.a, again.ea
    write = pair.ea.write(pair.to_b, b"after!", RemoteBuffer(KEY), pair.now)
    (new,) = pair.a.pdcs
    pair.a.table.by_pdcid[old.local_pdcid] = pair.a.table.by_pdcid.pop(new.local_pdcid)
    new.local_pdcid = old.local_pdcid
    pair.settle()  # and no time passes
    assert write.ok and pair.memory[:6] == b"after!"
    assert new.start_psn != target.start_psn
    assert target not in pair.b.pdcs and len(pair.b.pdcs) == 1


def inside(fep: Fep) -> dict[str, object]:
    """Everything that an endpoint has."""
    return {name: getattr(fep, name, None) for name in dir(fep) if not name.startswith("__")}


def test_no_secret_is_printed() -> None:
    pair = Secure()
    shown = " ".join(map(repr, (pair.a.config, pair.da, SECRET, inside(pair.a)))) + str(pair.a.counters)
    material = SECRET.reveal()
    assert material.hex() not in shown and repr(material) not in shown and str(list(material)) not in shown


@pytest.mark.parametrize("mode", [Mode.RUD, Mode.ROD])
def test_a_context_is_closed_before_its_packet_numbers_are_used_up(mode: Mode) -> None:
    """By Start_PSN + 2**31; here after 20 packets. What comes after that goes over another one."""
    pair = Secure(secure_pdc_packets=20)
    seen: dict[int, set[int]] = {}
    used: list[Operation] = []
    for _ in range(30):
        data = Random(len(used)).randbytes(5000)
        write = pair.ea.write(pair.to_b, data, RemoteBuffer(KEY), pair.now, mode=mode)
        used.append(write)
        for pdc in pair.a.pdcs:
            seen.setdefault(pdc.local_pdcid, set()).add(pdc.start_psn)
        pair.pass_time(MS)
    pair.run(*used)
    assert all(write.ok for write in used) and pair.memory[:5000] == Random(29).randbytes(5000)
    assert 5 <= len(seen) <= 8  # 150 packets, and the close of each
    pair.pass_time(100 * MS)
    assert len(pair.a.pdcs) <= 1 and len(pair.b.pdcs) <= 1
    assert not pair.a.counters["pdc-failed"] and not pair.b.counters["pdc-failed"]


def test_messages_that_wait_when_a_context_is_closing_are_still_sent() -> None:
    pair = Secure(secure_pdc_packets=20)
    writes = [pair.ea.write(pair.to_b, bytes(5000), RemoteBuffer(KEY), pair.now) for _ in range(20)]
    writes += [pair.ea.write(pair.to_b, bytes(5000), RemoteBuffer(KEY), pair.now + MS) for _ in range(20)]
    pair.run(*writes)
    assert all(write.ok for write in writes)


def test_a_plain_context_lives_on() -> None:
    pair = WirePair(payload_bytes=1024, secure_pdc_packets=20)
    pair.b.register(bytearray(SIZE), ALL, JOB, KEY)
    for _ in range(3):
        pair.run(pair.ea.write(pair.to_b, bytes(SIZE), RemoteBuffer(KEY), pair.now))
    (pdc,) = pair.a.pdcs
    assert pdc.open


def test_no_packet_has_a_number_2_31_after_the_first_one() -> None:
    """If a sender has come so far all the same: what is under way ends in an error."""
    pair = Secure()
    pair.run(pair.ea.write(pair.to_b, b"x", RemoteBuffer(KEY), pair.now))
    (pdc,) = pair.a.pdcs
    pdc.sender.window.sent = PSNS_OF_SECURE_PDC - 3
    write = pair.ea.write(pair.to_b, bytes(5000), RemoteBuffer(KEY), pair.now)
    sent = [packet for packet in pair.take(pair.a) if packet.priority is Priority.DATA]
    assert len(sent) == 2 and write.status is ReturnCode.UNDELIVERABLE and "used up" in write.error
    again = pair.ea.write(pair.to_b, bytes(5000), RemoteBuffer(KEY), pair.now)
    pair.run(again)
    assert again.ok


def test_a_peer_that_goes_on_beyond_2_31_is_not_listened_to() -> None:
    pair = Secure()
    pair.run(pair.ea.write(pair.to_b, b"x", RemoteBuffer(KEY), pair.now))
    (target,) = pair.b.pdcs
    target.start_psn = psn_add(target.receiver.tracker.contiguous, 1 - PSNS_OF_SECURE_PDC)
    write = pair.ea.write(pair.to_b, b"y", RemoteBuffer(KEY, 1), pair.now)
    pair.run(write)
    assert write.status is ReturnCode.UNDELIVERABLE and pair.memory[:2] == b"x\0"
    assert pair.b.counters["pdc-failed"] == 1


@pytest.mark.parametrize("seed", range(5))
def test_order_is_kept_from_one_context_to_the_next(seed: int) -> None:
    pair = Secure(secure_pdc_packets=20, max_rto_retx=12)
    buffers = [bytearray(3000) for _ in range(40)]
    receives = [pair.eb.recv(buffer, pair.now) for buffer in buffers]
    wire = lossy(seed)
    sends = []
    for number in range(40):
        sends.append(pair.ea.send(pair.to_b, bytes([number]) * 3000, pair.now, mode=Mode.ROD))
        if number % 7 == 0:
            pair.pass_time(MS, wire)
    while not all(operation.done for operation in sends + receives):
        pair.pass_time(50 * MS, wire)
    assert all(operation.ok for operation in sends + receives)
    assert [buffer[0] for buffer in buffers] == list(range(40))
