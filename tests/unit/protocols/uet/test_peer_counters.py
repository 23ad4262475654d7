"""What an endpoint counts by peer: it is the whole of what it counts, and belongs to the right one."""

from collections import Counter

import pytest
from simulated_fabric import PAYLOAD, Fabric, config, port_settings
from simulated_topologies import ROOMY
from wire_pair import MS, WirePair

from testbed.protocols.datagram import Priority
from testbed.protocols.uet import peers
from testbed.protocols.uet.fep import Fep
from testbed.protocols.uet.packets.codes import Mode

KEPT_BY_PEER = ("packets", "packets-again")
"""Which the totals do not have."""


def by_peer(fabric: Fabric, fep: Fep) -> Counter[str]:
    """Over all peers, both ways."""
    found: Counter[str] = Counter()
    for other in fabric.feps:
        for initiator in (True, False):
            found.update(fep.peers.of(other.address, initiator=initiator))
    return found


def assert_whole(fabric: Fabric) -> None:
    for fep in fabric.feps:
        found = by_peer(fabric, fep)
        sent = {name: found.pop(name, 0) for name in KEPT_BY_PEER}
        assert +found == +fep.counters
        assert sent["packets"] == sum(pdc.sender.congestion.sends for pdc in fep.pdcs)


@pytest.mark.parametrize("mode", ["trimming", "dropping"])
def test_an_incast_by_senders_adds_up_to_the_whole(mode: str) -> None:
    trimming = mode == "trimming"
    fabric = Fabric(9, config(trimming=trimming)).star(port_settings(trimming))
    for source in range(1, 9):
        fabric.write(source, 0, (100 + 10 * source) * PAYLOAD)
    fabric.run()
    assert_whole(fabric)
    target, senders = fabric.feps[0], fabric.feps[1:]
    for fep in senders:
        sent = fep.peers.of(target.address, initiator=True)
        got = target.peers.of(fep.address, initiator=False)
        assert not target.peers.of(fep.address, initiator=True), "it opened nothing"
        assert got["ce-marked"] > 0
        if trimming:
            assert got["trimmed"] == sent["nacked-trimmed"] + sent["nacked-trimmed-lasthop"] > 0
            assert sent["timeout"] == sent["inferred-loss"] == 0
        else:
            assert sent["timeout"] + sent["inferred-loss"] >= sent["packets-again"]
    assert fabric.counted("trimmed") > 0 if trimming else fabric.counted("inferred-loss") > 0


def test_sprayed_packets_arrive_out_of_order_and_those_of_a_single_path_do_not() -> None:
    counted = {}
    for paths in ("oblivious", "single"):
        fabric = Fabric(4, config(trimming=True, paths=paths, packets_per_entropy=1))
        fabric.leaf_spine(2, 4, ROOMY)
        for source in (0, 1):
            fabric.write(source, source + 2, 300 * PAYLOAD)
        fabric.run()
        assert_whole(fabric)
        counted[paths] = fabric.counted("out-of-order")
    assert counted["single"] == 0 < counted["oblivious"]


def test_what_was_sent_again_is_not_out_of_order() -> None:
    pair = WirePair()
    lost = []

    def lose_the_second(datagram: object) -> bool:
        if getattr(datagram, "priority", None) == Priority.DATA:
            lost.append(datagram)
            return len(lost) != 2
        return True

    operation = pair.ea.send(pair.to_b, bytes(20 * PAYLOAD), pair.now)
    pair.eb.recv(bytearray(20 * PAYLOAD), pair.now)
    pair.settle(lose_the_second)
    pair.run(operation)
    sent, got = pair.a.peers.of("10.0.0.2", initiator=True), pair.b.peers.of("10.0.0.1", initiator=False)
    assert (sent["packets"], sent["packets-again"]) == (21, 1)
    assert sent["timeout"] + sent["inferred-loss"] == 1
    assert got["out-of-order"] == 0


def test_rod_tells_how_many_packets_it_went_back_for() -> None:
    pair = WirePair()
    operation = pair.ea.send(pair.to_b, bytes(6 * PAYLOAD), pair.now, mode=Mode.ROD)
    pair.eb.recv(bytearray(6 * PAYLOAD), pair.now)
    first, *others = pair.take(pair.a)
    assert len(others) >= 3
    pair.give(first)
    for datagram in others[1:]:
        pair.give(datagram)
    pair.run(operation)
    sent = pair.a.peers.of("10.0.0.2", initiator=True)
    assert sent["rewound"] == sent["packets-again"] == len(others)
    assert pair.b.peers.of("10.0.0.1", initiator=False)["rod-out-of-order"] == len(others) - 1


def test_what_a_context_did_outlives_it() -> None:
    pair = WirePair()
    operation = pair.ea.send(pair.to_b, bytes(3 * PAYLOAD), pair.now)
    pair.eb.recv(bytearray(3 * PAYLOAD), pair.now)
    for number, datagram in enumerate(pair.take(pair.a)):
        pair.give(datagram, ce=number == 1)
    pair.run(operation)
    ways = [(pair.a, "10.0.0.2", True), (pair.b, "10.0.0.1", False)]
    before = [fep.peers.of(remote, initiator=initiator) for fep, remote, initiator in ways]
    assert before[0]["packets"] == 3 and before[1]["ce-marked"] == 1
    pair.a.close(pair.now)
    pair.pass_time(10_000 * MS)
    assert pair.a.pdcs == pair.b.pdcs == []
    after = [fep.peers.of(remote, initiator=initiator) for fep, remote, initiator in ways]
    assert after[0] == before[0] + Counter(packets=1), "and the packet that closed it"
    assert after[1] == before[1]
    assert pair.b.counters["ce-marked"] == 1, "read twice, counted once"


def test_strangers_do_not_fill_our_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "MOST_PEERS", 1)
    fabric = Fabric(3, config(trimming=True)).star(port_settings(True))
    for source in (1, 2):
        fabric.write(source, 0, 80 * PAYLOAD)
    fabric.run()
    target = fabric.feps[0]
    counted = [target.peers.of(fep.address, initiator=False)["ce-marked"] for fep in fabric.feps[1:]]
    assert sorted(map(bool, counted)) == [False, True]
    assert target.counters["ce-marked"] > sum(counted), "the totals have them all"
