"""sFlow of a real lab: what switches send while traffic runs, as their specification and other programs read it."""

import json
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from sandbox import Sandbox
from sflow_decoder import DecodedDatagram, DecodedSample, decode_datagram
from waiting import until

from testbed.base.linux.namespaces import in_namespace
from testbed.base.names import namespace_name
from testbed.lab.core.deploy.power import power_off, power_on
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.management.services_apply import missing_services, read_services
from testbed.lab.observe.port_table import tabulate_ports
from testbed.lab.observe.telemetry import queue_rows, take_snapshot

pytestmark = [pytest.mark.netns, pytest.mark.frr, pytest.mark.timeout(180)]

SAMPLING, DATAGRAMS, SIZE, LIMIT = 5, 2_000, 1_000, 30_000
TEXT = f"""name: {{name}}
scale: {{{{time: 20000}}}}
fabric: {{{{design: rail-optimized, hosts: 3, gpus: 1, segments: 1, spines: 1}}}}
qos:
  classes:
    control: {{{{dscp: [48], strict: true}}}}
    bulk: {{{{default: true, limit: {LIMIT}B}}}}
  buffer: {{{{shared: 16MB, alpha: 8}}}}
networks:
  management: {{{{design: out-of-band, services: {{{{sflow: {{{{sampling: {SAMPLING}, polling: 1s}}}}}}}}}}}}
"""
PLAIN = """name: {name}
scale: {{time: 20000}}
fabric: {{design: single-switch, hosts: 2, gpus: 1}}
networks:
  management: {{design: out-of-band, services: {{sflow: {{collector: "127.0.0.1:{port}", sampling: 4, polling: 1s}}}}}}
"""
SERVER, SWITCH, PORT = "mgmt1", "p1-s1-rail1", 6343
SOURCES, SINK = ("p1-s1-h1", "p1-s1-h2"), "p1-s1-h3"
SENDER = f"""
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range({DATAGRAMS}):
    s.sendto(bytes({SIZE}), (sys.argv[1], 9000))
"""
MALFORMED = "_ws.malformed"


class Collector:
    """Whoever takes datagrams: all that came, with the address that each came from."""

    def __init__(self, namespace: str | None, address: str, port: int = PORT) -> None:
        def opened() -> socket.socket:
            item = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            item.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            item.bind((address, port))
            item.setblocking(False)
            return item

        self._socket = opened() if namespace is None else in_namespace(namespace, opened)
        self.port: int = self._socket.getsockname()[1]
        self.content: list[bytes] = []
        self.datagrams: list[DecodedDatagram] = []

    def take(self) -> list[DecodedDatagram]:
        """Take what there is, and return all that came since the beginning."""
        while True:
            try:
                content, (source, _) = self._socket.recvfrom(65_536)
            except BlockingIOError:
                return self.datagrams
            datagram = decode_datagram(content)
            assert source in (str(datagram.agent), "127.0.0.1")
            self.content.append(content)
            self.datagrams.append(datagram)

    def samples(self, kind: str, agent: IPv4Address | None = None) -> list[DecodedSample]:
        return [sample for item in self.take() if agent in (None, item.agent) for sample in item.of(kind)]

    def close(self) -> None:
        self._socket.close()


@contextmanager
def collecting(namespace: str | None, address: str, port: int = PORT) -> Iterator[Collector]:
    collector = Collector(namespace, address, port)
    try:
        yield collector
    finally:
        collector.close()


@pytest.fixture(scope="module")
def lab(shared_sandbox: Sandbox) -> Any:
    return shared_sandbox.lab(TEXT, "f", k=20_000.0)


@pytest.fixture(scope="module")
def address(lab: Any) -> IPv4Address:
    return IPv4Address(lab.plan.management.addresses[SWITCH].ip)


@contextmanager
def at_the_server(lab: Any) -> Iterator[Collector]:
    with collecting(namespace_name(lab.name, SERVER), str(lab.plan.management.addresses[SERVER].ip)) as found:
        yield found


def address_of(lab: Any, host: str) -> IPv4Address:
    return next(IPv4Address(port.address.ip) for port in lab.plan.ports if port.node == host and port.name == "rail1")


def ports_of(lab: Any, switch: str) -> dict[str, int]:
    return {port.name: port.ifindex for port in lab.plan.ports if port.node == switch and not port.out_of_band}


def incast(lab: Any) -> None:
    """Have two hosts send to a third, as fast as their NICs take it: one packet of two is dropped at its port."""
    argv = [sys.executable, "-c", SENDER, str(address_of(lab, SINK))]
    senders = [in_namespace(namespace_name(lab.name, host), lambda: subprocess.Popen(argv)) for host in SOURCES]
    assert [sender.wait(60) for sender in senders] == [0, 0]


