"""What was recorded is sent to a target that has begun anew, or has forgotten: under TSS nothing of it is done."""

from random import Random

import pytest
from encoded import encoded
from wire_pair import JOB, MS, WirePair

from testbed.protocols.datagram import Incoming, Outgoing, Priority
from testbed.protocols.uet.atomics import Amo
from testbed.protocols.uet.delivery.pdc import Pdc
from testbed.protocols.uet.delivery.start_psn import EarlierPdc, StartPsnDemands
from testbed.protocols.uet.fep import Fep
from testbed.protocols.uet.memory import Access, RemoteBuffer
from testbed.protocols.uet.packets.acks import Nack
from testbed.protocols.uet.packets.codes import AmoOpcode, AmoType, Mode, NackCode, PdsType, ReturnCode
from testbed.protocols.uet.packets.psn import psn_add, psn_distance
from testbed.protocols.uet.security.key_derivation import DomainKey
from testbed.protocols.uet.security.tss import SecureDomain, SecurityMode
from testbed.protocols.uet.security.tss_header import Tsc
from testbed.protocols.uet.semantics.operations import Operation

KEY = 5
SIZE = 20_000
ALL = Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC
ONE = Amo(AmoOpcode.SUM, AmoType.UINT64, (1).to_bytes(8, "little"))
COUNTER = SIZE
"""Where the counter lies, behind what is written."""

both_modes = pytest.mark.parametrize("mode", [Mode.RUD, Mode.ROD])
demanding_or_not = pytest.mark.parametrize("demanding", [True, pytest.param(False, marks=pytest.mark.interpreted)])
both_keys = pytest.mark.parametrize("security", SecurityMode)


class Recorded(WirePair):
    """`b` restarts at will; what `a` sends is recorded as it is on the wire."""

    def __init__(self, security: SecurityMode = SecurityMode.DIRECT, **settings: object) -> None:
        self.security = security
        self.lives = 0
        self.recorded: list[Outgoing] = []
        super().__init__(security=(self.domain(), self.domain()), payload_bytes=1024, **settings)  # type: ignore[arg-type]
        self.restart(self.b)

    def domain(self) -> SecureDomain:
        self.lives += 1
        return SecureDomain(
            77, DomainKey(bytes(range(32))), first_tsc=Tsc(counter=self.lives << 20), mode=self.security
        )

    def restart(self, fep: Fep) -> None:
        """Begin the life of one of them anew: what it knew, and what was in its memory, is gone."""
        new = Fep(fep.address, fep.config, Random(self.lives), self.now, security=self.domain())
        end = new.endpoint(job_id=JOB)
        if fep is self.a:
            self.a, self.ea = new, end
        else:
            self.b, self.eb = new, end
            self.memory = bytearray(SIZE + 8)
            self.b.register(self.memory, ALL, JOB, KEY)

    @property
    def untouched(self) -> bool:
        return self.memory == bytes(SIZE + 8)

    def take(self, fep: Fep, limit: int = 10_000) -> list[Outgoing]:
        sent = super().take(fep, limit)
        if fep is self.a:
            self.recorded += [item._replace(header=item.to_bytes(), payload=b"") for item in sent]
        return sent

    def replay(self, packets: list[Outgoing]) -> None:
        """Give `b` what was recorded; nobody hears its answers."""
        for packet in packets:
            self.b.receive([Incoming(self.a.address, packet.entropy, packet.to_bytes())], self.now)
            self.b.transmit(self.now)

    def write(self, mode: Mode = Mode.RUD, size: int = SIZE) -> Operation:
        return self.ea.write(self.to_b, b"w" * size, RemoteBuffer(KEY), self.now, mode=mode)

    def add(self, mode: Mode = Mode.RUD) -> Operation:
        return self.ea.atomic(self.to_b, ONE, RemoteBuffer(KEY, COUNTER), self.now, mode=mode)

    @property
    def count(self) -> int:
        return int.from_bytes(self.memory[COUNTER:], "little")


