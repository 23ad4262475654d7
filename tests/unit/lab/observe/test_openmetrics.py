"""The OpenMetrics text, read back with the parser of the library, and the server that hands it out.

Where each counter stands is in tests/golden/telemetry/metrics.txt.
"""

import http.client
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest
from fake_ports import BULK, RDMA, FakePorts
from memory_maps import queue_index
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry

from testbed.base.errors import TestbedError
from testbed.base.linux.port_counters import PortCounters
from testbed.cli.counters.metrics_server import CannotListen, is_loopback, open_server, parse_address
from testbed.lab.core.model.telemetry import DropCause
from testbed.lab.observe.lab_reader import LabReading
from testbed.lab.observe.openmetrics import CONTENT_TYPE, LabCollector, encode_text, render_metrics
from testbed.lab.observe.telemetry import take_snapshot

UP = "p1-s1-rail1:uplink1"
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def reading(ports: FakePorts) -> LabReading:
    table = ports.table
    networks = dict.fromkeys(zip(table.nodes, table.interfaces, strict=True), "backend")
    snapshot = take_snapshot(ports.maps, now_ns=1)
    return LabReading(lab="fake", k=1000, table=table, snapshot=snapshot, networks=networks)


def scrape(*readings: LabReading, histograms: bool = False) -> Samples:
    text = render_metrics(lambda: readings, histograms=histograms).decode()
    assert text.endswith("# EOF\n")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, tuple(sorted(labels.items()))]


@pytest.fixture
def ports() -> FakePorts:
    found = FakePorts()
    up = found.number(UP)
    found.carry(up, RDMA, 10, lost=2)
    found.offer(up, BULK, 20, dropped={DropCause.TAIL: 3, DropCause.WRED: 1}, marked=5)
    found.maps.pauses[queue_index(up, RDMA)]["paused_ns"] = 1_500_000_000
    found.maps.pauses[queue_index(up, RDMA)]["xoff_sent"] = 4
    found.maps.ingress[queue_index(up, RDMA)]["pause_frames"] = 6
    return found


def test_what_a_curve_dropped_is_told_as_that(ports: FakePorts) -> None:
    bulk = {"lab": "fake", "node": "p1-s1-rail1", "interface": "uplink1", "network": "backend", "class": "bulk"}
    samples = scrape(reading(ports))
    assert [of(samples, "testbed_queue_drops_total", **bulk, cause=cause) for cause in ("wred", "tail")] == [1, 3]


def test_depths_are_told_where_they_are_asked_for(ports: FakePorts) -> None:
    assert any("depth" in name for name, _ in scrape(reading(ports), histograms=True))
    assert not any("depth" in name for name, _ in scrape(reading(ports)))


def test_a_lab_without_qos_has_the_kernels_counters() -> None:
    counters = PortCounters(rx_bytes=7, tx_packets=3)
    places = {("h1", "eth1"): counters}
    networks, rates = dict.fromkeys(places, "backend"), dict.fromkeys(places, 40_000_000)
    samples = scrape(LabReading(lab="plain", k=10, ports=places, networks=networks, rates=rates))
    port = {"lab": "plain", "node": "h1", "interface": "eth1", "network": "backend"}
    assert of(samples, "testbed_kernel_rx_bytes_total", **port) == 7
    assert of(samples, "testbed_kernel_tx_packets_total", **port) == 3
    assert of(samples, "testbed_port_rate_bits_per_second", **port) == 40e6


def test_ports_without_qos_in_a_lab_that_has_it_are_counted_by_the_kernel_under_their_network(ports: FakePorts) -> None:
    place = ("mgmt1", "mgmt0")
    seen = reading(ports)
    seen = replace(seen, ports={place: PortCounters(tx_bytes=9)}, dropped={(*place, "from-data"): (5, 200)})
    samples = scrape(replace(seen, networks={**seen.networks, place: "management"}))
    port = {"lab": "fake", "node": "mgmt1", "interface": "mgmt0", "network": "management"}
    assert of(samples, "testbed_kernel_tx_bytes_total", **port) == 9
    assert of(samples, "testbed_guard_dropped_packets_total", **port, guard="from-data") == 5
    assert of(samples, "testbed_guard_dropped_bytes_total", **port, guard="from-data") == 200
    assert "testbed_queue_bytes" in {name for name, _ in samples}, "what has queues is there as before"


