"""The prober's sockets, on this machine's loopback instead of in nodes: what is sent, told, passed over and closed."""

import errno
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from ipaddress import IPv4Interface
from typing import Any

import pytest
from fake_lab import small_lab

from testbed.base.errors import DriverError
from testbed.lab.core.deploy.watch.probe import Probe, Prober
from testbed.lab.core.drivers.nodes import udp_prober
from testbed.lab.core.drivers.nodes.probe_packet import MAGIC, PAYLOAD_BYTES, ProbeNumber
from testbed.lab.core.drivers.nodes.udp_prober import ProbeEnd, Sent, UdpProber
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.probes.traffic import ProbeFlow, ProbeTraffic

A, B, C = (ProbeEnd(node=f"h{n}", interface="rail1", address=f"127.0.0.{n}") for n in (1, 2, 3))
NOWHERE = ProbeEnd(node="h9", interface="rail1", address="192.0.2.1")
"""An address that nobody has (RFC 5737)."""
SOON_NS = 5_000_000_000
SOON_S = SOON_NS / 1e9


@pytest.fixture(autouse=True)
def entered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the namespaces that were entered, as it were."""
    found: list[str] = []
    monkeypatch.setattr(udp_prober, "enter_namespace", found.append)
    return found


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[socket.socket]:
    """Every socket that is made."""
    made: list[socket.socket] = []

    class Recorded(socket.socket):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            made.append(self)

    monkeypatch.setattr(socket, "socket", Recorded)
    return made


def nics() -> list[PortPlan]:
    """Of four hosts, with addresses of this machine."""
    _, plan = small_lab(segments=2, hosts=2, rails=1)
    found = [nic for host in plan.hosts for nic in host.nics]
    return [replace(nic, address=IPv4Interface(f"127.0.1.{place}/24")) for place, nic in enumerate(found, 1)]


@contextmanager
def prober(*ends: ProbeEnd, **options: Any) -> Iterator[UdpProber]:
    with closing(UdpProber("lab", ends, **options)) as made:
        yield made


def test_probes_arrive_in_their_order_and_with_their_number(entered: list[str]) -> None:
    with prober(A, B, C) as sockets:
        assert entered == ["lab-h1", "lab-h2", "lab-h3"]
        sockets.listen([B, C])
        before = time.monotonic_ns()
        for sequence in range(5):
            assert sockets.send(A, B, ProbeNumber(7, sequence)) is Sent.TAKEN
        assert sockets.send(C, A, ProbeNumber(8, 0)) is Sent.TAKEN, "where nobody listens"
        found = sockets.arrivals(SOON_S)
        assert [arrival.number for arrival in found] == [ProbeNumber(7, sequence) for sequence in range(5)]
        assert all(before <= arrival.at_ns <= time.monotonic_ns() for arrival in found)
        assert sockets.arrivals() == []


def test_the_kernel_says_when_a_probe_arrived_not_when_it_was_looked_for() -> None:
    """It begins to stamp packets some time after the first socket asks for it (net_enable_timestamp of Linux)."""
    with prober(A, B, timestamps=True) as sockets:
        sockets.listen([B])
        for sequence in range(50):
            sent_ns = time.monotonic_ns()
            sockets.send(A, B, ProbeNumber(0, sequence))
            threading.Event().wait(0.03)  # nobody looks
            looked_ns = time.monotonic_ns()
            (arrival,) = sockets.arrivals(SOON_S)
            assert arrival.number == ProbeNumber(0, sequence) and arrival.at_ns >= sent_ns - 1_000_000
            if arrival.at_ns < looked_ns - 15_000_000:
                return
    pytest.fail("every probe has the time at which it was looked for")


def test_what_is_no_probe_of_this_prober_has_no_number() -> None:
    with prober(A, B) as sockets, prober(A, B) as others, closing(socket.socket(type=socket.SOCK_DGRAM)) as stranger:
        sockets.listen([B])
        address = sockets._addresses[B]
        others._addresses[B] = address
        others.send(A, B, ProbeNumber(1, 1))
        for payload in (b"", MAGIC, b"x" * PAYLOAD_BYTES, b"y" * 2000):
            stranger.sendto(payload, address)
        sockets.send(A, B, ProbeNumber(1, 1))
        found = [arrival.number for arrival in sockets.arrivals(SOON_S)]
        assert found == [None] * 5 + [ProbeNumber(1, 1)]


def test_a_long_probe_is_padded_and_one_too_long_for_its_path_is_refused() -> None:
    with prober(A, B) as sockets:
        sockets.listen([B])
        assert sockets.send(A, B, ProbeNumber(0, 1), 9000) is Sent.TAKEN
        assert sockets.send(A, B, ProbeNumber(0, 2), 70_000) is Sent.REFUSED
        assert [arrival.number for arrival in sockets.arrivals(SOON_S)] == [ProbeNumber(0, 1)]


def test_late_ones_of_before_are_passed_over() -> None:
    with prober(A, B) as sockets:
        sockets.send(A, B, ProbeNumber(1, 0))
        sockets.send(A, B, ProbeNumber(2, 0))
        assert sockets.await_arrival(B, ProbeNumber(2, 0), time.monotonic_ns() + SOON_NS)
        assert not sockets.await_arrival(B, ProbeNumber(1, 0), time.monotonic_ns())


def test_several_sockets_on_one_nic_have_ports_of_their_own_and_their_marking() -> None:
    ends = [replace(A, copy=copy) for copy in range(3)]
    with prober(*ends, *ends, tos=26 << 2) as sockets:
        assert len(sockets._sockets) == 3, "the same end is opened once"
        assert len({sockets._addresses[end] for end in ends}) == 3
        marks = {item.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) for item in sockets._sockets.values()}
        assert marks == {26 << 2}


@pytest.mark.parametrize("place", [0, 1, 2])
def test_where_one_socket_cannot_be_had_none_stays_open(opened: list[socket.socket], place: int) -> None:
    ends = [A, B]
    ends.insert(place, NOWHERE)
    with pytest.raises(
        DriverError, match=r"cannot open a socket for probes on 192\.0\.2\.1 of h9:rail1: Cannot assign"
    ) as caught:
        UdpProber("lab", ends)
    assert caught.value.errno == errno.EADDRNOTAVAIL
    assert len(opened) == place + 1
    assert [item.fileno() for item in opened] == [-1] * len(opened)


def test_what_goes_to_an_address_that_is_not_there_is_refused_and_the_others_arrive() -> None:
    with prober(A, NOWHERE, B, may_be_absent=True) as sockets:
        assert sockets.absent == {NOWHERE}
        sockets.listen([B, NOWHERE])
        assert sockets.send(A, NOWHERE, ProbeNumber(0, 1)) is Sent.REFUSED
        assert sockets.send(NOWHERE, B, ProbeNumber(0, 2)) is Sent.REFUSED
        assert sockets.send(A, B, ProbeNumber(0, 3)) is Sent.TAKEN
        assert [arrival.number for arrival in sockets.arrivals(SOON_S)] == [ProbeNumber(0, 3)]


def test_live_tests_leave_no_socket_where_one_cannot_be_had(
    opened: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several on each NIC, of which a later one fails."""
    given = iter(range(2))
    monkeypatch.setattr(udp_prober, "set_tos", lambda item, tos: next(given, None) is None and refuse())

    def refuse() -> None:
        raise OSError(errno.ENOBUFS, "No buffer space available")

    a, b, *_ = nics()
    with pytest.raises(DriverError, match=f"of {b.node}:{b.name}: No buffer space"):
        Prober("lab", [a, b], sockets_per_nic=2)
    assert len(opened) == 3
    assert [item.fileno() for item in opened] == [-1] * 3