def without_demands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let any Start_PSN be good, as it is without TSS."""
    monkeypatch.setattr(StartPsnDemands, "demand", lambda _, start_psn, *__: start_psn)


def give_pdcid(fep: Fep, pdc: Pdc, pdcid: int) -> None:
    """Have an initiator use this PDCID, as it would one time in 65,535."""
    table = fep.table
    table.by_pdcid[pdcid] = table.by_pdcid.pop(pdc.local_pdcid)
    table._keys[pdcid] = table._keys.pop(pdc.local_pdcid)
    pdc.local_pdcid = pdcid


def exchange(pair: Recorded, mode: Mode) -> None:
    """A WRITE of 20 packets and an atomic operation, done and recorded: all sent at once, with SYN in each packet."""
    operations = pair.write(mode), pair.add(mode)
    (pdc,) = pair.a.pdcs
    pdc.sender._peer_range = 1024
    pair.run(*operations)
    assert pair.memory[:SIZE] == b"w" * SIZE and pair.count == 1


@both_modes
@both_keys
@pytest.mark.interpreted
def test_the_attack_works_where_any_start_psn_is_good(
    monkeypatch: pytest.MonkeyPatch, mode: Mode, security: SecurityMode
) -> None:
    without_demands(monkeypatch)
    pair = Recorded(security, cc="none")
    exchange(pair, mode)
    pair.restart(pair.b)
    assert pair.untouched
    pair.replay(pair.recorded)
    assert pair.memory[:SIZE] == b"w" * SIZE and pair.count == 1


@both_modes
@both_keys
@pytest.mark.parametrize("wait_ms", [0, 1_900, 2_100, 60_000])
def test_a_recorded_exchange_does_nothing_to_a_target_that_has_begun_anew(
    mode: Mode, security: SecurityMode, wait_ms: int
) -> None:
    pair = Recorded(security, cc="none")
    exchange(pair, mode)
    pair.restart(pair.b)
    pair.now += wait_ms * MS
    pair.b.handle_timer(pair.now)
    pair.replay(pair.recorded)
    assert pair.untouched and pair.b.pdcs == []
    assert pair.b.counters["new-start-psn"] > 0


@both_modes
def test_nor_does_it_while_honest_peers_use_that_target(mode: Mode) -> None:
    pair = Recorded()
    exchange(pair, mode)
    recorded = list(pair.recorded)
    pair.restart(pair.b)
    end = pair.a.endpoint(job_id=JOB, pid_on_fep=1)
    for _ in range(3):
        read = end.read(pair.to_b, bytearray(8), RemoteBuffer(KEY), pair.now, mode=mode)
        pair.run(read)
        pair.replay(recorded)
        assert pair.untouched
    assert read.ok


@both_modes
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_honest_peers_of_a_target_that_has_begun_anew_get_through(mode: Mode, seed: int, loss: float) -> None:
    random = Random(seed)

    def wire(_: Outgoing) -> bool:
        return random.random() >= loss

    pair = Recorded(max_rto_retx=12)
    exchange(pair, mode)
    pair.restart(pair.b)
    lost = pair.write(mode)  # on the PDC of before: an error, and true
    while not lost.done:
        pair.pass_time(20 * MS, wire)
    assert lost.status is ReturnCode.UNDELIVERABLE and pair.untouched
    operations = [pair.write(mode), *(pair.add(mode) for _ in range(5))]
    while not all(operation.done for operation in operations):
        pair.pass_time(20 * MS, wire)
    assert all(operation.ok for operation in operations)
    assert pair.memory[:SIZE] == b"w" * SIZE and pair.count == 5


def test_a_new_pdc_costs_one_packet_and_one_round_trip_more() -> None:
    pair = Recorded(cc="none")
    write = pair.write()
    (syn,) = pair.take(pair.a)
    pair.give(syn)
    (nack,) = pair.take(pair.b)
    pair.give(nack)
    packets = pair.take(pair.a)
    assert len(packets) == -(-SIZE // pair.a.payload_bytes)
    for packet in packets:
        pair.give(packet)
    assert pair.memory[:SIZE] == b"w" * SIZE
    pair.settle()
    assert write.ok and pair.b.counters["new-start-psn"] == 1 and pair.a.counters["renumbered"] == 1


@both_modes
@pytest.mark.parametrize("cc", ["nscc", "rccc", "both", "none"])
def test_every_congestion_control_has_the_round_trip_for_it(cc: str, mode: Mode) -> None:
    pair = Recorded(cc=cc)
    operations = [pair.write(mode), pair.add(mode)]
    pair.pass_time(pair.a.config.rto_ns // 2)
    assert all(operation.ok for operation in operations)
    assert pair.a.counters == {"renumbered": 1}
    assert abs(pair.a.pdcs[0].sender.congestion.inflight_bytes) < 256


@demanding_or_not
def test_a_packet_kept_back_does_nothing_when_its_pdc_is_forgotten(
    monkeypatch: pytest.MonkeyPatch, demanding: bool
) -> None:
    """Its counter is still within the replay window, for nothing was sent since."""
    if not demanding:
        without_demands(monkeypatch)
    pair = Recorded()
    add = pair.add()
    if demanding:
        for fep in (pair.a, pair.b):
            (item,) = pair.take(fep)
            pair.give(item)
    (kept,) = pair.take(pair.a)
    pair.run(add)  # it is sent again
    assert add.ok and pair.count == 1
    pair.a.close(pair.now)
    pair.pass_time(20 * MS)
    assert pair.b.pdcs == []
    pair.pass_time(pair.b.config.syn_memory_ns + MS)
    pair.replay([kept])
    assert not pair.b.counters["security-behind-window"]
    assert pair.count == (1 if demanding else 2)


@demanding_or_not
def test_a_recorded_syn_does_not_end_the_pdc_of_the_same_initiator(
    monkeypatch: pytest.MonkeyPatch, demanding: bool
) -> None:
    if not demanding:
        without_demands(monkeypatch)
    pair = Recorded(cc="none")
    exchange(pair, Mode.RUD)
    (old,) = pair.a.pdcs
    recorded = list(pair.recorded)
    pair.restart(pair.b)
    old.fail("for the test", pair.now)
    add = pair.add()
    (new,) = pair.a.pdcs
    give_pdcid(pair.a, new, old.local_pdcid)
    pair.run(add)
    (target,) = pair.b.pdcs
    pair.replay(recorded)
    assert (pair.b.pdcs == [target]) is demanding
    assert (pair.memory[:SIZE] == bytes(SIZE)) is demanding


def test_the_next_pdc_of_an_initiators_pdcid_is_told_another_start_psn() -> None:
    """Else its SYN would be taken for a late one of the PDC before."""
    pair = Recorded()
    pair.run(pair.add())
    (first,) = pair.a.pdcs
    pair.a.close(pair.now)
    pair.pass_time(MS)
    assert pair.a.pdcs == [] and pair.b.pdcs == []
    add = pair.add()
    (second,) = pair.a.pdcs
    give_pdcid(pair.a, second, first.local_pdcid)
    pair.run(add)
    assert add.ok and pair.count == 2
    assert abs(psn_distance(second.start_psn, first.start_psn)) >= 1 << 16


def demand(psn: int, dpdcid: int, start_psn: int) -> Outgoing:
    """A NACK that demands a Start_PSN, as it was before it was sealed."""
    nack = Nack(PdsType.NACK, 0, NackCode.NEW_START_PSN, 0, psn, 0, dpdcid, start_psn)
    return Outgoing("10.0.0.1", 50000, Priority.CONTROL, encoded(nack), b"")


def sealed(pair: Recorded, datagram: Outgoing, trim: int = 0) -> Incoming:
    data = pair.b._protection.seal([datagram], pair.b.counters)[0].to_bytes()  # type: ignore[union-attr]
    return Incoming(pair.b.address, datagram.entropy, data[: len(data) - trim], length=len(data))


def test_what_is_no_demand_for_a_packet_under_way_is_ignored() -> None:
    pair = Recorded()
    add = pair.add()
    pair.take(pair.a)
    (pdc,) = pair.a.pdcs
    start = pdc.start_psn
    good = demand(start, pdc.local_pdcid, 99)
    for incoming in (
        Incoming(pair.b.address, 50000, good.to_bytes()),  # in the clear
        sealed(pair, good, trim=17),
        sealed(pair, demand(psn_add(start, 1), pdc.local_pdcid, 99)),
        sealed(pair, demand(start, pdc.local_pdcid, start)),
    ):
        pair.a.receive([incoming], pair.now)
        assert pdc.start_psn == start and pair.take(pair.a) == []
    pair.a.receive([sealed(pair, good)], pair.now)
    (again,) = pair.take(pair.a)
    assert (pdc.start_psn, pdc.sender.window.next_psn) == (99, 100)
    pair.give(again)
    pair.run(add)
    assert add.ok and pair.count == 1
    pair.a.receive([sealed(pair, demand(pdc.start_psn, pdc.local_pdcid, 99))], pair.now)
    pair.run(pair.add())
    assert pair.count == 2


@pytest.mark.interpreted
def test_a_target_that_is_never_content(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Recorded()
    numbers = iter(range(1 << 20, 1 << 30, 1 << 20))
    monkeypatch.setattr(StartPsnDemands, "demand", lambda *_: next(numbers))
    add = pair.add()
    pair.run(add)
    assert add.status is ReturnCode.UNDELIVERABLE and "Start_PSNs" in add.error
    assert pair.b.counters["new-start-psn"] == pair.a.config.max_nack_retx + 1


@pytest.mark.parametrize("late", [False, True])
def test_a_demand_so_late_that_the_first_pdc_may_be_forgotten_ends_in_an_error(late: bool) -> None:
    pair = Recorded(max_rto_retx=12)
    add = pair.add()
    pair.pass_time((4100 if late else 2000) * MS, lambda _: False)
    pair.run(add)
    assert add.ok is not late
    if late:
        assert "may have executed" in add.error and pair.untouched


def test_demands_change_with_time_identity_and_life() -> None:
    one, other = StartPsnDemands(b"one", 4000), StartPsnDemands(b"other", 4000)
    peer = ("10.0.0.9", 7)
    told = one.demand(0, peer, Mode.RUD, None, 10_000)
    assert one.demand(told, peer, Mode.RUD, None, 10_000) == told == one.demand(told, peer, Mode.RUD, None, 13_999)
    others = [
        one.demand(told, peer, Mode.RUD, None, 14_000),
        one.demand(told, peer, Mode.ROD, None, 10_000),
        one.demand(told, ("10.0.0.9", 8), Mode.RUD, None, 10_000),
        one.demand(told, ("10.0.0.8", 7), Mode.RUD, None, 10_000),
        one.demand(told, peer, Mode.RUD, EarlierPdc(told, told), 10_000),
        other.demand(told, peer, Mode.RUD, None, 10_000),
    ]
    one.revoke()
    others.append(one.demand(told, peer, Mode.RUD, None, 10_000))
    assert len({told, *others}) == 8
