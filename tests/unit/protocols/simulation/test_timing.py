"""Serialisation, propagation and timers to the nanosecond; how a run ends."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from simulated_topologies import leaf_spine, point_to_point, star, totals

from testbed.protocols.datagram import Incoming, Outgoing, Priority
from testbed.protocols.simulation import (
    WIRE_OVERHEAD_BYTES,
    ConfigurationError,
    ContractError,
    Deadlock,
    Ended,
    FabricNetwork,
    LinkSettings,
    Livelock,
)

GBPS = 10**9
LINK = LinkSettings(rate_bps=GBPS, delay_ns=1000)
A, B = "10.0.0.1", "10.0.0.2"
PAYLOAD = bytes(1000 - WIRE_OVERHEAD_BYTES)
"""1000 bytes on the wire, 8 us at 1 Gb/s."""


class Peer:
    """Sends what is in `backlog`; keeps what arrives with its time; fires timers of a list."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.backlog: list[Outgoing] = []
        self.arrived: list[tuple[int, bytes]] = []
        self.asked: list[int] = []
        self.timers: list[int] = []
        self.fired: list[int] = []

    def send(self, remote: str, *payloads: bytes, priority: Priority = Priority.DATA) -> None:
        self.backlog += [Outgoing(remote, 1, priority, b"", payload) for payload in payloads]

    def receive(self, datagrams: Sequence[Incoming], now: int) -> None:
        self.arrived += [(now, bytes(datagram.data)) for datagram in datagrams]

    def transmit(self, now: int, limit: int = 64) -> list[Outgoing]:
        self.asked.append(now)
        batch, self.backlog = self.backlog[:limit], self.backlog[limit:]
        return batch

    def next_timer(self) -> int | None:
        return min(self.timers, default=None)

    def handle_timer(self, now: int) -> None:
        self.fired.append(now)
        self.timers.remove(min(self.timers))


class Window(Peer):
    """Keeps `window` datagrams unanswered until `total` are answered; its peer echoes."""

    def __init__(self, address: str, remote: str, window: int, total: int) -> None:
        super().__init__(address)
        self.remote = remote
        self.window = window
        self.total = total
        self.sent = 0

    def transmit(self, now: int, limit: int = 64) -> list[Outgoing]:
        while self.sent < self.total and self.sent - len(self.arrived) < self.window:
            self.sent += 1
            self.send(self.remote, PAYLOAD)
        return super().transmit(now, limit)


class Echo(Peer):
    def receive(self, datagrams: Sequence[Incoming], now: int) -> None:
        super().receive(datagrams, now)
        for datagram in datagrams:
            self.send(datagram.remote, bytes(datagram.data), priority=Priority.CONTROL)


def pair() -> tuple[Peer, Peer, FabricNetwork]:
    a, b = Peer(A), Peer(B)
    return a, b, point_to_point(a, b, link=LINK)


def test_nic_sends_at_the_rate_of_its_line_and_asks_whenever_it_is_free() -> None:
    a, b, network = pair()
    a.send(B, PAYLOAD, PAYLOAD, PAYLOAD)
    network.run()
    assert [now for now, _ in b.arrived] == [9000, 17000, 25000]
    assert a.asked == [0, 8000, 16000, 24000]