def test_live_tests_say_whose_address_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.lab.core.deploy.watch.probe.ROUND_TIMEOUT_S", 0.1)
    a, b, c, _ = nics()
    bare = replace(b, address=IPv4Interface("192.0.2.1/24"))
    with closing(Prober("lab", [a, bare, c])) as made:
        lost = made.lost([Probe(source=one, target=other) for one, other in ((a, bare), (bare, c), (a, c))])
        why = f"({b.node}:{b.name} does not have its address 192.0.2.1)"
        assert made.paths_text(lost) == [
            f"{a.node}:{a.name} -> {b.node}:{b.name} {why}",
            f"{b.node}:{b.name} -> {c.node}:{c.name} {why}",
        ]
        assert made.round_trip_ns(Probe(source=a, target=bare), 5.0) is None


def test_probes_beside_traffic_leave_no_socket_where_one_cannot_be_had(opened: list[socket.socket]) -> None:
    a, b, *_ = nics()
    flows = [ProbeFlow(source=a, destination=b, source_port=0)]
    flows.append(replace(flows[0], destination=replace(b, address=IPv4Interface("192.0.2.1/24"))))
    with pytest.raises(DriverError, match="cannot open a socket for probes") as caught:
        ProbeTraffic("lab", flows, rate_pps=10).__enter__()
    assert caught.value.hint == "probes: off, in the scenario file"
    assert [item.fileno() for item in opened] == [-1] * len(opened)