def test_every_series_of_a_port_says_which_network_it_is_in(ports: FakePorts) -> None:
    """Those of queues, of ports without QoS and of guards, policies and management ports, histograms included."""
    nic, managed = ("h1", "st1"), ("mgmt1", "mgmt0")
    seen = reading(ports)
    seen = replace(
        seen,
        ports={nic: PortCounters(tx_bytes=1), managed: PortCounters(tx_bytes=2)},
        dropped={
            (*managed, "from-data"): (5, 200),
            ("p1-s1-rail1", "down1", "mac"): (1, 60),
            ("p1-s1-rail1", "red:to2", "policy"): (1, 60),
        },
        networks={**seen.networks, nic: "storage", managed: "management", ("p1-s1-rail1", ""): "backend"},
    )
    found: dict[str, set[str]] = {}
    for name, labels in scrape(seen, histograms=True):
        known = dict(labels)
        if "interface" in known:
            found.setdefault(name, set()).add(known["network"])
    assert {
        "testbed_queue_depth_bytes_bucket",
        "testbed_pause_seconds_total",
        "testbed_port_malformed_frames_total",
    } <= set(found)
    assert not [name for name, networks in found.items() if "" in networks]
    assert found["testbed_kernel_tx_bytes_total"] == {"storage", "management"}
    assert found["testbed_guard_dropped_packets_total"] == {"management", "backend"}


def test_a_lab_that_cannot_be_read_is_down_and_does_not_hide_the_others(ports: FakePorts) -> None:
    samples = scrape(LabReading(lab="broken", problem="the data path is gone"), reading(ports))
    assert of(samples, "testbed_lab_up", lab="broken") == 0
    assert of(samples, "testbed_lab_up", lab="fake") == 1


def test_no_lab_is_a_valid_text() -> None:
    assert scrape() == {}


def test_names_with_odd_characters_are_escaped(ports: FakePorts) -> None:
    odd = LabReading(lab='a"b\\c\nd', k=1, ports={("h", "e"): PortCounters()})
    assert of(scrape(odd), "testbed_lab_up", lab='a"b\\c\nd') == 1


def test_the_text_is_the_librarys_to_the_letter(ports: FakePorts) -> None:
    odd = LabReading(lab='a"b\\c\nd', k=0.5, ports={("h", "e"): PortCounters(rx_bytes=2**60)})
    collector = LabCollector(lambda: [reading(ports), odd], histograms=True)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    assert encode_text(collector.collect()) == generate_latest(registry)


@contextmanager
def served(readings: Sequence[LabReading]) -> Iterator[int]:
    server = open_server("127.0.0.1", 0, lambda: render_metrics(lambda: readings))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def ask(port: int, path: str, method: str = "GET") -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type", ""), answer.read()
    finally:
        connection.close()


def test_the_server_answers_with_open_metrics(ports: FakePorts) -> None:
    assert CONTENT_TYPE == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    with served([reading(ports)]) as port:
        status, content_type, body = ask(port, "/metrics?name=x")
        assert (status, content_type) == (200, CONTENT_TYPE)
        assert body.endswith(b"# EOF\n")
        assert ask(port, "/metrics", "HEAD") == (200, CONTENT_TYPE, b"")
        assert ask(port, "/")[0] == 200
        assert ask(port, "/../etc/passwd")[0] == 404
        assert ask(port, "/metrics", "POST")[0] == 501


def test_an_address_in_use_is_a_clear_error() -> None:
    with served([]) as port, pytest.raises(CannotListen, match=f"127.0.0.1:{port}: Address already in use") as error:
        open_server("127.0.0.1", port, lambda: b"")
    assert "--listen" in (error.value.hint or "")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9464", ("127.0.0.1", 9464)),
        ("localhost", ("localhost", 9464)),
        ("[::1]:80", ("::1", 80)),
        (":8080", ("", 8080)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "host:port", "1.2.3.4:99999", "http://x:1", "a:1/path", "[::1"])
def test_no_addresses(text: str) -> None:
    with pytest.raises(TestbedError, match="no address to listen on"):
        parse_address(text)


def test_what_only_this_machine_reaches() -> None:
    assert is_loopback("127.0.0.1")
    assert is_loopback("::1")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("fe80::1%eth0")


def test_what_guards_dropped_is_counted_and_is_not_there_without_guards(ports: FakePorts) -> None:
    dropped = {("p1-s1-rail1", "down1", "arp"): (3, 126), ("p1-s1-rail1", "red:to50002", "policy"): (4, 168)}
    samples = scrape(replace(reading(ports), dropped=dropped))
    place = {"lab": "fake", "node": "p1-s1-rail1"}
    policy = {**place, "interface": "red:to50002", "network": "", "guard": "policy"}
    arp = {**place, "interface": "down1", "network": "backend", "guard": "arp"}
    for labels, packets, size in ((arp, 3, 126), (policy, 4, 168)):
        assert of(samples, "testbed_guard_dropped_packets_total", **labels) == packets
        assert of(samples, "testbed_guard_dropped_bytes_total", **labels) == size
    assert not any("guard" in name for name, _ in scrape(reading(ports)))
