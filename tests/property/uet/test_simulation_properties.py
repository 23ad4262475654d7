"""Whatever the network and its faults: all datagrams are accounted for, bounds are kept, runs repeat themselves."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_topologies import HIGH, LOW, MEDIUM, TRIM_BYTES, leaf_spine, star, totals

from testbed.base.datapath.markers import MarkAt
from testbed.base.datapath.traffic_class import ClassPlan
from testbed.protocols.datagram import Incoming, Outgoing, Priority
from testbed.protocols.simulation import FabricNetwork, FabricPortSettings, Impairments, LinkSettings

GBPS = 10**9


class Chatter:
    """Sends random datagrams to random peers, some by a timer; answers some of what it gets."""

    def __init__(self, address: str, peers: Sequence[str], count: int, seed: int) -> None:
        self.address = address
        self.peers = peers
        self.random = Random(f"{seed} {address}")
        self.backlog = count // 2
        self.later = count - count // 2
        self.due = self.random.randrange(20_000)
        self.trace: list[tuple[int, Incoming]] = []
        self.refusals = 0

    def receive(self, datagrams: Sequence[Incoming], now: int) -> None:
        for datagram in datagrams:
            self.trace.append((now, datagram))
            self.backlog += self.random.random() < 0.3

    def transmit(self, now: int, limit: int = 64) -> list[Outgoing]:
        if not self.backlog:
            return []
        self.backlog -= 1
        random = self.random
        size = random.choice((20, 64, 300, 1500, 4096))
        remote = random.choice(self.peers)
        return [Outgoing(remote, random.randint(1, 65535), random.choice(list(Priority)), b"", random.randbytes(size))]

    def next_timer(self) -> int | None:
        return self.due if self.later else None

    def handle_timer(self, now: int) -> None:
        assert now >= self.due
        self.later -= 1
        self.backlog += 1
        self.due = now + self.random.randrange(5_000)


probabilities = st.sampled_from((0.0, 0.0, 0.05, 0.5))
impairments = st.builds(
    Impairments,
    loss=probabilities,
    loss_every=st.sampled_from((0, 7)),
    duplicate=probabilities,
    corrupt=probabilities,
    reorder=probabilities,
    reorder_delay_ns=st.integers(1, 50_000),
)
links = st.builds(
    LinkSettings,
    rate_bps=st.sampled_from((GBPS, 10 * GBPS, 7 * GBPS + 1)),
    delay_ns=st.integers(0, 20_000),
    up=st.sampled_from((True, True, True, False)),
    impairments=st.none() | impairments,
)
capacities = st.integers(0, 30_000)


@st.composite
def ports(draw: st.DrawFn) -> FabricPortSettings:
    kmin = draw(st.none() | capacities)
    low = ClassPlan(
        priority=LOW,
        limit_bytes=draw(capacities),
        kmin_bytes=kmin,
        kmax_bytes=(kmin or 0) + 5000,
        pmax=0.7,
        mark_at=draw(st.sampled_from(MarkAt)),
    )
    medium = ClassPlan(priority=MEDIUM, quantum_bytes=3 << 14, limit_bytes=draw(capacities))
    high = ClassPlan(priority=HIGH, strict=True, limit_bytes=draw(capacities))
    return FabricPortSettings(
        classes=(low, medium, high),
        priority_of=(LOW, draw(st.sampled_from((LOW, MEDIUM))), HIGH, HIGH, MEDIUM),
        trimming=draw(st.booleans()),
        trim_bytes=TRIM_BYTES,
    )


@dataclass(frozen=True)
class Case:
    leaves: int
    hosts_per_leaf: int
    spines: int
    count: int
    link: LinkSettings
    odd: LinkSettings
    port: FabricPortSettings
    seed: int
    kill_at: int | None

    def build(self) -> tuple[list[Chatter], FabricNetwork]:
        names = [f"10.0.0.{index}" for index in range(self.leaves * self.hosts_per_leaf)]
        hosts = [Chatter(name, [*names, "10.9.9.9"], self.count, self.seed) for name in names]
        if self.leaves == 1:
            overrides = {f"switch->{names[0]}": self.odd}
            network = star(hosts, link=self.link, port=self.port, overrides=overrides, seed=self.seed)
        else:
            overrides = {"leaf0->spine0": self.odd, f"{names[0]}->leaf0": self.odd}
            network = leaf_spine(
                hosts, self.leaves, self.spines, link=self.link, port=self.port, overrides=overrides, seed=self.seed
            )
        if self.kill_at is not None:
            network.at(self.kill_at, lambda now: network.nics[names[0]].kill())
        return hosts, network


cases = st.builds(
    Case,
    leaves=st.integers(1, 3),
    hosts_per_leaf=st.integers(1, 4),
    spines=st.integers(1, 3),
    count=st.integers(0, 40),
    link=links,
    odd=links,
    port=ports(),
    seed=st.integers(0, 1000),
    kill_at=st.none() | st.integers(0, 50_000),
)


def check_accounts(hosts: list[Chatter], network: FabricNetwork) -> None:
    found = totals(network)
    assert found.is_balanced, found
    assert network.accounted() == found.sent + found.duplicated
    assert found.delivered == sum(len(host.trace) for host in hosts)
    for port in network.outputs.values():
        line = port.line
        assert line.bytes * 8 * GBPS <= line.rate_bps * network.now + 5000 * 8 * GBPS
        assert (port.waiting == 0) == (not any(queue.bytes for queue in port.queues))
        for queue in port.queues:
            assert 0 <= queue.bytes <= max(queue.max_bytes, queue.limit_bytes)


@settings(max_examples=60, deadline=None)
@given(cases, st.integers(0, 200_000))
def test_every_datagram_is_accounted_for_at_any_time_and_at_the_end(case: Case, moment: int) -> None:
    hosts, network = case.build()
    network.run(until=moment)
    check_accounts(hosts, network)
    network.run(until=10**9)
    check_accounts(hosts, network)
    assert network.in_flight() == 0
    assert not any(port.waiting for port in network.outputs.values())


@settings(max_examples=25, deadline=None)
@given(cases, st.lists(st.integers(0, 200_000), max_size=4))
def test_a_run_repeats_itself_however_it_is_cut_into_pieces(case: Case, moments: list[int]) -> None:
    once_hosts, once = case.build()
    once.run(until=10**9)
    pieces_hosts, pieces = case.build()
    for moment in sorted(moments):
        pieces.run(until=moment)
    pieces.run(until=10**9)
    assert [host.trace for host in once_hosts] == [host.trace for host in pieces_hosts]
    assert totals(once) == totals(pieces)
    for name, port in once.outputs.items():
        for one, other in zip(port.queues, pieces.outputs[name].queues, strict=True):
            assert (one.max_bytes, one.out_bytes, one.ce_packets) == (
                other.max_bytes,
                other.out_bytes,
                other.ce_packets,
            )


@settings(max_examples=25, deadline=None)
@given(cases)
def test_what_arrives_is_what_was_sent_but_for_trimming(case: Case) -> None:
    """Without corruption: the datagrams of a sender are recognised by their random bytes."""
    hosts, network = case.build()
    network.impair(list(network.lines), None)
    sent: dict[str, set[bytes]] = {host.address: set() for host in hosts}
    for host in hosts:
        record(host, sent[host.address])
    network.run(until=10**9)
    for host in hosts:
        for _, incoming in host.trace:
            assert incoming.trimmed == (incoming.length != 0)
            if incoming.trimmed:
                assert len(incoming.data) == TRIM_BYTES
                assert (bytes(incoming.data), incoming.length) in {
                    (data[:TRIM_BYTES], len(data)) for data in sent[incoming.remote]
                }
            else:
                assert bytes(incoming.data) in sent[incoming.remote]


def record(host: Chatter, into: set[bytes]) -> None:
    original = host.transmit

    def transmit(now: int, limit: int = 64) -> list[Outgoing]:
        batch = original(now, limit)
        into.update(outgoing.to_bytes() for outgoing in batch)
        return batch

    host.transmit = transmit  # type: ignore[method-assign]
