"""What the console takes of the machine: its CPU time and memory, by its own accounting.

The lab is as large as the promise says (176 nodes, 2,048 links), and packets cross every NIC and its way to another
segment all the time. The server alone is measured: pages are readers in a process of their own.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from console_browser import ConsoleProcess
from console_client import Page
from figures import Figure, judge
from test_bring_up import ROOT, TESTBED, destroyed

from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.drivers.nodes.inside import open_inside

pytestmark = [pytest.mark.bench, pytest.mark.netns, pytest.mark.frr, pytest.mark.timeout(1800)]

NAME = "benchconsole"
MEASURED_S = 30.0
SETTLES_S = 5.0
IDLE_STREAMS = 200
MIB = 1 << 20
READERS = """
import socket, sys
host, port, cookie, path, number = sys.argv[1:]
streams = []
for _ in range(int(number)):
    stream = socket.create_connection((host, int(port)))
    request = f"GET {path} HTTP/1.1\\r\\nHost: {host}:{port}\\r\\nCookie: {cookie}\\r\\n\\r\\n"
    stream.sendall(request.encode())
    streams.append(stream)
import select
print("ready", flush=True)
while True:
    for stream in select.select(streams, [], [])[0]:
        if not stream.recv(1 << 20):
            sys.exit(1)
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    directory = tmp_path_factory.mktemp("lab")
    with destroyed(NAME, directory):
        topology = str(ROOT / "topologies/superpod-4su.yml")
        subprocess.run([*TESTBED, "deploy", "-t", topology, "-n", NAME], check=True, timeout=900, cwd=directory)
        lab = RunningLab.open(NAME, StateDirectory())
        with crossing(lab):
            yield lab


@contextmanager
def crossing(lab: RunningLab) -> Iterator[None]:
    """Send a packet from every NIC to one of the same rail in the next segment, four times a second."""
    nics = [nic for host in lab.plan.hosts for nic in host.nics if nic.address is not None]
    sockets = open_inside(
        lab.name,
        {(nic.node, nic.name): nic.node for nic in nics},
        lambda _: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
    )
    by_rail: dict[int, list[str]] = {}
    for nic in nics:
        sockets[nic.node, nic.name].bind((str(nic.address.ip), 0))
        by_rail.setdefault(nic.rail, []).append(str(nic.address.ip))
    stop = threading.Event()

    def send() -> None:
        while not stop.wait(0.25):
            for nic in nics:
                ring = by_rail[nic.rail]
                there = ring[(ring.index(str(nic.address.ip)) + len(ring) // 4) % len(ring)]
                sockets[nic.node, nic.name].sendto(b"x" * 700, (there, 9))

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    try:
        yield
    finally:
        stop.set()
        sender.join()
        for item in sockets.values():
            item.close()


@contextmanager
def reading(page: Page, number: int) -> Iterator[None]:
    """So many pages that look at the lab, in a process of their own."""
    host, _, port = page.host.rpartition(":")
    words = [sys.executable, "-c", READERS, host, port, page.cookie, f"/api/labs/{NAME}/stream", str(number)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


@contextmanager
def console_page(directory: Path) -> Iterator[Page]:
    """A console, and a browser that has logged in."""
    console = ConsoleProcess("--bind", "127.0.0.1:0", NAME, directory=directory)
    try:
        yield Page.by_link(console.link())
    finally:
        console.close()


def share_of_a_core(page: Page, pages: int) -> float:
    """Return the CPU time that the console takes while pages look, over a span."""
    with reading(page, pages):
        time.sleep(SETTLES_S)
        begin, before = time.monotonic(), page.get("/api/cost")
        time.sleep(MEASURED_S)
        after, seconds = page.get("/api/cost"), time.monotonic() - begin
        threads = {name: used - before["threads"].get(name, 0.0) for name, used in after["threads"].items()}
        most = sorted(threads.items(), key=lambda item: -item[1])[:8]
        print(f"{pages} pages:", ", ".join(f"{name} {used / seconds:.2%}" for name, used in most), file=sys.stderr)
        assert after["ticks"] - before["ticks"] >= MEASURED_S / 0.5 * 0.9
    return float((after["cpu_s"] - before["cpu_s"]) / seconds)


def test_the_server_takes_little_of_a_core(lab: RunningLab, tmp_path: Path) -> None:
    with console_page(tmp_path) as page:
        page.get(f"/api/labs/{NAME}")
        one = share_of_a_core(page, 1)
        ten = share_of_a_core(page, 10)
    context = f"{len(lab.model.nodes)} nodes, {len(lab.model.links)} links, traffic on all NICs"
    judge(
        Figure(f"console, one page, {context}", one * 100, at_most=5.0, unit="% of a core"),
        Figure(f"console, ten pages, {context}", ten * 100, at_most=15.0, unit="% of a core"),
    )


def test_pages_that_do_not_read_cost_bounded_memory(lab: RunningLab, tmp_path: Path) -> None:
    with console_page(tmp_path) as page, ExitStack() as opened, reading(page, 1):
        time.sleep(SETTLES_S)
        before = page.get("/api/cost")["resident_bytes"]
        for _ in range(IDLE_STREAMS):
            opened.enter_context(page.stream(f"/api/labs/{NAME}/stream"))
        time.sleep(MEASURED_S)
        cost = page.get("/api/cost")
    grown = (cost["resident_bytes"] - before) / MIB
    judge(Figure(f"console, {IDLE_STREAMS} pages that do not read", grown, at_most=200.0, unit="MiB"))