def ip_source(header: bytes) -> IPv4Address | None:
    """The source of a packet of IPv4 in an Ethernet frame, which is the switch's own header here."""
    return IPv4Address(header[26:30]) if header[12:14] == b"\x08\x00" else None


def test_every_port_of_every_switch_is_counted(lab: Any) -> None:
    wanted = {
        (IPv4Address(lab.plan.management.addresses[switch.node].ip), name, ifindex)
        for switch in lab.plan.switches
        if switch.node in lab.plan.management.addresses
        for name, ifindex in ports_of(lab, switch.node).items()
    }
    assert len(wanted) == 5

    def seen() -> bool:
        found = {
            (item.agent, sample.records["port_name"], sample.records["generic"]["ifindex"])
            for item in collector.take()
            for sample in item.of("counters")
        }
        assert found <= wanted
        return found == wanted

    with at_the_server(lab) as collector:
        until(seen, "each port has sent its counters", 20)
        generic = collector.samples("counters")[0].records["generic"]
    assert (generic["type"], generic["direction"], generic["status"], generic["speed"]) == (6, 1, 3, 20_000_000)


def test_samples_and_drops_of_an_incast_tell_where_it_is_and_whom_it_hits(
    lab: Any, address: IPv4Address, tmp_path: Path
) -> None:
    ports = ports_of(lab, SWITCH)
    into = {address_of(lab, host): ports[f"down{number}"] for number, host in enumerate(SOURCES, 1)}
    towards = ports["down3"]
    maps, table = lab.maps(), tabulate_ports(lab.plan)
    before = take_snapshot(maps)

    def counted() -> Any:
        rows = queue_rows(table, take_snapshot(maps).since(before), table.present)
        return next(row for row in rows if (row.place, row.class_name) == (f"{SWITCH}:down3", "bulk"))

    with at_the_server(lab) as collector:
        incast(lab)
        row = until(lambda: (r := counted()).offered.packets >= 2 * DATAGRAMS and r.queue_bytes == 0 and r, "all sent")
        end = time.monotonic()
        until(lambda: time.monotonic() > end + 2 and collector.take(), "the last samples came")
        flows = [item for item in collector.samples("flow", address) if item.fields["output"] == towards]
        drops = [item for item in collector.samples("drop", address) if item.fields["output"] == towards]
        counters = [
            item.records["generic"] for item in collector.samples("counters", address)
            if item.records["port_name"] == "down3"
        ]  # fmt: skip
        text = list(collector.content)
    maps.close()

    assert row.dropped.packets > DATAGRAMS // 2
    bulk = [item for item in flows if ip_source(item.records["header"]["bytes"]) in into]
    sent = row.sent.packets
    expected = sent / SAMPLING
    assert abs(len(bulk) - expected) < 6 * (expected * (1 - 1 / SAMPLING)) ** 0.5
    assert {item.fields["rate"] for item in flows} == {SAMPLING}
    assert [item.fields["sequence"] for item in flows] == sorted({item.fields["sequence"] for item in flows})
    for item in [*bulk, *drops]:
        header = item.records["header"]
        source = ip_source(header["bytes"])
        assert source in into and item.fields["input"] == into[source], "it came in by the port of who sent it"
        assert (header["protocol"], header["length"], len(header["bytes"])) == (1, SIZE + 28 + 18, 128)
    assert Counter(ip_source(item.records["header"]["bytes"]) for item in bulk).keys() == into.keys()
    depths = [item.records["queue_depth"] for item in bulk]
    assert LIMIT / 2 < max(depths) <= LIMIT

    assert drops, "a queue that is full says so"
    assert {item.fields["reason"] for item in drops} == {259}
    assert {item.records["function"] for item in drops} == {"tail"}
    assert all(item.records["queue_depth"] > LIMIT - SIZE - 100 for item in drops)
    assert len(drops) + drops[-1].fields["drops"] <= row.dropped.packets
    assert counters[-1]["out_discards"] >= row.dropped.packets
    assert counters[-1]["out_ucast"] + counters[-1]["out_discards"] >= 2 * DATAGRAMS
    assert_decoded_by_tshark(text, tmp_path / "sflow.pcap")


def assert_decoded_by_tshark(datagrams: list[bytes], path: Path) -> None:
    """Have Wireshark's dissector read the same datagrams, as packets of a capture."""
    if shutil.which("tshark") is None:
        return
    blocks = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 1)]
    for content in datagrams:
        udp = struct.pack("!HHHH", PORT, PORT, 8 + len(content), 0) + content
        ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, bytes(4), bytes(4))
        frame = bytes(12) + b"\x08\x00" + ip + udp
        blocks.append(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame)
    path.write_bytes(b"".join(blocks))
    argv = ["tshark", "-n", "-r", str(path), "-d", f"udp.port=={PORT},sflow", "-T", "fields"]
    argv += ["-e", "sflow_245.numsamples", "-e", MALFORMED]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60, stdin=subprocess.DEVNULL)
    found = [line.split("\t") for line in done.stdout.splitlines()]
    assert not any(malformed for _, malformed in found)
    assert [int(number) for number, _ in found] == [len(decode_datagram(content).samples) for content in datagrams]