@pytest.mark.parametrize(
    ("line", "behind", "arrivals"),
    [
        (LINK, None, [8000 + 1000]),
        (LinkSettings(rate_bps=3 * GBPS, delay_ns=0), None, [2667]),  # rounded up to whole nanoseconds
        (LINK, LINK, [18_000, 26_000]),  # a switch stores and forwards
        (LINK, LinkSettings(rate_bps=GBPS // 4, delay_ns=0), [9000 + 32_000 * count for count in (1, 2, 3)]),
    ],
    ids=["serialisation and propagation", "rounded", "by a switch", "a slow line behind the switch"],
)
def test_datagrams_arrive_when_lines_have_carried_them(
    line: LinkSettings, behind: LinkSettings | None, arrivals: list[int]
) -> None:
    a, b = Peer(A), Peer(B)
    if behind is None:
        network = point_to_point(a, b, link=line)
    else:
        network = star([a, b], link=line, overrides={f"switch->{B}": behind})
    a.send(B, *[PAYLOAD] * len(arrivals))
    assert network.run() is Ended.QUIET
    assert b.arrived == [(now, PAYLOAD) for now in arrivals]


def test_header_and_payload_arrive_as_one() -> None:
    a, b, network = pair()
    a.backlog.append(Outgoing(B, 7, Priority.DATA, b"header ", memoryview(b"payload")))
    network.run()
    assert [data for _, data in b.arrived] == [b"header payload"]


def test_four_lines_across_a_leaf_spine_and_two_within_a_leaf() -> None:
    hosts = [Peer(f"10.0.0.{number}") for number in range(1, 5)]
    network = leaf_spine(hosts, 2, 3, link=LINK, fabric_link=LinkSettings(rate_bps=10 * GBPS, delay_ns=500))
    hosts[0].send(hosts[3].address, PAYLOAD)
    hosts[2].send(hosts[3].address, PAYLOAD[:-500])
    network.run()
    assert hosts[3].arrived == [(2 * 5000, PAYLOAD[:-500]), (2 * 9000 + 2 * 1300, PAYLOAD)]


def test_window_sender_is_limited_by_its_round_trip() -> None:
    a, b = Window(A, B, window=1, total=5), Echo(B)
    network = point_to_point(a, b, link=LINK)
    assert network.run(stop=lambda: len(a.arrived) == 5) is Ended.STOP
    assert network.now == 5 * 2 * 9000
    assert [now for now, _ in a.arrived] == [18000 * count for count in range(1, 6)]


def test_window_of_the_bandwidth_delay_product_fills_the_line() -> None:
    a, b = Window(A, B, window=3, total=40), Echo(B)
    network = point_to_point(a, b, link=LINK)
    network.run(stop=lambda: len(a.arrived) == 40)
    assert network.now == 40 * 8000 + 8000 + 2 * 1000


def test_timers_fire_when_due_and_those_in_the_past_at_once() -> None:
    a, _, network = pair()
    a.timers = [500, 200, 200, -5]
    network.run()
    assert a.fired == [0, 200, 200, 500]


def test_timer_that_was_put_off_fires_at_its_new_time_and_one_taken_back_never() -> None:
    a, b, network = pair()
    a.timers, b.timers = [500], [500]
    network.run(until=100)
    a.timers, b.timers = [900], []
    network.run()
    assert (a.fired, b.fired) == ([900], [])


def test_timer_brought_forward_fires_early() -> None:
    a, _, network = pair()
    a.timers = [500]

    def sooner(now: int) -> None:
        a.timers = [300]
        network.nics[A].wake()

    network.at(100, sooner)
    network.run()
    assert a.fired == [300]


def test_application_wakes_an_endpoint_that_has_run_dry() -> None:
    a, b, network = pair()

    def act(now: int) -> None:
        a.send(B, PAYLOAD)
        network.nics[A].wake()

    network.at(5000, act)
    network.run()
    assert [now for now, _ in b.arrived] == [5000 + 9000]


def test_run_until_a_time_stops_the_clock_there_and_can_go_on() -> None:
    a, b, network = pair()
    a.send(B, PAYLOAD, PAYLOAD)
    assert network.run(until=9000) is Ended.TIME
    assert (network.now, len(b.arrived), network.in_flight()) == (9000, 1, 1)
    assert network.run(until=10**6) is Ended.QUIET
    assert len(b.arrived) == 2


def test_stop_that_is_true_at_the_start_lets_nothing_happen() -> None:
    a, b, network = pair()
    a.send(B, PAYLOAD)
    assert network.run(stop=lambda: True) is Ended.STOP
    assert (a.asked, b.arrived, totals(network).sent) == ([], [], 0)


def test_nothing_scheduled_before_the_end_is_a_deadlock_that_names_the_endpoints() -> None:
    a, b, network = pair()
    a.send(B, PAYLOAD)
    network.nics[B].kill()
    with pytest.raises(Deadlock) as caught:
        network.run(stop=lambda: bool(b.arrived))
    assert caught.value.endpoints == (A,)
    assert caught.value.now == 9000
    assert f"{A}: sent 1, got 0, last active at 0 ns, no timer" in str(caught.value)
    assert f"{B}: sent 0, got 0, last active at 0 ns, killed" in str(caught.value)


def test_timer_that_stays_in_the_past_is_a_livelock() -> None:
    a, _, network = pair()
    a.timers = [10] * 5000
    with pytest.raises(Livelock) as caught:
        network.run()
    assert (caught.value.now, caught.value.endpoint) == (10, A)


def test_endpoint_that_hands_out_more_than_it_was_asked_for_is_refused() -> None:
    class Greedy(Peer):
        def transmit(self, now: int, limit: int = 64) -> list[Outgoing]:
            return self.backlog

    a, b = Greedy(A), Peer(B)
    a.send(B, PAYLOAD, PAYLOAD)
    with pytest.raises(ContractError, match=f"{A} was asked for 1 datagram and handed out 2"):
        point_to_point(a, b, link=LINK).run()


def test_datagram_to_nobody_is_counted_and_takes_no_time_on_the_line() -> None:
    a, b, network = pair()
    a.send("10.9.9.9", PAYLOAD)
    a.send(B, PAYLOAD)
    network.run()
    assert [now for now, _ in b.arrived] == [9000]
    assert totals(network).unroutable == 1


def test_a_hop_costs_at_most_two_events() -> None:
    senders = [Peer(f"10.0.1.{index}") for index in range(8)]
    sink = Peer(A)
    network = star([*senders, sink], link=LINK)
    for sender in senders:
        sender.send(A, *([PAYLOAD] * 50))
    network.run()
    assert network.hops == 800
    assert network.events.handled <= 2 * network.hops + len(network.nics)


@pytest.mark.parametrize("jitter_ns", [800, 20_000])
def test_jitter_makes_frames_late_and_none_overtake(jitter_ns: int) -> None:
    """Also where it is longer than a frame; the line itself is free as without."""
    a, b = Peer(A), Peer(B)
    network = point_to_point(a, b, link=replace(LINK, jitter_ns=jitter_ns))
    a.send(B, *(number.to_bytes(2, "big") + PAYLOAD[2:] for number in range(50)))
    network.run()
    late = [at - (8000 * (number + 1) + 1000) for number, (at, _) in enumerate(b.arrived)]
    assert [int.from_bytes(data[:2], "big") for _, data in b.arrived] == list(range(50))
    assert min(late) >= 0 and max(late) <= jitter_ns and len(set(late)) > 40
    assert a.asked[-1] == 50 * 8000


def test_settings_and_names_that_do_not_fit_are_refused() -> None:
    a, _, network = pair()
    with pytest.raises(ConfigurationError, match=f"no line {A}->c"):
        network.set_up(f"{A}->c", False)
    with pytest.raises(ConfigurationError, match="same address"):
        point_to_point(a, Peer(A), link=LINK)