def test_the_descriptor_limit_rises_only_where_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda what, limits: asked.append(limits))
    monkeypatch.setattr(resource, "getrlimit", lambda what: (1024, 4096))
    udp_prober.make_room(10)
    assert asked == []
    udp_prober.make_room(1000)
    assert asked == [(4096, 4096)]


def test_live_tests_name_what_is_lost_even_when_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.lab.core.deploy.watch.probe.ROUND_TIMEOUT_S", 0.1)
    found = nics()
    with closing(Prober("lab", found, sockets_per_nic=4)) as made:
        every = [Probe(source=a, target=b, entropy=e) for e in range(4) for a in found for b in found if a != b]
        assert made.lost(every) == []
        too_long = Probe(source=found[0], target=found[1], size_bytes=70_000)
        assert made.lost([*every, too_long]) == [too_long]
        assert made.lost(every) == [], "what was lost before is no answer"


def test_foreign_packets_do_not_keep_a_live_test_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """They come for as long as one waits."""
    monkeypatch.setattr("testbed.lab.core.deploy.watch.probe.ROUND_TIMEOUT_S", 0.1)
    monkeypatch.setattr("testbed.lab.core.deploy.watch.probe.BURST_TIMEOUT_S", 0.1)
    a, b, *_ = nics()
    with closing(Prober("lab", [a, b])) as made, closing(socket.socket(type=socket.SOCK_DGRAM)) as stranger:
        inner = made._sockets
        address = inner._addresses[made._ends[b.node, b.name][0]]
        real = inner.arrivals

        def flooded(timeout_s: float = 0.0) -> Any:
            stranger.sendto(b"noise", address)
            return real(timeout_s)

        monkeypatch.setattr(inner, "arrivals", flooded)
        lost = Probe(source=a, target=b, size_bytes=70_000)
        assert made.lost([lost]) == [lost]


def test_what_arrives_at_another_nic_of_the_same_address_has_not_arrived() -> None:
    """Addresses repeat between tenants."""
    a, b, c, _ = nics()
    with closing(Prober("lab", [a, b, c])) as made:
        of = made._sockets._addresses
        of[made._ends[b.node, b.name][0]] = of[made._ends[c.node, c.name][0]]
        astray, there = Probe(source=a, target=b), Probe(source=a, target=c)
        assert made.arrived([astray, there]) == [there]


def test_a_round_trip_is_of_the_very_packet() -> None:
    a, b, *_ = nics()
    with closing(Prober("lab", [a, b])) as made:
        taken = made.round_trip_ns(Probe(source=a, target=b), 5.0)
        assert taken is not None and 0 < taken < SOON_NS
        assert made.round_trip_ns(Probe(source=a, target=b, size_bytes=70_000), 5.0) is None


def test_the_probes_of_a_run_are_sent_at_their_rate_and_counted() -> None:
    a, b, *_ = nics()
    flows = [ProbeFlow(source=a, destination=b, source_port=0), ProbeFlow(source=b, destination=a, source_port=0)]
    with ProbeTraffic("lab", flows, rate_pps=400.0, train=2) as probes:
        probes.begin(time.monotonic_ns())
        while len(probes._ledger._sent_ns[0]) < 10:
            probes._stop.wait(0.01)
        probes.halt()
        report = probes.report()
    assert report.sent >= 10 and report.lost == 0 and report.foreign == 0
    assert all(item.sent % 2 == 0 and not item.inversions for item in report.streams)