@pytest.mark.skipif(shutil.which("sfacctd") is None, reason="pmacct is missing: apt-get install pmacct")
def test_a_collector_of_others_counts_the_traffic(lab: Any, tmp_path: Path) -> None:
    """sfacctd multiplies what it samples by the sampling rate, and adds up the bytes of each source."""
    server = str(lab.plan.management.addresses[SERVER].ip)
    output, settings = tmp_path / "flows.json", tmp_path / "sfacctd.conf"
    lines = (
        f"sfacctd_ip: {server}",
        f"sfacctd_port: {PORT}",
        "daemonize: false",
        "plugins: print",
        "sfacctd_renormalize: true",
        "aggregate: src_host, dst_host, in_iface, out_iface, peer_src_ip",
        "print_output: json",
        f"print_output_file: {output}",
        "print_output_file_append: true",
        "print_refresh_time: 2",
        "print_history: 1m",
    )
    settings.write_text("\n".join(lines) + "\n")
    argv = ["sfacctd", "-f", str(settings)]
    log = (tmp_path / "log").open("wb")
    collecting = in_namespace(
        namespace_name(lab.name, SERVER),
        lambda: subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL),
    )

    def bytes_of() -> dict[tuple[str, str], int]:
        found: Counter[tuple[str, str]] = Counter()
        for line in output.read_text().splitlines() if output.exists() else ():
            row = json.loads(line)
            if row.get("ip_dst") == str(address_of(lab, SINK)):
                found[row["ip_src"], row["peer_ip_src"]] += int(row["bytes"])
        return found

    try:
        until(lambda: is_bound(lab), "sfacctd listens", 20)
        incast(lab)
        agent = str(lab.plan.management.addresses[SWITCH].ip)
        keys = {(str(address_of(lab, host)), agent) for host in SOURCES}
        found = until(
            lambda: keys <= bytes_of().keys() and sum(bytes_of().values()) > DATAGRAMS * SIZE / 2, "it counted"
        )
        assert found
    finally:
        collecting.terminate()
        collecting.wait(20)
        log.close()


def is_bound(lab: Any) -> bool:
    def bound() -> bool:
        text = Path("/proc/thread-self/net/udp").read_text()
        return any(line.split()[1].endswith(f":{PORT:04X}") for line in text.splitlines()[1:])

    return in_namespace(namespace_name(lab.name, SERVER), bound)


def test_a_switch_without_power_is_silent_and_comes_back(lab: Any, address: IPv4Address) -> None:
    power_off(lab, SWITCH)
    try:
        with at_the_server(lab) as collector:
            others = until(lambda: [item for item in collector.take() if item.agent != address], "others go on", 20)
            assert others and not [item for item in collector.datagrams if item.agent == address]
    finally:
        power_on(lab, SWITCH)
    with at_the_server(lab) as collector:
        until(lambda: collector.samples("counters", address), "it sends again", 20)
    until(lambda: missing_services(lab) == [], "all services answer")
    (status,) = [item for item in read_services(lab) if item.service == "sflow"]
    assert status.detail.startswith(f"2 switches, 1 packet in {SAMPLING}, ")


def test_a_lab_without_qos_sends_to_a_collector_of_this_machine(sandbox: Sandbox) -> None:
    with collecting(None, "127.0.0.1", 0) as collector:
        text = PLAIN.format(name=sandbox.name("p"), port=collector.port)
        lab = sandbox.deploy(load_topology_text(text, file="plain.yml"), k=20_000.0).lab
        (switch,) = [item.node for item in lab.plan.switches if item.node in lab.plan.management.addresses]
        hosts = [host.node for host in lab.plan.hosts if host.node != SERVER]
        ports = ports_of(lab, switch)
        sink = next(port.address.ip for port in lab.plan.ports if port.node == hosts[1] and not port.out_of_band)
        done = lab.run(hosts[0], [sys.executable, "-c", SENDER, str(sink)])
        assert done.returncode == 0, done.stderr
        flows = until(
            lambda: len(collector.samples("flow")) > DATAGRAMS / 8 and collector.samples("flow"), "samples", 30
        )
        assert len({item.fields["output"] for item in flows} & set(ports.values())) >= 1
        until(
            lambda: {item.records["port_name"] for item in collector.samples("counters")} == set(ports), "counters", 20
        )
        sandbox.destroy("p")
        assert "flow" in {sample.kind for item in collector.take() for sample in item.samples}
